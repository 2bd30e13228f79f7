//! Messages on the control socket (SOCK_SEQPACKET: one message, one packet).

use crate::Stage;

/// A failure carries at most this much of the path it concerns, an offer four bytes per descriptor.
pub const MAX_MESSAGE: usize = HEAD + 4 * MAX_OFFERED;
/// Descriptors in one offer.
pub const MAX_OFFERED: usize = 128;
/// Connections at once to the published ports: each takes two descriptors of an offer.
pub const MAX_INSIDE: usize = MAX_OFFERED / 2;
/// Bytes of an order that come in a packet.
pub const MAX_ORDER: usize = 4 * 1024 - HEAD;
/// What every message begins with.
pub const HEAD: usize = 16;

const FAILED: u32 = 1;
const STARTED: u32 = 3;
const ENDED: u32 = 4;
const OFFERED: u32 = 5;
const BORN: u32 = 6;
const DONE: u32 = 7;
const MAPPED: u32 = 16;
const GO: u32 = 17;
const SIGNAL: u32 = 18;
const LAUNCH: u32 = 19;
const TAKEN: u32 = 20;
const BEAR: u32 = 21;
const NETWORK: u32 = 22;
const ORDER: u32 = 23;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromInit<'a> {
    /// A stage failed; nothing of the command ran. `subject` is the path or name it was about.
    Failed { stage: Stage, errno: i32, subject: &'a [u8] },
    /// `execve` of the command succeeded.
    Started,
    /// Descriptors of init's that the executor is to take (by `pidfd_getfd`: init's own `sendmsg` may be
    /// trapped by then) before it answers `Taken`; or, to an init that waits for its order, the order.
    Offered { what: Offer, fds: Offered<'a> },
    /// The command ended with this wait status; `leaked` other processes were alive.
    Ended { status: i32, leaked: u32 },
    /// A stem or a seed has started an init; the executor is its parent.
    Born { pid: i32 },
    /// A stem did what it was asked to; or the walls stand, and there was nothing to offer.
    Done,
}

/// What init offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Offer {
    /// Listeners inside the network namespace: DNS over UDP, DNS over TCP, then one per port, in order.
    Egress = 1,
    /// The seccomp listener, then the Landlock ruleset if there is one.
    Sockets = 2,
    /// Unconnected TCP sockets inside the network namespace: so many for IPv4, then as many for IPv6.
    Publish = 3,
}

