//! Users and groups by name, as /etc/passwd and /etc/group have them. No other name service is asked: what they
//! need to be loaded, a program in one file does not have.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// A host with more users than this fits has numbers to name them by.
const LIMIT: u64 = 4 << 20;

pub(super) fn user(name: &str) -> Option<u32> {
    number_in(Path::new("/etc/passwd"), name)
}

pub(super) fn group(name: &str) -> Option<u32> {
    number_in(Path::new("/etc/group"), name)
}

/// Both files have the number in the third field.
fn number_in(path: &Path, name: &str) -> Option<u32> {
    lines(&read(path)?).find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let found = fields.next()? == name.as_bytes() && !name.is_empty();
        let number = fields.nth(1).filter(|_| found)?;
        std::str::from_utf8(number).ok()?.parse().ok()
    })
}

/// The groups that name a user as a member; its first group is known from the kernel.
pub(crate) fn groups_of(uid: u32) -> Vec<u32> {
    groups_in(Path::new("/etc/passwd"), Path::new("/etc/group"), uid)
}

fn groups_in(users: &Path, groups: &Path, uid: u32) -> Vec<u32> {
    let (Some(users), Some(groups)) = (read(users), read(groups)) else { return Vec::new() };
    let number = |field: &[u8]| std::str::from_utf8(field).ok().and_then(|text| text.parse::<u32>().ok());
    let names: Vec<&[u8]> = lines(&users)
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b':');
            let name = fields.next().filter(|name| !name.is_empty())?;
            (number(fields.nth(1)?) == Some(uid)).then_some(name)
        })
        .collect();
    let member = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let gid = number(fields.nth(2)?)?;
        let mut members = fields.next()?.split(|byte| *byte == b',');
        members.any(|member| names.contains(&member)).then_some(gid)
    };
    lines(&groups).filter_map(member).collect()
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LIMIT).read_to_end(&mut text).ok()?;
    Some(text)
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_fields() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("passwd");
        std::fs::write(&path, "root:x:0:0:root:/root:/bin/sh\n+@netgroup\nada:x:1000:1000\nbad:x:y\n\n")
            .unwrap();
        assert_eq!(number_in(&path, "root"), Some(0));
        assert_eq!(number_in(&path, "ada"), Some(1000));
        for none in ["", "roo", "bad", "+@netgroup", "x", "root:x"] {
            assert_eq!(number_in(&path, none), None, "{none}");
        }
    }

    #[test]
    fn members_are_whole_names() {
        let directory = tempfile::tempdir().unwrap();
        let (users, groups) = (directory.path().join("passwd"), directory.path().join("group"));
        std::fs::write(&users, "root:x:0:0::/:\nada:x:1000:1000::/:\nad:x:1001:1001::/:\n:x:7:7::/:\n")
            .unwrap();
        std::fs::write(
            &groups,
            "wheel:x:10:root,ada\nother:x:11:adam,bada\nbad:x:y:ada\nempty:x:12:\nlast:x:13:ada",
        )
        .unwrap();
        assert_eq!(groups_in(&users, &groups, 1000), [10, 13]);
        assert!(groups_in(&users, &groups, 1001).is_empty());
        assert!(groups_in(&users, &groups, 7).is_empty());
        assert!(groups_in(&users, Path::new("/nowhere"), 0).is_empty());
    }
}
