//! The initial file system's archive format ("newc"), written by hand: some headers in hexadecimal. It
//! knows regular files and directories, which is all that the initrd in `kernel.rs` holds.

use anyhow::{Context, Result};

const MAGIC: &str = "070701";
const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
/// The entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(crate) fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIRECTORY, &[])
    }

    pub(crate) fn executable(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name, EXECUTABLE, content)
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry(TRAILER, 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size =
            u32::try_from(content.len()).with_context(|| format!("{name} is too big for an initrd"))?;
        let name_size =
            u32::try_from(name.len() + 1).with_context(|| format!("the name {name} is too long"))?;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name size, checksum
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(MAGIC.as_bytes());
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_a_name_and_a_padded_content() {
        let mut archive = Archive::default();
        archive.executable("ab", b"12345").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[110..113], b"ab\0");
        // 110 bytes of header and 3 of name are padded to 116.
        assert_eq!(&bytes[116..124], b"12345\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
