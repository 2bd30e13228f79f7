use super::*;
use proptest::prelude::*;

/// Any bytes, in chunks that the bytes choose, must be decoded without a panic, in bounded memory, to the same
/// items as in one piece; what is a frame is read as a message too. `tests/fuzz` asks for more.
fn survive(bytes: &[u8]) {
    const LIMIT: usize = 512;
    let Some((seed, bytes)) = bytes.split_first() else { return };
    let whole = drive(bytes, bytes.len().max(1), LIMIT);
    let chunks = drive(bytes, usize::from(*seed).max(1), LIMIT);
    assert_eq!(whole, chunks, "the chunks of a stream changed its frames");
    for frame in whole.into_iter().flatten() {
        match crate::message::read(&frame) {
            // Either is an answer.
            Ok(_) | Err(_) => {}
        }
    }
}

fn drive(bytes: &[u8], chunk: usize, limit: usize) -> Vec<Item> {
    let mut codec = Codec::new(limit);
    let (mut source, mut items) = (BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(chunk) {
        source.put_slice(chunk);
        while let Ok(Some(item)) = codec.decode(&mut source) {
            items.push(item);
        }
        assert!(source.len() <= limit + HEAD, "{} bytes are kept", source.len());
    }
    while let Ok(Some(item)) = codec.decode_eof(&mut source) {
        items.push(item);
    }
    assert!(source.is_empty(), "bytes are left at the end");
    items
}

fn lines(bytes: &[u8], limit: usize) -> Vec<Item> {
    let items = drive(bytes, bytes.len().max(1), limit);
    for chunk in 1..bytes.len().min(9) {
        assert_eq!(drive(bytes, chunk, limit), items, "in chunks of {chunk}");
    }
    items
}

fn counted(texts: &[&str]) -> Vec<u8> {
    let mut codec = Codec::with_framing(MAX_FRAME, Framing::Lengths);
    let mut bytes = BytesMut::new();
    for text in texts {
        codec.encode(text, &mut bytes).unwrap();
    }
    bytes.to_vec()
}

fn ok(texts: &[&str]) -> Vec<Item> {
    texts.iter().map(|text| Ok((*text).to_owned())).collect()
}

#[test]
fn lines_are_frames_and_blank_ones_are_nothing() {
    assert_eq!(lines(b"{}\n\n \r\n[1]\n{\"a\":1}", 64), ok(&["{}", "[1]", "{\"a\":1}"]));
    assert_eq!(lines(b" {}\r\n", 64), ok(&["{}\r"]));
    assert_eq!(lines(b"\n\n \t", 64), ok(&[]));
}

#[test]
fn lengths_are_frames() {
    assert_eq!(lines(&counted(&["{}", "[\n1]", "{\"a\":1}"]), 64), ok(&["{}", "[\n1]", "{\"a\":1}"]));
}

#[test]
fn a_long_length_is_told_by_its_first_byte_too() {
    let mut bytes = vec![1, 0, 0, 0];
    bytes.extend(vec![b' '; MAX_FRAME]);
    let items = drive(&bytes, 1 << 20, MAX_FRAME);
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap().len(), MAX_FRAME);
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_told_once() {
    let long = "x".repeat(100);
    let bytes = format!("{{}}\n{long}\n[1]\n{long}{long}");
    let too_long = || Err(FrameError::TooLong { limit: 64 });
    let expected = [Ok("{}".to_owned()), too_long(), Ok("[1]".to_owned()), too_long()];
    assert_eq!(lines(bytes.as_bytes(), 64), expected);
    let fits = format!("{}\n", "x".repeat(64));
    assert!(lines(fits.as_bytes(), 64)[0].is_ok());
}

#[test]
fn a_wrong_length_ends_the_connection() {
    let mut bytes = counted(&["{}"]);
    bytes.extend([0, 0, 0, 65]);
    bytes.extend(counted(&["{}"]));
    let expected = [Ok("{}".to_owned()), Err(FrameError::Announced { length: 65, limit: 64 })];
    assert_eq!(lines(&bytes, 64), expected);
    assert_eq!(lines(&[0, 0, 0, 0, b'{', b'}'], 64), [Err(FrameError::Empty)]);
    assert_eq!(lines(&[8, 0, 0, 0], 64), [Err(FrameError::Announced { length: 8 << 24, limit: 64 })]);
}

#[test]
fn the_other_framing_later_ends_the_connection() {
    let mut bytes = b"{}\n".to_vec();
    bytes.extend(counted(&["{}"]));
    assert_eq!(lines(&bytes, 64), [Ok("{}".to_owned()), Err(FrameError::Mixed { began: Framing::Lines })]);
    let mut bytes = counted(&["{}"]);
    bytes.extend(b"{}\n{}\n");
    assert_eq!(lines(&bytes, 64), [Ok("{}".to_owned()), Err(FrameError::Mixed { began: Framing::Lengths })]);
}

#[test]
fn what_is_no_text_is_told_and_the_next_frame_is_read() {
    let items = lines(b"{\"\xff\"}\n{\"\0\"}\n{}\n", 64);
    assert_eq!(items, [Err(FrameError::NotUtf8), Err(FrameError::Nul), Ok("{}".to_owned())]);
    let deep = |depth: usize| format!("{}{}\n", "[".repeat(depth), "]".repeat(depth));
    let bytes = format!("{}{}", deep(NESTING), deep(NESTING + 1));
    let items = lines(bytes.as_bytes(), 1024);
    assert!(items[0].is_ok() && items[1] == Err(FrameError::TooDeep), "{items:?}");
    // As deep as the parser goes, and not one deeper.
    assert!(serde_json::from_str::<serde_json::Value>(&deep(NESTING)).is_ok());
    assert!(serde_json::from_str::<serde_json::Value>(&deep(NESTING + 1)).is_err());
}

#[test]
fn brackets_in_strings_are_not_nesting() {
    assert_eq!(nesting(br#"{"a":"[[[\"[[","b\\":[1]}"#), 2);
    assert_eq!(nesting(b"]]][["), 2);
}

#[test]
fn a_frame_that_is_cut_off_is_told() {
    let mut bytes = counted(&["{}"]);
    bytes.pop();
    assert_eq!(lines(&bytes, 64), [Err(FrameError::CutOff)]);
    assert_eq!(lines(&[0, 0], 64), [Err(FrameError::CutOff)]);
}

#[test]
fn a_newline_between_tokens_does_not_end_a_line() {
    let mut bytes = BytesMut::new();
    Codec::new(64).encode("{\n\"a\":\n1}", &mut bytes).unwrap();
    assert_eq!(&bytes[..], b"{ \"a\": 1}\n");
    assert!(Codec::new(4).encode("{    }", &mut bytes).is_err());
}

#[test]
fn the_other_direction_speaks_what_was_heard() {
    let mut heard = Codec::new(64);
    let mut spoken = heard.other_side();
    heard.decode(&mut BytesMut::from(&counted(&["{}"])[..])).unwrap().unwrap().unwrap();
    let mut bytes = BytesMut::new();
    spoken.encode("{}", &mut bytes).unwrap();
    assert_eq!(&bytes[..], [0, 0, 0, 2, b'{', b'}']);
}

#[test]
fn a_buffer_that_was_large_is_given_back() {
    let mut codec = Codec::new(MAX_FRAME);
    let mut source = BytesMut::from(format!("\"{}\"\n{{", "x".repeat(4 << 20)).as_bytes());
    codec.decode(&mut source).unwrap().unwrap().unwrap();
    assert!(source.capacity() <= KEPT_CAPACITY, "{}", source.capacity());
    assert_eq!(&source[..], b"{");
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    (prop::collection::vec(leaf, 0..4)).prop_map(|items| format!("[{}]", items.join(",")))
}

proptest! {
    #[test]
    fn any_chunks_of_a_stream_are_the_same_frames(
        texts in prop::collection::vec(json(), 1..8),
        framing in prop_oneof![Just(Framing::Lines), Just(Framing::Lengths)],
        cuts in prop::collection::vec(1_usize..40, 1..60),
    ) {
        let mut bytes = BytesMut::new();
        let mut writer = Codec::with_framing(MAX_FRAME, framing);
        for text in &texts {
            writer.encode(text, &mut bytes).unwrap();
        }
        let (mut codec, mut source, mut items) = (Codec::new(MAX_FRAME), BytesMut::new(), Vec::new());
        let mut cuts = cuts.into_iter().cycle();
        while !bytes.is_empty() {
            let cut = cuts.next().unwrap().min(bytes.len());
            source.put_slice(&bytes.split_to(cut));
            while let Some(item) = codec.decode(&mut source).unwrap() {
                items.push(item.unwrap());
            }
        }
        prop_assert_eq!(codec.decode_eof(&mut source).unwrap(), None);
        prop_assert_eq!(items, texts);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        survive(&bytes);
    }

    /// More like the real thing: pieces of frames in any order.
    #[test]
    fn any_pieces_are_survived(
        seed in any::<u8>(),
        pieces in prop::collection::vec(prop_oneof![
            Just(b"{\"jsonrpc\":\"2.0\",".to_vec()), Just(b"\"id\":1,\"method\":\"m\"}".to_vec()),
            Just(b"\n".to_vec()), Just(vec![0, 0, 0, 2]), Just(b"{}".to_vec()), Just(vec![0, 0, 2, 1]),
            Just(vec![b'['; 200]), Just(vec![b' '; 300]), Just(vec![b'x'; 400]), Just(vec![0xff]),
        ], 0..40),
    ) {
        let mut bytes = vec![seed];
        bytes.extend(pieces.concat());
        survive(&bytes);
    }
}