/// The numbers of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered<'a> {
    Numbers(&'a [i32]),
    Packet(&'a [u8]),
}

impl Offered<'_> {
    pub fn iter(&self) -> impl Iterator<Item = i32> {
        let (numbers, packet): (&[i32], &[u8]) = match self {
            Self::Numbers(numbers) => (numbers, &[]),
            Self::Packet(packet) => (&[], packet),
        };
        let read = packet.chunks_exact(4).map(|word| word.try_into().map_or(-1, i32::from_ne_bytes));
        numbers.iter().copied().chain(read)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToInit {
    /// The id maps are written; the donated trees of the ground are attached to this packet.
    Mapped,
    /// The plan is made: its launch is the first descriptor of this packet, its donated trees the others.
    Launch,
    /// What runs within the walls is known. It follows in this packet, or, if it is longer than [`MAX_ORDER`], is its descriptor.
    Order,
    /// The cgroups are in place: go through the gate, by so many doors.
    Go(u32),
    /// What was offered is taken.
    Taken,
    /// Send this signal to the whole tree.
    Signal(i32),
    /// To a stem or a seed: start an init, with the descriptors of this packet.
    Bear(Birth),
    /// To a stem: enter a new network namespace, with its loopback up.
    Network,
}

/// What an init is born with, beside what comes first: its stdin, stdout, stderr and, of a stem's, its control socket; of a
/// seed's, which has that already, its ground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Birth {
    pub network: BirthNetwork,
    /// The last descriptor is the cgroup to be born in.
    pub cgroup: bool,
    /// Somebody waits for it already.
    pub awaited: bool,
    /// Its launch may hide something, with what the stem keeps for that. Without, that is let go before.
    pub hides: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BirthNetwork {
    /// The stem's own, whatever that is.
    Inherited = 0,
    /// A new one.
    New = 1,
    /// The fifth descriptor: one that this stem made.
    Given = 2,
}

impl Birth {
    const CGROUP: u32 = 1 << 8;
    const AWAITED: u32 = 1 << 9;
    const HIDES: u32 = 1 << 10;

    fn word(self) -> u32 {
        u32::from(self.network as u8)
            | if self.cgroup { Self::CGROUP } else { 0 }
            | if self.awaited { Self::AWAITED } else { 0 }
            | if self.hides { Self::HIDES } else { 0 }
    }

    fn of_word(word: u32) -> Option<Self> {
        let has = |flag| word & flag != 0;
        let number = word & !(Self::CGROUP | Self::AWAITED | Self::HIDES);
        let network = [BirthNetwork::Inherited, BirthNetwork::New, BirthNetwork::Given]
            .into_iter()
            .find(|network| u32::from(*network as u8) == number)?;
        Some(Self {
            network,
            cgroup: has(Self::CGROUP),
            awaited: has(Self::AWAITED),
            hides: has(Self::HIDES),
        })
    }

    /// Descriptors in its packet.
    pub const fn descriptors(self) -> usize {
        let network = match self.network {
            BirthNetwork::Inherited | BirthNetwork::New => 0,
            BirthNetwork::Given => 1,
        };
        4 + network + if self.cgroup { 1 } else { 0 }
    }
}

fn head(tag: u32, a: u32, b: i32, length: u32) -> [u8; HEAD] {
    let mut bytes = [0; HEAD];
    bytes[0..4].copy_from_slice(&tag.to_ne_bytes());
    bytes[4..8].copy_from_slice(&a.to_ne_bytes());
    bytes[8..12].copy_from_slice(&b.to_ne_bytes());
    bytes[12..16].copy_from_slice(&length.to_ne_bytes());
    bytes
}

fn word(packet: &[u8], at: usize) -> Option<[u8; 4]> {
    packet.get(at..at + 4)?.try_into().ok()
}

impl<'a> FromInit<'a> {
    /// Writes the packet into `buffer` and says how long it is.
    pub fn encode(&self, buffer: &mut [u8; MAX_MESSAGE]) -> usize {
        let (bytes, subject): ([u8; HEAD], &[u8]) = match self {
            Self::Failed { stage, errno, subject } => {
                let cut = &subject[..subject.len().min(MAX_MESSAGE - HEAD)];
                let length = u32::try_from(cut.len()).unwrap_or(0);
                (head(FAILED, u32::from(*stage as u8), *errno, length), cut)
            }
            Self::Started => (head(STARTED, 0, 0, 0), &[]),
            Self::Offered { what, fds } => return Self::encode_offer(*what, *fds, buffer),
            Self::Ended { status, leaked } => (head(ENDED, *leaked, *status, 0), &[]),
            Self::Born { pid } => (head(BORN, 0, *pid, 0), &[]),
            Self::Done => (head(DONE, 0, 0, 0), &[]),
        };
        buffer[..HEAD].copy_from_slice(&bytes);
        buffer[HEAD..HEAD + subject.len()].copy_from_slice(subject);
        HEAD + subject.len()
    }

    fn encode_offer(what: Offer, fds: Offered<'_>, buffer: &mut [u8; MAX_MESSAGE]) -> usize {
        buffer[..HEAD].copy_from_slice(&head(OFFERED, u32::from(what as u8), 0, 0));
        let mut end = HEAD;
        for (slot, number) in buffer[HEAD..].chunks_exact_mut(4).zip(fds.iter()) {
            slot.copy_from_slice(&number.to_ne_bytes());
            end += 4;
        }
        end
    }

    pub fn decode(packet: &'a [u8]) -> Option<Self> {
        let tag = u32::from_ne_bytes(word(packet, 0)?);
        let a = u32::from_ne_bytes(word(packet, 4)?);
        let b = i32::from_ne_bytes(word(packet, 8)?);
        match tag {
            FAILED => {
                let stage = Stage::from_number(u8::try_from(a).ok()?)?;
                Some(Self::Failed { stage, errno: b, subject: packet.get(HEAD..)? })
            }
            STARTED => Some(Self::Started),
            ENDED => Some(Self::Ended { status: b, leaked: a }),
            BORN => Some(Self::Born { pid: b }),
            DONE => Some(Self::Done),
            OFFERED => {
                let what = [Offer::Egress, Offer::Sockets, Offer::Publish]
                    .into_iter()
                    .find(|what| u32::from(*what as u8) == a)?;
                Some(Self::Offered { what, fds: Offered::Packet(packet.get(HEAD..)?) })
            }
            _ => None,
        }
    }
}

impl ToInit {
    pub fn encode(self) -> [u8; HEAD] {
        match self {
            Self::Mapped => head(MAPPED, 0, 0, 0),
            Self::Launch => head(LAUNCH, 0, 0, 0),
            Self::Order => head(ORDER, 0, 0, 0),
            Self::Go(doors) => head(GO, doors, 0, 0),
            Self::Taken => head(TAKEN, 0, 0, 0),
            Self::Signal(signal) => head(SIGNAL, 0, signal, 0),
            Self::Bear(birth) => head(BEAR, birth.word(), 0, 0),
            Self::Network => head(NETWORK, 0, 0, 0),
        }
    }

    pub fn decode(packet: &[u8]) -> Option<Self> {
        match u32::from_ne_bytes(word(packet, 0)?) {
            MAPPED => Some(Self::Mapped),
            LAUNCH => Some(Self::Launch),
            ORDER => Some(Self::Order),
            GO => Some(Self::Go(u32::from_ne_bytes(word(packet, 4)?))),
            TAKEN => Some(Self::Taken),
            SIGNAL => Some(Self::Signal(i32::from_ne_bytes(word(packet, 8)?))),
            BEAR => Birth::of_word(u32::from_ne_bytes(word(packet, 4)?)).map(Self::Bear),
            NETWORK => Some(Self::Network),
            _ => None,
        }
    }
}
