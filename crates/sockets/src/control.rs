//! Control messages: descriptors are taken from the caller and sent as ours; credentials, which the kernel
//! would replace by the supervisor's, are refused; of a protocol's options those are sent that need no capability.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::family::Family;
use crate::process::Process;

const HEAD: usize = 16;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
/// `SCM_MAX_FD`.
const DESCRIPTORS_MAX: usize = 253;
/// Over all calls that have not ended: a tree that blocks many sends must not use up our table.
const PASSING_MAX: usize = 256;

/// Control bytes fit to be sent by us, and the descriptors that they name.
#[derive(Debug)]
pub(crate) struct Control<'a> {
    pub(crate) bytes: Vec<u8>,
    held: Vec<OwnedFd>,
    passing: &'a AtomicUsize,
}

impl Drop for Control<'_> {
    fn drop(&mut self) {
        self.passing.fetch_sub(self.held.len(), Ordering::Relaxed);
    }
}

/// One message as it stands in the bytes.
#[derive(Debug, PartialEq, Eq)]
struct Part<'b> {
    level: i32,
    kind: i32,
    body: &'b [u8],
}

/// Splits as `for_each_cmsghdr` does: a length that does not fit is an error, a rest too short for a head is not.
fn parts(bytes: &[u8]) -> Result<Vec<Part<'_>>, Errno> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let Some((head, _)) = rest.split_at_checked(HEAD) {
        let [l0, l1, l2, l3, l4, l5, l6, l7, v0, v1, v2, v3, k0, k1, k2, k3] = *head else { break };
        let length = u64::from_ne_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let length = usize::try_from(length).map_err(|_| Errno::INVAL)?;
        let body = rest.get(HEAD..length).ok_or(Errno::INVAL)?;
        found.push(Part {
            level: i32::from_ne_bytes([v0, v1, v2, v3]),
            kind: i32::from_ne_bytes([k0, k1, k2, k3]),
            body,
        });
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(found)
}

impl<'a> Control<'a> {
    pub(crate) fn translate(
        written: &[u8],
        family: Family,
        process: &Process,
        passing: &'a AtomicUsize,
    ) -> Result<Self, Errno> {
        let mut control = Self { bytes: Vec::with_capacity(written.len()), held: Vec::new(), passing };
        for part in parts(written)? {
            match (part.level, part.kind, family) {
                (SOL_SOCKET, SCM_RIGHTS, Family::Unix) => control.take(part.body, process)?,
                (SOL_SOCKET, SCM_CREDENTIALS, _) => return Err(Errno::PERM),
                (SOL_SOCKET, SCM_RIGHTS, Family::Inet | Family::Netlink) | (SOL_SOCKET, _, Family::Unix) => {
                    return Err(Errno::INVAL);
                }
                (level, kind, family) if family.may_attach(level, kind) => {
                    control.push(level, kind, part.body);
                }
                _ => return Err(Errno::PERM),
            }
        }
        Ok(control)
    }

    fn take(&mut self, body: &[u8], process: &Process) -> Result<(), Errno> {
        let mut ours = Vec::with_capacity(body.len());
        for number in body.chunks_exact(4) {
            let [a, b, c, d] = *number else { break };
            let number = i32::from_ne_bytes([a, b, c, d]);
            if number < 0 {
                return Err(Errno::BADF);
            }
            if self.held.len() == DESCRIPTORS_MAX {
                return Err(Errno::INVAL);
            }
            if self.passing.fetch_add(1, Ordering::Relaxed) >= PASSING_MAX {
                self.passing.fetch_sub(1, Ordering::Relaxed);
                return Err(Errno::TOOMANYREFS);
            }
            match process.take(number) {
                Ok(fd) => {
                    ours.extend_from_slice(&fd.as_raw_fd().to_ne_bytes());
                    self.held.push(fd);
                }
                Err(errno) => {
                    self.passing.fetch_sub(1, Ordering::Relaxed);
                    return Err(errno);
                }
            }
        }
        self.push(SOL_SOCKET, SCM_RIGHTS, &ours);
        Ok(())
    }

    fn push(&mut self, level: i32, kind: i32, body: &[u8]) {
        let length = u64::try_from(HEAD + body.len()).unwrap_or(u64::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&level.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(length: u64, level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
        [&length.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), body].concat()
    }

    #[test]
    fn lengths_must_fit() {
        assert_eq!(parts(b""), Ok(vec![]));
        assert_eq!(parts(&[0; 15]), Ok(vec![]), "too short for a head");
        for length in [0, 15, 21, u64::MAX, 1 << 32] {
            assert_eq!(parts(&written(length, 1, 1, &[0; 4])), Err(Errno::INVAL), "{length}");
        }
        let two = [written(17, 1, 2, &[7; 8]), written(20, 3, 4, &[9; 4])].concat();
        assert_eq!(
            parts(&two),
            Ok(vec![Part { level: 1, kind: 2, body: &[7] }, Part { level: 3, kind: 4, body: &[9; 4] }])
        );
    }

    #[test]
    fn what_is_pushed_is_read_back() {
        let passing = AtomicUsize::new(0);
        let mut control = Control { bytes: vec![], held: vec![], passing: &passing };
        control.push(41, 50, &[1, 2, 3]);
        control.push(0, 8, &[4; 12]);
        assert_eq!(
            parts(&control.bytes),
            Ok(vec![
                Part { level: 41, kind: 50, body: &[1, 2, 3] },
                Part { level: 0, kind: 8, body: &[4; 12] }
            ])
        );
    }
}
