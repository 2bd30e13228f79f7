//! The attacker's last line, read back.

use crate::ran::Ran;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The attack worked; the text is what it got.
    Won(String),
    /// The kernel refused that step with that error number.
    Held { step: String, errno: i32 },
    /// The attack can't be tried here, walls or not.
    Unable(String),
}

impl Verdict {
    /// Panics where there is no verdict: an attack that did not run proves nothing.
    #[track_caller]
    pub fn of(ran: &Ran) -> Self {
        match Self::parse(&ran.stdout_text()) {
            Some(verdict) => verdict,
            None => panic!("the attacker said nothing: {ran}"),
        }
    }

    pub(crate) fn parse(stdout: &str) -> Option<Self> {
        let line = stdout.lines().rev().find_map(|line| line.trim_end().strip_prefix("VERDICT "))?;
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "won" => Some(Self::Won(rest.to_owned())),
            "unable" => Some(Self::Unable(rest.to_owned())),
            "held" => {
                let (step, errno) = rest.rsplit_once(' ')?;
                Some(Self::Held { step: step.to_owned(), errno: errno.parse().ok()? })
            }
            _ => None,
        }
    }

    pub fn is_won(&self) -> bool {
        matches!(self, Self::Won(_))
    }

    /// What the attack got.
    #[track_caller]
    pub fn won(self) -> String {
        match self {
            Self::Won(loot) => loot,
            Self::Held { .. } | Self::Unable(_) => panic!("the attack should have worked: {self:?}"),
        }
    }

    /// The step that failed and its error number.
    #[track_caller]
    pub fn held(self) -> (String, i32) {
        match self {
            Self::Held { step, errno } => (step, errno),
            Self::Won(_) | Self::Unable(_) => panic!("THE WALL DID NOT HOLD: {self:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_verdict_counts() {
        let text = "noise\nVERDICT won a\nVERDICT held kill(0) 3\r\n";
        assert_eq!(Verdict::parse(text), Some(Verdict::Held { step: "kill(0)".to_owned(), errno: 3 }));
        assert_eq!(Verdict::parse("VERDICT won"), Some(Verdict::Won(String::new())));
        assert_eq!(Verdict::parse("nothing"), None);
    }
}
