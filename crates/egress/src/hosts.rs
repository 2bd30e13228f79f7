//! The host's own `/etc/hosts`, read for one name. The C library would read it too, but only together with its
//! search list, which makes another name of the one that was listed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

/// Lists of thousands of blocked names are some megabytes; what comes after this is not read.
const FILE_MOST: u64 = 16 * 1024 * 1024;
/// Of one line; a longer one is read in pieces, of which only the first can start with an address.
const LINE_MOST: u64 = 64 * 1024;
/// Answers; see `resolve`, which looks at fewer.
const ADDRESSES: usize = 64;

/// The addresses that `file` has for exactly this name; none where the file is missing.
pub(crate) fn addresses(file: &Path, name: &str) -> io::Result<Vec<IpAddr>> {
    match File::open(file) {
        Ok(file) => read(&mut BufReader::new(file.take(FILE_MOST)), name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read(text: &mut impl BufRead, name: &str) -> io::Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    let mut line = Vec::new();
    let mut starts = true;
    // Each turn reads at least a byte of the bounded file, or ends the loop.
    while found.len() < ADDRESSES && text.by_ref().take(LINE_MOST).read_until(b'\n', &mut line)? > 0 {
        if starts {
            found.extend(address(&line, name));
        }
        starts = line.ends_with(b"\n");
        line.clear();
    }
    Ok(found)
}

/// The line's address, if it has the name among its own.
fn address(line: &[u8], name: &str) -> Option<IpAddr> {
    let line = line.split(|byte| *byte == b'#').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let plain = |word: &str| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name);
    words.any(plain).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, name: &str) -> Vec<String> {
        let found = read(&mut text.as_bytes(), name).unwrap();
        found.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn exact_names_are_found_on_any_line() {
        let text = "# one.test\n127.0.0.1\tlocalhost localhost.localdomain\n\n::1 localhost # two.test\r\n\
                    192.0.2.1 One.Test one two.test.\n192.0.2.2 two.test#one.test\nfe80::1%lo zone.test\n\
                    nonsense one.test\n192.0.2.9";
        assert_eq!(found(text, "localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found(text, "one.test"), ["192.0.2.1"]);
        assert_eq!(found(text, "two.test"), ["192.0.2.1", "192.0.2.2"]);
        for other in ["test", "one.test.corp", "zone.test", "192.0.2.1", "local", ""] {
            assert_eq!(found(text, other), Vec::<String>::new(), "{other}");
        }
    }

    #[test]
    fn odd_files_are_bounded() {
        assert_eq!(addresses(Path::new("/nowhere/at/all"), "a").unwrap(), Vec::<IpAddr>::new());
        assert_eq!(found(&"192.0.2.1 a.test\n".repeat(1000), "a.test").len(), ADDRESSES);
        // What stands behind a line that is too long is no line of its own.
        let long = format!("192.0.2.1 {}192.0.2.2 a.test\n192.0.2.3 a.test\n", "x".repeat(64 * 1024 - 10));
        assert_eq!(found(&long, "a.test"), ["192.0.2.3"]);
        let bytes = [&b"192.0.2.1 \xff a.test\n"[..], b"192.0.2.2 a.test # \xff\n"].concat();
        assert_eq!(read(&mut &bytes[..], "a.test").unwrap(), [IpAddr::from([192, 0, 2, 2])]);
    }
}
