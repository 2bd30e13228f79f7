use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use proptest::prelude::*;

use super::*;

fn output() -> (tempfile::TempDir, Output, ExecutionId) {
    let directory = tempfile::tempdir().unwrap();
    let output = Output::open(&directory.path().join("output")).unwrap();
    (directory, output, ExecutionId::new())
}

fn texts(piece: &Piece) -> Vec<&str> {
    piece.chunks.iter().map(|chunk| std::str::from_utf8(&chunk.bytes).unwrap()).collect()
}

#[test]
fn what_is_written_is_read_by_cursor_while_it_grows() {
    let (_directory, output, id) = output();
    let mut frames = Frames::new(output.create(&id).unwrap(), Instant::now());
    let read = |cursor| output.read(&id, cursor, 1 << 16).unwrap().unwrap();
    let empty = read(Cursor::START);
    assert_eq!((empty.chunks.len(), empty.rest), (0, Rest::Open));
    frames.append(Stream::Stdout, b"one").unwrap();
    frames.append(Stream::Stderr, b"two").unwrap();
    let first = read(empty.next);
    assert_eq!((texts(&first), first.rest), (vec!["one", "two"], Rest::Open));
    assert_eq!(first.chunks[1].stream, Stream::Stderr);
    frames.append(Stream::Stdout, b"three").unwrap();
    frames.end().unwrap();
    for cursor in [first.next, Cursor::after(2)] {
        let second = read(cursor);
        assert_eq!((texts(&second), second.rest), (vec!["three"], Rest::Ended));
        assert_eq!(second.next.sequence, 3);
    }
    assert_eq!(read(Cursor::after(3)).rest, Rest::Ended);
    assert_eq!(read(Cursor::after(99)).rest, Rest::Ended);
    assert!(frames.append(Stream::Stdout, b"late").is_err());
    assert!(output.create(&id).is_err(), "one file per execution");
}

#[test]
fn an_answer_is_bounded_and_goes_on() {
    let (_directory, output, id) = output();
    let mut frames = Frames::new(output.create(&id).unwrap(), Instant::now());
    let large = vec![b'x'; FRAME_LIMIT * 2 + 5];
    assert_eq!(frames.append(Stream::Stdout, &large).unwrap(), 3);
    frames.end().unwrap();
    let (mut cursor, mut bytes, mut answers) = (Cursor::START, Vec::new(), 0);
    loop {
        let piece = output.read(&id, cursor, 10).unwrap().unwrap();
        assert!(piece.chunks.len() <= 1);
        bytes.extend(piece.chunks.into_iter().flat_map(|chunk| chunk.bytes));
        (cursor, answers) = (piece.next, answers + 1);
        assert!(answers < 10);
        if piece.rest == Rest::Ended {
            break;
        }
    }
    assert_eq!(bytes, large);
}

#[test]
fn a_dead_writers_file_is_sealed() {
    let (_directory, output, id) = output();
    let mut frames = Frames::new(output.create(&id).unwrap(), Instant::now());
    frames.append(Stream::Stdout, b"whole").unwrap();
    let header = Header { stream: Stream::Stdout, length: 100, sequence: 2, millis: 0 }.encode();
    frames_file(&output, &id).write_all(&[&header[..], b"torn"].concat()).unwrap();
    assert_eq!(output.read(&id, Cursor::START, 100).unwrap().unwrap().rest, Rest::Open);
    for whole in [false, true] {
        let sealed = output.seal(&id).unwrap();
        assert_eq!((sealed.bytes, sealed.whole.is_some()), (output.size(&id), whole));
        let piece = output.read(&id, Cursor::START, 100).unwrap().unwrap();
        assert_eq!((texts(&piece), piece.rest), (vec!["whole"], Rest::Ended));
    }
    assert!(output.seal(&ExecutionId::new()).is_err());
}

#[test]
fn a_short_output_that_has_its_end_is_read_whole() {
    let (_directory, output, _) = output();
    let short = usize::try_from(SHORT).unwrap() - 3 * HEADER;
    for (length, is_short) in [(0, true), (short - 1, true), (short, true), (short + 1, false)] {
        let id = ExecutionId::new();
        let mut frames = Frames::new(output.create(&id).unwrap(), Instant::now());
        frames.append(Stream::Stdout, &vec![b'x'; length.min(1000)]).unwrap();
        frames.append(Stream::Stderr, &vec![b'y'; length.saturating_sub(1000)]).unwrap();
        frames.end().unwrap();
        let sealed = output.seal(&id).unwrap();
        assert_eq!(sealed.bytes, output.size(&id));
        assert_eq!(sealed.whole.is_some(), is_short, "{length}");
        if let Some(whole) = sealed.whole {
            assert_eq!(whole.piece, output.read(&id, Cursor::START, READ_LIMIT).unwrap().unwrap());
            assert_eq!(whole.frames, fs::read(output.path(&id)).unwrap());
        }
    }
}

