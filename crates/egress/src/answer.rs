//! What a TLS server's first bytes answer to a ClientHello: its choice, after which no plaintext hello is
//! taken any more, or the request for another one. It only lets the gate stop watching, so whatever
//! isn't surely a choice is none.

/// Enough for an alert or two and a ServerHello up to its random number, in small records too.
pub(crate) const MOST: usize = 256;

const RECORD_HEAD: usize = 5;
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const SERVER_HELLO: u8 = 2;
/// Type, length, version.
const BEFORE_RANDOM: usize = 6;
const RANDOM: usize = 32;
/// The random number that makes a ServerHello a HelloRetryRequest (RFC 8446, 4.1.3).
const RETRY: [u8; RANDOM] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet, or nothing that can be read.
    None,
    /// One more hello is wanted.
    Retry,
    Chosen,
}

/// `bytes` are the server's first ones.
pub(crate) fn answer(bytes: &[u8]) -> Answer {
    let mut message = Vec::new();
    let mut rest = bytes;
    // Each turn takes a record's head, so MOST bounds the turns.
    while let Some((&[kind, 3, _, high, low], more)) = rest.split_first_chunk::<RECORD_HEAD>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (body, after) = more.split_at_checked(length).unwrap_or((more, &[]));
        match kind {
            ALERT => {}
            HANDSHAKE => message.extend_from_slice(body),
            _ => return Answer::None,
        }
        if let Some(random) = message.get(BEFORE_RANDOM..BEFORE_RANDOM + RANDOM) {
            return match message.first() {
                Some(&SERVER_HELLO) if random == RETRY => Answer::Retry,
                Some(&SERVER_HELLO) => Answer::Chosen,
                Some(_) | None => Answer::None,
            };
        }
        rest = after;
    }
    Answer::None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::tests::records;
    use proptest::prelude::*;

    fn message(kind: u8, random: [u8; RANDOM]) -> Vec<u8> {
        [&[kind, 0, 0, 38, 3, 3][..], &random, &[0, 0x13, 1, 0]].concat()
    }

    #[test]
    fn a_choice_and_a_retry_are_told_apart_however_they_are_cut() {
        for size in [7, 20, 4096] {
            let chosen = records(&message(SERVER_HELLO, [5; RANDOM]), size);
            assert_eq!(answer(&chosen), Answer::Chosen);
            assert_eq!(answer(&[&[ALERT, 3, 3, 0, 2, 1, 112][..], &chosen].concat()), Answer::Chosen);
            assert_eq!(answer(&records(&message(SERVER_HELLO, RETRY), size)), Answer::Retry);
            assert_eq!(answer(&chosen[..40]), Answer::None);
        }
    }

    #[test]
    fn anything_else_is_no_answer() {
        assert_eq!(answer(&records(&message(6, [5; RANDOM]), 4096)), Answer::None);
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\nServer: something with a long name\r\n"), Answer::None);
        assert_eq!(answer(&[0x17; 60]), Answer::None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..MOST)) {
            answer(&bytes);
            answer(&records(&bytes, 11));
        }
    }
}
