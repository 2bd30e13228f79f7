//! The methods of the Unix-socket door, one row each: the door dispatches over them, and its contract test is
//! computed from them. A field's kind and presence are for that test; the types beside this file decide.

use super::method;

/// What a caller must be allowed for a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Read,
    Execute,
}

/// Whether a method is served on a connection that runs as many calls as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Plain,
    Urgent,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Text, or `{"hex": "…"}`.
    Bytes,
    /// A list of those.
    Argv,
    /// Names and bytes.
    Variables,
    Count,
    Flag,
    /// One of a few words.
    Word,
    Object,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Required,
    /// May be left out; null is the same.
    Optional,
    /// May be left out, and null is wrong.
    Defaulted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
}

macro_rules! methods {
    ($($variant:ident $name:ident $needs:ident $pace:ident [$($field:ident $kind:ident $presence:ident),*])*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Method { $($variant,)* }

        impl Method {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => method::$name,)* }
            }

            pub const fn needs(self) -> Needs {
                match self { $(Self::$variant => Needs::$needs,)* }
            }

            pub const fn pace(self) -> Pace {
                match self { $(Self::$variant => Pace::$pace,)* }
            }

            pub const fn fields(self) -> &'static [Field] {
                match self {
                    $(Self::$variant => &[$(Field {
                        name: stringify!($field), kind: Kind::$kind, presence: Presence::$presence,
                    },)*],)*
                }
            }
        }
    };
}

methods! {
    Health       HEALTH        Nothing Urgent []
    StartStage   START_STAGE   Execute Plain  [workspace_path Bytes Required, stage_id Text Optional, agent Text Optional,
                                               command Argv Optional, shell Bytes Optional, profile Text Optional,
                                               env Variables Defaulted, limits Object Optional,
                                               agent_config Object Optional, tools List Optional,
                                               message Text Optional, context Object Optional]
    CancelStage  CANCEL_STAGE  Execute Urgent [stage_id Text Optional, id Text Optional]
    Start        START         Execute Plain  [command Argv Optional, shell Bytes Optional, profile Text Optional,
                                               workspace Bytes Optional, cwd Bytes Optional, env Variables Defaulted,
                                               timeout_ms Count Optional, stdin Flag Defaulted,
                                               idempotency_key Text Optional]
    Get          GET           Read    Plain  [id Text Required]
    List         LIST          Read    Plain  [state Word Optional, after Text Optional, limit Count Optional]
    Read         READ          Read    Plain  [id Text Required, after Count Defaulted, limit Count Optional,
                                               wait_ms Count Defaulted]
    Write        WRITE         Execute Plain  [id Text Required, bytes Bytes Defaulted, end Flag Defaulted]
    Stop         STOP          Execute Urgent [id Text Required]
    Wait         WAIT          Read    Plain  [id Text Required, within_ms Count Optional]
    Subscribe    SUBSCRIBE     Read    Plain  []
    Unsubscribe  UNSUBSCRIBE   Read    Plain  [subscription Count Required]
}

impl Method {
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.name() == name)
    }
}
