//! `[egress]` as written: the list and the sets. Whether a set exists is known only when all texts are.

use super::{List, Reader, Value};
use crate::resolve::is_profile_name;
use crate::target::{self, Entry};
use crate::text::At;

#[derive(Debug, Clone, Default)]
pub(crate) struct Egress {
    pub(crate) allow: Option<List>,
    pub(crate) sets: Vec<(At<String>, List)>,
}

const EGRESS_KEYS: [&str; 2] = ["allow", "sets"];

/// Entries are compared with each other when loaded.
const MAX_ENTRIES: usize = 512;

impl Reader<'_> {
    pub(super) fn egress(&mut self, name: &str, value: &Value<'_>, egress: &mut Egress) {
        let Some(table) = self.table(name, value) else { return };
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "allow" => {
                    egress.allow = self.checked("egress.allow", value, |entry| target::parse(entry).err());
                    self.check_length("egress.allow", value, egress.allow.as_ref());
                }
                "sets" => self.sets(value, egress),
                other => self.unknown(key.span(), other, &EGRESS_KEYS),
            }
        }
    }

    fn check_length(&mut self, name: &str, value: &Value<'_>, list: Option<&List>) {
        if list.is_some_and(|list| list.value.len() > MAX_ENTRIES) {
            self.problem(
                value.span(),
                format!("`{name}` has more than {MAX_ENTRIES} entries"),
                "use wildcards",
            );
        }
    }

    fn sets(&mut self, value: &Value<'_>, egress: &mut Egress) {
        let Some(table) = self.table("egress.sets", value) else { return };
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let key_name = format!("egress.sets.{}", name.escape_debug());
            if name == target::REGISTRIES {
                self.problem(
                    key.span(),
                    "the set `registries` is what this host's npm, pip, cargo and go are configured to use",
                    "give the set another name",
                );
            } else if !is_profile_name(name) {
                let message = format!("`{}` is no name for a set", name.escape_debug());
                self.problem(key.span(), message, "use letters, digits, `-` and `_`");
            }
            let members = self.checked(&key_name, value, |entry| match target::parse(entry) {
                Ok(Entry::Set(other)) => Some((
                    format!("the set `{}` holds the set `{other}`: sets don't nest", name.escape_debug()),
                    "list the hosts of that set, or name both sets in `egress.allow`".to_owned(),
                )),
                Ok(Entry::Host { .. }) => None,
                Err(mistake) => Some(mistake),
            });
            self.check_length(&key_name, value, members.as_ref());
            let Some(members) = members else { continue };
            if members.value.is_empty() {
                let message = format!("the set `{}` has no members", name.escape_debug());
                self.problem(value.span(), message, "list its hosts, or remove it");
            }
            let spot = self.spot(key.span());
            egress.sets.push((At::new(name.to_owned(), spot), members));
        }
    }
}
