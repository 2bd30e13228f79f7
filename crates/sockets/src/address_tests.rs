//! The parser against a model written from the kernel's own steps, one length and one byte at a time.

use proptest::prelude::*;

use super::*;

/// `move_addr_to_kernel` and `unix_validate_addr`, `unix_mkname_bsd`, read again and written naively.
#[derive(Debug, PartialEq)]
enum Model {
    Invalid,
    Unspecified,
    Unnamed,
    Abstract(Vec<u8>),
    Path(Vec<u8>),
}

fn model(bytes: &[u8]) -> Model {
    if bytes.len() < 2 {
        return Model::Invalid;
    }
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    if family == 0 {
        return Model::Unspecified;
    }
    if family != 1 || bytes.len() > 110 {
        return Model::Invalid;
    }
    if bytes.len() == 2 {
        return Model::Unnamed;
    }
    if bytes[2] == 0 {
        return Model::Abstract(bytes[3..].to_vec());
    }
    let mut path = Vec::new();
    for byte in &bytes[2..] {
        if *byte == 0 {
            break;
        }
        path.push(*byte);
    }
    Model::Path(path)
}

fn as_model(parsed: Result<Named<'_>, Errno>) -> Model {
    match parsed {
        Err(errno) => {
            assert_eq!(errno, Errno::INVAL);
            Model::Invalid
        }
        Ok(Named::Unspecified) => Model::Unspecified,
        Ok(Named::Unnamed) => Model::Unnamed,
        Ok(Named::Abstract(name)) => Model::Abstract(name.to_vec()),
        Ok(Named::Path(path)) => Model::Path(path.to_vec()),
    }
}

fn address(family: u16, path: &[u8]) -> Vec<u8> {
    [&family.to_ne_bytes()[..], path].concat()
}

fn any_address() -> impl Strategy<Value = Vec<u8>> {
    let family = prop_oneof![6 => Just(1_u16), 1 => Just(0), 1 => Just(2), 1 => any::<u16>()];
    let byte = prop_oneof![2 => Just(0_u8), 2 => Just(b'/'), 2 => Just(b'@'), 4 => any::<u8>()];
    let path = proptest::collection::vec(byte, 0..=126);
    let whole = (family, path).prop_map(|(family, path)| address(family, &path));
    prop_oneof![8 => whole, 1 => proptest::collection::vec(any::<u8>(), 0..4)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

    #[test]
    fn the_parser_agrees_with_the_model(bytes in any_address()) {
        prop_assert_eq!(as_model(parse(&bytes)), model(&bytes));
    }

    #[test]
    fn a_length_is_an_int(register in any::<u64>(), high in any::<u32>()) {
        let low = u32::try_from(register & 0xffff_ffff).expect("cut");
        let expected = if low <= 128 { Ok(usize::try_from(low).expect("small")) } else { Err(Errno::INVAL) };
        prop_assert_eq!(length(register), expected);
        prop_assert_eq!(length((register & 0xffff_ffff) | u64::from(high) << 32), expected);
    }

    #[test]
    fn numbers_are_written_as_they_are(number in any::<u32>()) {
        let digits = DecimalBytes::of(number);
        prop_assert_eq!(digits.as_slice().to_vec(), number.to_string().into_bytes());
    }
}

#[test]
fn lengths_at_the_edges() {
    for (register, expected) in [
        (0, Ok(0)),
        (1, Ok(1)),
        (2, Ok(2)),
        (110, Ok(110)),
        (111, Ok(111)),
        (128, Ok(128)),
        (129, Err(Errno::INVAL)),
        (0xffff_ffff, Err(Errno::INVAL)),
        (0x8000_0000, Err(Errno::INVAL)),
        (0xffff_ffff_0000_006e, Ok(110)),
        (u64::MAX, Err(Errno::INVAL)),
    ] {
        assert_eq!(length(register), expected, "{register:#x}");
    }
    for (field, expected) in [
        (0, Ok(0)),
        (128, Ok(128)),
        (129, Ok(128)),
        (0x7fff_ffff, Ok(128)),
        (0x8000_0000, Err(Errno::INVAL)),
        (0xffff_ffff, Err(Errno::INVAL)),
    ] {
        assert_eq!(message_length(field), expected, "{field:#x}");
    }
}

#[test]
fn names_at_the_edges() {
    let full = [b'x'; 108];
    assert_eq!(parse(&address(1, &full)), Ok(Named::Path(&full)), "108 bytes without a NUL");
    assert_eq!(parse(&address(1, &[b'x'; 109])), Err(Errno::INVAL));
    assert_eq!(parse(&address(1, b"")), Ok(Named::Unnamed));
    assert_eq!(parse(&address(1, b"\0")), Ok(Named::Abstract(b"")), "an abstract name of no bytes");
    assert_eq!(parse(&address(1, b"\0a\0b\0")), Ok(Named::Abstract(b"a\0b\0")), "NULs are part of it");
    assert_eq!(parse(&address(1, b"/a\0b")), Ok(Named::Path(b"/a")), "a path ends at its NUL");
    assert_eq!(parse(&address(1, b"@x")), Ok(Named::Path(b"@x")), "a file, not an abstract name");
    assert_eq!(parse(&address(2, b"/a")), Err(Errno::INVAL));
    assert_eq!(parse(&address(0, b"/a")), Ok(Named::Unspecified));
    assert_eq!(parse(&[1]), Err(Errno::INVAL));
    assert_eq!(parse(&[]), Err(Errno::INVAL));
}

#[test]
fn a_descriptor_is_an_address() {
    assert_eq!(Own::of_descriptor(7).as_slice(), address(1, b"7\0"));
    assert_eq!(Own::of_descriptor(i32::MAX).as_slice(), address(1, b"2147483647\0"));
}
