//! A file of output as its reader finds it: whole, cut, damaged, or made up by the process that had it to write to.

use std::io::Write as _;

use stockade_store::output::{Chunk, Cursor, HEADER, Header, Piece, READ_LIMIT, Rest, Stream};
use stockade_store::{ExecutionId, Output};

use crate::must;

/// Answers of a byte, of a few frames, and of all there is.
const LIMITS: [usize; 3] = [1, 300, READ_LIMIT];
/// Sequences from which a reader comes back.
const AGAIN: u64 = 6;

pub(crate) fn check(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER>()
        && let Some(read) = Header::decode(header)
    {
        assert_eq!(read.encode(), *header);
    }
    let (frames, rest) = model(bytes);
    let directory = must(tempfile::tempdir(), "a directory");
    let output = must(Output::open(directory.path()), "open");
    let id = ExecutionId::new();
    must(must(output.create(&id), "create").write_all(bytes), "write");
    for limit in LIMITS {
        assert_eq!(all(&output, &id, limit), (frames.clone(), rest), "in answers of {limit}");
    }
    for sequence in 0..AGAIN {
        let piece = read(&output, &id, Cursor::after(sequence), READ_LIMIT);
        let from = usize::try_from(sequence).unwrap_or(usize::MAX);
        assert_eq!(piece.chunks, frames.get(from..).unwrap_or_default(), "after {sequence}");
        assert_eq!(piece.rest, rest, "after {sequence}");
    }
    must(output.seal(&id), "seal");
    assert_eq!(all(&output, &id, READ_LIMIT), (frames.clone(), Rest::Ended), "once it is sealed");
    must(output.seal(&id), "seal again");
    assert_eq!(all(&output, &id, READ_LIMIT), (frames, Rest::Ended), "once it is sealed twice");
}

/// What the format says of these bytes, read in the plainest way.
fn model(bytes: &[u8]) -> (Vec<Chunk>, Rest) {
    let (mut chunks, mut rest) = (Vec::new(), bytes);
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let Some(header) = Header::decode(header) else { return (chunks, Rest::Damaged) };
        if usize::try_from(header.sequence).ok() != Some(chunks.len() + 1) {
            return (chunks, Rest::Damaged);
        }
        let Some((body, behind)) = behind.split_at_checked(usize::try_from(header.length).unwrap_or(0))
        else {
            break;
        };
        let Header { stream, sequence, millis, .. } = header;
        if stream == Stream::End {
            return (chunks, Rest::Ended);
        }
        chunks.push(Chunk { sequence, stream, millis, bytes: body.to_vec() });
        rest = behind;
    }
    (chunks, Rest::Open)
}

fn read(output: &Output, id: &ExecutionId, cursor: Cursor, limit: usize) -> Piece {
    must(must(output.read(id, cursor, limit), "read").ok_or("it is gone"), "a file")
}

/// In as many answers as it takes; each but the last has a chunk at least.
fn all(output: &Output, id: &ExecutionId, limit: usize) -> (Vec<Chunk>, Rest) {
    let (mut chunks, mut cursor) = (Vec::new(), Cursor::START);
    loop {
        let piece = read(output, id, cursor, limit);
        let bytes: usize = piece.chunks.iter().map(|chunk| chunk.bytes.len() + HEADER).sum();
        assert!(bytes <= limit || piece.chunks.len() == 1, "{bytes} bytes for {limit}");
        assert!(piece.rest != Rest::More || piece.next.sequence > cursor.sequence, "a reader stands still");
        cursor = piece.next;
        chunks.extend(piece.chunks);
        if piece.rest != Rest::More {
            return (chunks, piece.rest);
        }
    }
}