/// Another execution's bytes are never read as those of an earlier one, whatever the file was before.
#[test]
fn a_file_is_used_again_and_nobody_reads_it_for_another() {
    let (directory, output, first) = output();
    let write = |id: &ExecutionId, text: &[u8]| {
        let mut frames = Frames::new(output.create(id).unwrap(), Instant::now());
        frames.append(Stream::Stdout, text).unwrap();
        frames.end().unwrap();
    };
    let inode = |id: &ExecutionId| fs::metadata(output.path(id)).unwrap().ino();
    write(&first, b"the first one's");
    let used = inode(&first);
    output.use_again(&first);
    assert_eq!(output.read(&first, Cursor::START, 100).unwrap(), None);
    let second = ExecutionId::new();
    write(&second, b"the second's");
    assert_eq!(inode(&second), used);
    assert_eq!(texts(&output.read(&second, Cursor::START, 100).unwrap().unwrap()), ["the second's"]);
    assert_eq!(output.read(&first, Cursor::START, 100).unwrap(), None);
    // Somebody has it open meanwhile, and reads what is another's by then.
    let opened = output.open_file(&second).unwrap();
    output.use_again(&second);
    let between = ExecutionId::new();
    write(&between, b"not for them");
    assert_eq!(inode(&between), used);
    let read = output.read_opened(&second, opened, Cursor::START, 100);
    assert_eq!(read.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    output.use_again(&between);
    // Somebody still writes to it: it is given to nobody.
    let blank = directory.path().join("output/blank");
    let [late] = &fs::read_dir(&blank).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..]
    else {
        panic!("one file waits")
    };
    fs::write(late, "late").unwrap();
    let third = ExecutionId::new();
    write(&third, b"third");
    assert_eq!(texts(&output.read(&third, Cursor::START, 100).unwrap().unwrap()), ["third"]);
    assert_eq!(fs::read_dir(&blank).unwrap().count(), 0);
    // Or it is gone: then one is made, and the next ones, too.
    output.use_again(&third);
    fs::remove_dir_all(&blank).unwrap();
    let fourth = ExecutionId::new();
    for id in [&fourth, &ExecutionId::new()] {
        write(id, b"made");
        assert_eq!(texts(&output.read(id, Cursor::START, 100).unwrap().unwrap()), ["made"]);
    }
    output.use_again(&fourth);
    assert!(fs::exists(output.path(&fourth)).unwrap(), "there is no place to wait in");
    fs::create_dir(&blank).unwrap();
    let third = fourth;
    // What an earlier daemon left is nobody's.
    output.use_again(&third);
    drop(Output::open(&directory.path().join("output")).unwrap());
    assert_eq!(fs::read_dir(&blank).unwrap().count(), 0);
}

fn frames_file(output: &Output, id: &ExecutionId) -> File {
    OpenOptions::new().append(true).open(output.path(id)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens to the file, a reader gets the whole frames before it and ends.
    #[test]
    fn a_cut_or_a_changed_byte_is_never_a_panic(
        lengths in prop::collection::vec(0_usize..200, 1..20),
        cut in any::<prop::sample::Index>(),
        change in prop::option::of((any::<prop::sample::Index>(), 1_u8..)),
    ) {
        let (_directory, output, id) = output();
        let mut frames = Frames::new(output.create(&id).unwrap(), Instant::now());
        for (length, letter) in lengths.iter().zip((b'a'..=b'z').cycle()) {
            frames.append(Stream::Stdout, &vec![letter; *length]).unwrap();
        }
        let path = output.path(&id);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(cut.index(bytes.len() + 1));
        if let Some((at, flip)) = change && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        fs::write(&path, &bytes).unwrap();
        let (mut cursor, mut sequence) = (Cursor::START, 0);
        for _ in 0..100 {
            let piece = output.read(&id, cursor, 64).unwrap().unwrap();
            for chunk in &piece.chunks {
                sequence += 1;
                prop_assert_eq!(chunk.sequence, sequence);
                if change.is_none() {
                    let lengths: Vec<usize> = lengths.iter().copied().filter(|length| *length > 0).collect();
                    prop_assert_eq!(chunk.bytes.len(), lengths[usize::try_from(sequence).unwrap() - 1]);
                }
            }
            cursor = piece.next;
            if piece.rest != Rest::More {
                break;
            }
        }
        output.seal(&id).unwrap();
        prop_assert_eq!(output.read(&id, cursor, 64).unwrap().unwrap().chunks.len(), 0);
    }
}
