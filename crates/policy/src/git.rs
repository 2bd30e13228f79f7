//! What git keeps in files, as far as a sandbox needs it: the caller's name and email, and where a worktree's
//! `.git` file leads. Parses text; opens nothing. Next: `mounts`.

use stockade_proto::Bytes;

use crate::report::Object;

/// Who commits, from the caller's own settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitIdentity {
    pub name: Option<String>,
    pub email: Option<String>,
}

/// What stands at `WORKSPACE/.git`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GitFacts {
    #[default]
    Absent,
    Directory,
    /// A worktree whose repository names it in return.
    Worktree {
        /// `COMMON/worktrees/NAME`
        gitdir: Object,
        /// The main repository's own directory, an ancestor of `gitdir`.
        common: Object,
    },
    /// A `.git` file that leads somewhere we can't trust, and why.
    Unverified {
        why: String,
    },
}

impl GitIdentity {
    /// Later files win, as they do in git.
    #[must_use]
    pub fn or(self, earlier: Self) -> Self {
        Self { name: self.name.or(earlier.name), email: self.email.or(earlier.email) }
    }

    /// The text of a `.gitconfig` that holds nothing else.
    pub(crate) fn to_config(&self) -> Option<String> {
        if self.name.is_none() && self.email.is_none() {
            return None;
        }
        let mut text = "[user]\n".to_owned();
        for (key, value) in [("name", &self.name), ("email", &self.email)] {
            if let Some(value) = value {
                text.push_str(&format!("\t{key} = \"{}\"\n", escaped(value)));
            }
        }
        Some(text)
    }
}

/// Inside quotes git knows only these; a raw newline would start a new key.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// `[user] name` and `email` of one file. Includes are not followed.
pub fn identity(text: &str) -> GitIdentity {
    let mut found = GitIdentity::default();
    let mut in_user = false;
    for line in text.lines().map(str::trim) {
        let line = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((section, rest)) => {
                in_user = section.trim().eq_ignore_ascii_case("user");
                rest.trim()
            }
            None => line,
        };
        if !in_user {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let value = unquoted(value);
        match key.trim().to_ascii_lowercase().as_str() {
            "name" => found.name = Some(value),
            "email" => found.email = Some(value),
            _ => {}
        }
    }
    found
}

/// A value without its quotes, escapes and trailing comment.
fn unquoted(value: &str) -> String {
    let mut out = String::new();
    let mut in_quotes = false;
    let mut kept = 0;
    let mut chars = value.trim().chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => in_quotes = !in_quotes,
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c) => out.push(c),
                None => break,
            },
            '#' | ';' if !in_quotes => break,
            c => out.push(c),
        }
        if in_quotes || !c.is_whitespace() {
            kept = out.len();
        }
    }
    out.truncate(kept);
    out
}

/// The path of a `.git` file: `gitdir: PATH`.
pub fn gitdir_of(text: &[u8]) -> Option<&[u8]> {
    let path = text.strip_prefix(b"gitdir:")?.trim_ascii();
    (!path.is_empty() && !path.contains(&b'\n') && !path.contains(&0)).then_some(path)
}

/// Whether `gitdir` is `common/worktrees/NAME`. A `commondir` file is only a claim: one written by an agent
/// may name any directory of the host. Where the repository must be an ancestor of the worktree's own
/// directory, a forged one inside the workspace can only lead to the workspace.
pub fn is_worktree_of(gitdir: &Bytes, common: &Bytes) -> bool {
    let Some(worktrees) = gitdir.as_path().parent() else { return false };
    worktrees.file_name().is_some_and(|name| name == "worktrees")
        && worktrees.parent().is_some_and(|parent| parent == common.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_email_survive_and_nothing_else() {
        let text = "[core]\n\tsshCommand = evil\n[user]\n  name = \"Ada \\\"The\\\" L\" ; x\n\tEmail=ada@x.org # y\n\
                    signingkey = AB\n[credential]\nhelper = store\n";
        let found = identity(text);
        assert_eq!(found.name.as_deref(), Some("Ada \"The\" L"));
        assert_eq!(found.email.as_deref(), Some("ada@x.org"));
        let written = found.to_config().expect("config");
        assert_eq!(written, "[user]\n\tname = \"Ada \\\"The\\\" L\"\n\temail = \"ada@x.org\"\n");
        assert_eq!(identity(&written), found);
    }

    #[test]
    fn a_value_can_not_start_a_new_section() {
        let evil = GitIdentity { name: Some("x\"\n[core]\n\tfsmonitor = \"evil".to_owned()), email: None };
        let written = evil.to_config().expect("config");
        assert_eq!(written.lines().count(), 2, "{written}");
        assert_eq!(identity(&written).name, evil.name);
    }

    #[test]
    fn one_line_sections_and_empty_files() {
        assert_eq!(identity("[user] name = Bo\n").name.as_deref(), Some("Bo"));
        assert_eq!(identity(""), GitIdentity::default());
        assert_eq!(GitIdentity::default().to_config(), None);
    }

    #[test]
    fn a_worktree_lies_below_its_repository() {
        let common = Bytes::from("/r/.git");
        assert!(is_worktree_of(&Bytes::from("/r/.git/worktrees/w"), &common));
        for forged in ["/r/.git/worktrees", "/w/fake/worktrees/w", "/r/.git/w", "/r/.git/worktrees/a/b", "/"]
        {
            assert!(!is_worktree_of(&Bytes::from(forged), &common), "{forged}");
        }
        assert_eq!(gitdir_of(b"gitdir: ../r/.git/worktrees/w\n"), Some(&b"../r/.git/worktrees/w"[..]));
        assert_eq!(gitdir_of(b"gitdir: a\nb"), None);
        assert_eq!(gitdir_of(b"nothing"), None);
    }
}
