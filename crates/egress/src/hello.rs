//! Reads a TLS ClientHello far enough to see which server it names. Hand-written because it must see
//! the server name as sent and notice an encrypted one; it decrypts and keeps nothing. The input is
//! hostile: every length is checked, and what a server could read in two ways is malformed here.

/// The most a ClientHello may take with its record headers. Real ones stay under 4 KiB, with
/// post-quantum key shares too.
pub(crate) const MOST: usize = 32 * 1024;

const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEAD: usize = 5;
const RECORD_MOST: usize = 16 * 1024;
const MESSAGE_HEAD: usize = 4;

const SERVER_NAME: u16 = 0;
const EARLY_DATA: u16 = 42;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
/// Its draft forerunner, which hid the name the same way.
const ENCRYPTED_SERVER_NAME: u16 = 0xffce;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// As sent.
    pub(crate) name: Option<String>,
    /// Another name travels inside, encrypted.
    pub(crate) encrypted: bool,
    /// Data follows before the server has answered.
    pub(crate) early: bool,
    /// Where its last record ends.
    pub(crate) end: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scan {
    /// Nothing can be said before this many bytes are here.
    Need(usize),
    Found(Hello),
    Malformed(&'static str),
}

/// Looks at the records from the front of `bytes`, which may hold more or less than the ClientHello.
pub(crate) fn scan(bytes: &[u8]) -> Scan {
    let mut message = Vec::new();
    let mut position = 0;
    // Each turn takes a record of at least six bytes, so MOST bounds the turns.
    loop {
        let Some(head) = bytes.get(position..position + RECORD_HEAD) else {
            return Scan::Need(position + RECORD_HEAD);
        };
        let &[kind, major, _, high, low] = head else { return Scan::Malformed("a broken record") };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 {
            return Scan::Malformed("the ClientHello is interrupted by another record");
        }
        if length == 0 || length > RECORD_MOST {
            return Scan::Malformed("a record's length is out of bounds");
        }
        let end = position + RECORD_HEAD + length;
        if end > MOST {
            return Scan::Malformed("the ClientHello is too long");
        }
        let Some(body) = bytes.get(position + RECORD_HEAD..end) else { return Scan::Need(end) };
        message.extend_from_slice(body);
        position = end;
        match whole(&message) {
            Ok(None) => {}
            Ok(Some(body)) => {
                return match read(body) {
                    Ok(hello) => Scan::Found(Hello { end: position, ..hello }),
                    Err(reason) => Scan::Malformed(reason),
                };
            }
            Err(reason) => return Scan::Malformed(reason),
        }
    }
}

/// The ClientHello's body, once all of it is here.
fn whole(message: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let &[kind, high, middle, low, ..] = message else { return Ok(None) };
    if kind != CLIENT_HELLO {
        return Err("the first message is no ClientHello");
    }
    let length = u32::from_be_bytes([0, high, middle, low]);
    let end = usize::try_from(length).unwrap_or(MOST).saturating_add(MESSAGE_HEAD);
    if end > MOST {
        return Err("the ClientHello is too long");
    }
    if message.len() > end {
        return Err("another message shares the ClientHello's record");
    }
    Ok(if message.len() == end { message.get(MESSAGE_HEAD..) } else { None })
}

const CUT_SHORT: &str = "the ClientHello is cut short";

fn read(body: &[u8]) -> Result<Hello, &'static str> {
    let mut hello = Hello { name: None, encrypted: false, early: false, end: 0 };
    let mut cut = Cut(body);
    cut.take(2 + 32).ok_or(CUT_SHORT)?;
    cut.short_block().ok_or(CUT_SHORT)?;
    cut.long_block().ok_or(CUT_SHORT)?;
    cut.short_block().ok_or(CUT_SHORT)?;
    if cut.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Cut(cut.long_block().ok_or(CUT_SHORT)?);
    if !cut.0.is_empty() {
        return Err("bytes follow the ClientHello's extensions");
    }
    while !extensions.0.is_empty() {
        let kind = extensions.number().ok_or(CUT_SHORT)?;
        let body = extensions.long_block().ok_or(CUT_SHORT)?;
        match kind {
            SERVER_NAME if hello.name.is_some() => return Err("two server names"),
            SERVER_NAME => hello.name = Some(server_name(body)?),
            ENCRYPTED_CLIENT_HELLO | ENCRYPTED_SERVER_NAME => hello.encrypted = true,
            EARLY_DATA => hello.early = true,
            _ => {}
        }
    }
    Ok(hello)
}

