//! The setup steps by name. Their order is the const array in `init/src/stages/mod.rs`; failures
//! cross the control socket as one of these and an errno.

macro_rules! stages {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Stage { $($variant,)* }

        impl Stage {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the stage does, in words that fit behind "could not".
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|stage| *stage as u8 == number)
            }
        }
    };
}

stages! {
    Receive "receive" "read the ground"
    Session "session" "leave the caller's session"
    Namespaces "namespaces" "make the sandbox's namespaces"
    Identity "identity" "take on the sandbox's user"
    Keyring "keyring" "join an empty keyring"
    Hostname "hostname" "set the host name"
    Network "network" "bring up the loopback device"
    Ground "ground" "build the ground of the new root"
    Bear "bear" "start another sandbox"
    Own "own" "make what is this sandbox's alone"
    Launch "launch" "take the plan"
    Root "root" "build the new root"
    Pivot "pivot" "enter the new root"
    Gate "gate" "wait for the executor"
    Egress "egress" "open the way out of the network namespace"
    Privileges "privileges" "drop the privileges"
    Landlock "landlock" "apply the Landlock rules"
    Seccomp "seccomp" "install the system call filter"
    Verify "verify" "prove the walls"
    Order "order" "take the command"
    Exec "exec" "start the command"
    Reap "reap" "wait for the command"
}
