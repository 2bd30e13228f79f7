//! One private address per name: what the stub answers with, and how an accepted connection's
//! destination says which name was asked for. Addresses stay with their name as long as the execution lasts.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names per execution; a wildcard could otherwise make a program fill memory.
pub(crate) const NAMES_MOST: usize = 4096;

/// 198.18.0.0/15 is set aside for benchmarks between networks: no host is meant to live there.
const FOUR: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// A unique local prefix of our own.
const SIX: u128 = 0xfd53_746f_636b_6164 << 64;

#[derive(Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handed {
    pub(crate) four: Ipv4Addr,
    pub(crate) six: Ipv6Addr,
}

impl Names {
    /// The name's addresses; none when too many names have been asked for.
    pub(crate) fn hand_out(&mut self, name: &str) -> Option<Handed> {
        if let Some(number) = self.numbers.get(name) {
            return Some(addresses(*number));
        }
        if self.names.len() >= NAMES_MOST {
            return None;
        }
        self.names.push(name.to_owned());
        // Counted from 1: a network's first address is special to some programs.
        let number = u32::try_from(self.names.len()).ok()?;
        self.numbers.insert(name.to_owned(), number);
        Some(addresses(number))
    }

    pub(crate) fn at(&self, address: IpAddr) -> Option<&str> {
        let number = match address {
            IpAddr::V4(four) => u32::from(four).checked_sub(FOUR)?,
            IpAddr::V6(six) => u32::try_from(u128::from(six).checked_sub(SIX)?).ok()?,
        };
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.names.get(index).map(String::as_str)
    }
}

fn addresses(number: u32) -> Handed {
    Handed { four: Ipv4Addr::from(FOUR + number), six: Ipv6Addr::from(SIX + u128::from(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_is_found_by_them() {
        let mut names = Names::default();
        let first = names.hand_out("a.example").unwrap();
        let second = names.hand_out("b.example").unwrap();
        assert_eq!(names.hand_out("a.example"), Some(first));
        assert_ne!(first, second);
        assert_eq!(names.at(first.four.into()), Some("a.example"));
        assert_eq!(names.at(second.six.into()), Some("b.example"));
        for foreign in ["198.18.0.0", "198.18.0.3", "1.1.1.1", "255.0.0.1", "::1", "fd53:746f:636b:6164::3"] {
            assert_eq!(names.at(foreign.parse().unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn the_table_is_bounded() {
        let mut names = Names::default();
        let last = (0..NAMES_MOST).map(|number| names.hand_out(&format!("{number}.example"))).last();
        let last = last.flatten().unwrap();
        assert!(u32::from(last.four) < FOUR + (1 << 17), "inside 198.18.0.0/15");
        assert_eq!(names.hand_out("more.example"), None);
        assert_eq!(names.hand_out("0.example").map(|handed| handed.four), Some(Ipv4Addr::new(198, 18, 0, 1)));
    }
}