fn server_name(body: &[u8]) -> Result<String, &'static str> {
    const BROKEN: &str = "the server name is malformed";
    let mut outer = Cut(body);
    let mut list = Cut(outer.long_block().ok_or(BROKEN)?);
    let kind = list.take(1).ok_or(BROKEN)?;
    let name = list.long_block().ok_or(BROKEN)?;
    if kind != [0] || name.is_empty() || !list.0.is_empty() || !outer.0.is_empty() {
        return Err(BROKEN);
    }
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(BROKEN);
    }
    String::from_utf8(name.to_vec()).map_err(|_| BROKEN)
}

/// What is left to read.
struct Cut<'a>(&'a [u8]);

impl<'a> Cut<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes: [u8; 2] = self.take(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }

    fn short_block(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(usize::from(length))
    }

    fn long_block(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(value: usize) -> [u8; 2] {
        u16::try_from(value).unwrap().to_be_bytes()
    }

    pub(crate) fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &number(body.len()), body].concat()
    }

    pub(crate) fn server_name_extension(name: &str) -> Vec<u8> {
        let entry = [&[0][..], &number(name.len()), name.as_bytes()].concat();
        extension(SERVER_NAME, &[&number(entry.len())[..], &entry].concat())
    }

    /// The handshake message, cut into records of `size` bytes.
    pub(crate) fn hello(extensions: &[Vec<u8>], size: usize) -> Vec<u8> {
        let extensions = extensions.concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend(number(extensions.len()));
        body.extend(&extensions);
        let mut message = vec![CLIENT_HELLO, 0];
        message.extend(number(body.len()));
        message.extend(body);
        records(&message, size)
    }

    pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
        message
            .chunks(size)
            .flat_map(|part| [&[HANDSHAKE, 3, 1][..], &number(part.len()), part].concat())
            .collect()
    }

    fn found(bytes: &[u8]) -> Hello {
        match scan(bytes) {
            Scan::Found(hello) => hello,
            other @ (Scan::Need(_) | Scan::Malformed(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_name_is_found_among_other_extensions() {
        let bytes = hello(&[extension(43, &[2, 3, 4]), server_name_extension("Api.Example")], 4096);
        assert_eq!(
            found(&bytes),
            Hello { name: Some("Api.Example".to_owned()), encrypted: false, early: false, end: bytes.len() }
        );
    }

    #[test]
    fn no_name_and_no_extensions_are_fine() {
        assert_eq!(found(&hello(&[], 4096)).name, None);
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        let message = [&[1, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat();
        assert_eq!(found(&records(&message, 4096)).name, None);
    }

    #[test]
    fn early_data_and_an_encrypted_hello_are_noticed() {
        assert!(found(&hello(&[extension(EARLY_DATA, &[])], 4096)).early);
        assert!(found(&hello(&[extension(ENCRYPTED_CLIENT_HELLO, &[0; 40])], 4096)).encrypted);
        assert!(found(&hello(&[extension(ENCRYPTED_SERVER_NAME, &[0; 40])], 4096)).encrypted);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_malformed() {
        let twice = hello(&[server_name_extension("a.example"), server_name_extension("b.example")], 4096);
        assert_eq!(scan(&twice), Scan::Malformed("two server names"));
        let nul = hello(&[server_name_extension("a.example\0b")], 4096);
        assert_eq!(scan(&nul), Scan::Malformed("the server name is malformed"));
        let mut interrupted = hello(&[server_name_extension("a.example")], 20);
        interrupted[25] = 0x14;
        assert!(matches!(scan(&interrupted), Scan::Malformed(_)));
        assert!(matches!(scan(&[HANDSHAKE, 3, 1, 0, 0]), Scan::Malformed(_)));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            scan(&bytes);
            scan(&records(&[&[CLIENT_HELLO, 0, 4][..], &bytes].concat(), 300));
        }

        #[test]
        fn a_name_is_found_however_it_is_cut(
            name in "[a-z0-9-]{1,20}(\\.[a-z0-9-]{1,20}){0,5}",
            before in proptest::collection::vec(any::<u8>(), 0..600),
            size in 1_usize..700,
            after in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let whole = hello(&[extension(51, &before), server_name_extension(&name)], size);
            let expected = Hello { name: Some(name), encrypted: false, early: false, end: whole.len() };
            for count in 0..whole.len() {
                match scan(&whole[..count]) {
                    Scan::Need(need) => prop_assert!(need > count && need <= whole.len()),
                    other @ (Scan::Found(_) | Scan::Malformed(_)) => prop_assert!(false, "{count} bytes: {other:?}"),
                }
            }
            prop_assert_eq!(scan(&[whole, after].concat()), Scan::Found(expected));
        }

        #[test]
        fn a_flipped_byte_never_panics(at in 0_usize..200, to in any::<u8>()) {
            let mut bytes = hello(&[extension(51, &[1; 60]), server_name_extension("a.example")], 90);
            let at = at % bytes.len();
            bytes[at] = to;
            scan(&bytes);
        }
    }
}
