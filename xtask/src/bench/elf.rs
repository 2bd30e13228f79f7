//! Enough of the ELF format to say whether a program is static. It trusts nothing in the file.

use anyhow::{Context, Result, bail};

/// `PT_INTERP`: the program asks for a dynamic loader.
const INTERPRETER: u32 = 3;
const MAGIC: &[u8] = b"\x7fELF\x02\x01";

// Offsets in the header of a 64-bit file.
const TABLE_OFFSET: usize = 32;
const ENTRY_SIZE: usize = 54;
const ENTRY_COUNT: usize = 56;

/// How many program headers name an interpreter.
pub(super) fn interpreters(file: &[u8]) -> Result<usize> {
    if !file.starts_with(MAGIC) {
        bail!("not a little-endian 64-bit ELF file");
    }
    let table = usize::try_from(u64::from_le_bytes(field(file, TABLE_OFFSET)?))?;
    let size = usize::from(u16::from_le_bytes(field(file, ENTRY_SIZE)?));
    let count = usize::from(u16::from_le_bytes(field(file, ENTRY_COUNT)?));
    let mut found = 0;
    for entry in 0..count {
        let at = entry.checked_mul(size).and_then(|offset| table.checked_add(offset));
        let kind = u32::from_le_bytes(field(file, at.context("a program header beyond the file")?)?);
        found += usize::from(kind == INTERPRETER);
    }
    Ok(found)
}

fn field<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = at.checked_add(N).and_then(|end| file.get(at..end));
    let bytes = bytes.with_context(|| format!("the ELF file ends before byte {at}"))?;
    Ok(<[u8; N]>::try_from(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_has_one_interpreter() {
        let own = std::fs::read("/bin/true").unwrap();
        assert_eq!(interpreters(&own).unwrap(), 1);
    }

    #[test]
    fn a_file_without_program_headers_has_none_and_a_cut_one_is_an_error() {
        let mut file = vec![0; 64];
        file[..MAGIC.len()].copy_from_slice(MAGIC);
        assert_eq!(interpreters(&file).unwrap(), 0);
        file[ENTRY_COUNT] = 1;
        file[TABLE_OFFSET] = 64;
        assert!(interpreters(&file).is_err());
        assert!(interpreters(b"#!/bin/sh").is_err());
    }
}
