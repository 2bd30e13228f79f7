//! A frame: 24 bytes of fixed little-endian fields, then the bytes. Pure; the writer is in `write`, the reader in
//! the store.
//!
//! | at | field |
//! |---|---|
//! | 0 | magic and version, u16 |
//! | 2 | stream, u8 |
//! | 3 | reserved, u8, zero |
//! | 4 | length of the bytes, u32 |
//! | 8 | sequence, u64: the first is 1, each one is the last plus one |
//! | 16 | milliseconds since the start, u64 |

/// "S" and version 1.
const MAGIC: u16 = 0x5301;
pub const HEADER: usize = 24;
/// What one frame holds at most: a reader must be able to hold one.
pub const FRAME_LIMIT: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// One decision of a live wall, as a line of JSON.
    Event,
    /// No bytes, and nothing after it.
    End,
}

impl Stream {
    const fn code(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Event => 3,
            Self::End => 255,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            3 => Some(Self::Event),
            255 => Some(Self::End),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub stream: Stream,
    /// At most [`FRAME_LIMIT`].
    pub length: u32,
    pub sequence: u64,
    pub millis: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[2] = self.stream.code();
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.millis.to_le_bytes());
        bytes
    }

    /// None for anything that [`Header::encode`] doesn't make.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let [m0, m1, stream, reserved, l0, l1, l2, l3, rest @ ..] = *bytes;
        let (sequence, millis) = rest.split_first_chunk()?;
        let header = Self {
            stream: Stream::from_code(stream)?,
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            sequence: u64::from_le_bytes(*sequence),
            millis: u64::from_le_bytes(millis.try_into().ok()?),
        };
        let fits = usize::try_from(header.length).is_ok_and(|length| length <= FRAME_LIMIT);
        let ends = header.stream != Stream::End || header.length == 0;
        (u16::from_le_bytes([m0, m1]) == MAGIC && reserved == 0 && fits && ends).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_does_not_change() {
        let header = Header { stream: Stream::Stderr, length: 0x0102, sequence: 3, millis: 4 };
        let bytes = [1, 0x53, 2, 0, 2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(header.encode(), bytes);
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same(bytes in any::<[u8; HEADER]>(), valid in any::<bool>()) {
            let mut bytes = bytes;
            if valid {
                bytes[..4].copy_from_slice(&[1, 0x53, 1, 0]);
                bytes[6..8].fill(0);
            }
            match Header::decode(&bytes) {
                Some(header) => prop_assert_eq!(header.encode(), bytes),
                None => prop_assert!(!valid),
            }
        }
    }
}
