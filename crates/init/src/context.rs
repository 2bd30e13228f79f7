//! What the stages share: the ground, the launch, the control socket, and what one stage leaves for the next.

use core::mem::ManuallyDrop;

use stockade_launch::{
    CONTROL_FD, FromInit, GROUND_FD, Ground, Launch, MAX_DONATIONS, MAX_MESSAGE, Offer, Offered, Order,
    ToInit, wall,
};
use stockade_nolibc::{Errno, Fd, Inherited, Received, close_all_from, map_file, receive, send};

use crate::stages::{Places, ShortPath};

/// Why a stage failed, and on what.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) subject: &'static [u8],
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self { errno, subject: b"" }
    }
}

/// Names the thing an error is about.
pub(crate) trait About<T> {
    fn about(self, subject: &'static [u8]) -> Result<T, Failure>;
}

impl<T> About<T> for Result<T, Errno> {
    fn about(self, subject: &'static [u8]) -> Result<T, Failure> {
        self.map_err(|errno| Failure { errno, subject })
    }
}

/// How an init came to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Started with its ground.
    Exec,
    /// It was a seed before: session and namespaces are its own.
    Seed,
    /// Born of a seed, in its namespaces.
    Born,
}

pub(crate) struct Context {
    pub(crate) ground: Ground<'static>,
    pub(crate) origin: Origin,
    /// From the `launch` stage on.
    pub(crate) launch: Option<Launch<'static>>,
    /// From the `order` stage on.
    pub(crate) order: Option<Order<'static>>,
    pub(crate) control: ManuallyDrop<Fd>,
    /// Trees that host root donates, in the order of the binds that take them.
    pub(crate) donations: [Option<Fd>; MAX_DONATIONS],
    /// The new root, from the `ground` stage (born of a stem: the `own` stage) to the `pivot` stage.
    pub(crate) root: Option<NewRoot>,
    /// Of a stem or a seed: what it knew of itself, and so of us.
    pub(crate) inherited: Option<Inherited>,
    /// Born of a stem, until somebody waits for it: others go first.
    pub(crate) is_patient: bool,
    /// Born of a stem, up to the `pivot` stage: what the stem keeps may be needed yet.
    pub(crate) keeps_stash: bool,
    /// Whether the loopback of the network namespace is still to be brought up.
    pub(crate) loopback_down: bool,
    /// For a supervisor that obeys the same rules, from the `landlock` stage to the `seccomp` stage.
    pub(crate) ruleset: Option<Fd>,
    /// The filter's listener and what goes with it, from the `seccomp` stage until the supervisor has them.
    pub(crate) offered: [Option<Fd>; 3],
    /// From the `verify` stage to the `exec` stage: the caller's, which the command must not inherit.
    pub(crate) ignored_signals: u64,
    /// The command, from the `exec` stage on.
    pub(crate) command: i32,
}

/// A root under construction.
pub(crate) struct NewRoot {
    pub(crate) places: Places,
    /// The tmpfs behind every private directory, and where it is until then.
    pub(crate) scratch: Fd,
    pub(crate) scratch_at: ShortPath,
    /// Where the masks are.
    pub(crate) masks_at: ShortPath,
    /// Private directories made so far.
    pub(crate) scratches: u32,
}

impl Context {
    pub(crate) fn launch(&self) -> Result<Launch<'static>, Failure> {
        self.launch.ok_or(Failure { errno: Errno::BADMSG, subject: b"a stage stands before the launch" })
    }

    pub(crate) fn receive(origin: Origin) -> Result<Self, Failure> {
        let bytes = map_file(&Fd::inherited(GROUND_FD)).about(b"ground")?;
        // Whatever else the executor left open ends here; the mapping outlives its descriptor.
        close_all_from(GROUND_FD.cast_unsigned())?;
        let ground = Ground::read(bytes)
            .map_err(|_| Failure { errno: Errno::BADMSG, subject: b"ground of another version" })?;
        Ok(Self {
            ground,
            origin,
            launch: None,
            order: None,
            control: Fd::inherited(CONTROL_FD),
            donations: [const { None }; MAX_DONATIONS],
            root: None,
            inherited: None,
            is_patient: false,
            keeps_stash: false,
            loopback_down: ground.has(wall::NET) && origin == Origin::Exec,
            ruleset: None,
            offered: [None, None, None],
            ignored_signals: 0,
            command: 0,
        })
    }

    pub(crate) fn say(&self, message: FromInit<'_>) -> Result<(), Failure> {
        let mut buffer = [0; MAX_MESSAGE];
        let length = message.encode(&mut buffer);
        send(&self.control, &buffer[..length])?;
        Ok(())
    }

    /// Shows descriptors to the executor. They stay open until it has taken them ([`Self::taken`], or the order).
    pub(crate) fn offer(&self, what: Offer, fds: &[i32]) -> Result<(), Failure> {
        self.say(FromInit::Offered { what, fds: Offered::Numbers(fds) })
    }

    pub(crate) fn offer_sockets(&self) -> Result<(), Failure> {
        let (numbers, count) = self.offered_numbers();
        self.offer(Offer::Sockets, &numbers[..count])
    }

    /// And how many they are.
    pub(crate) fn offered_numbers(&self) -> ([i32; 3], usize) {
        let mut numbers = [0; 3];
        let fds = self.offered.iter().flatten();
        let count = numbers.iter_mut().zip(fds).map(|(number, fd)| *number = fd.number()).count();
        (numbers, count)
    }

    /// Waits until the executor has taken what was offered.
    pub(crate) fn taken(&mut self) -> Result<(), Failure> {
        self.expect(ToInit::Taken)?;
        Ok(())
    }

    /// Waits for this message.
    pub(crate) fn expect(&mut self, wanted: ToInit) -> Result<(), Failure> {
        let (message, _) = self.next()?;
        if message == wanted { Ok(()) } else { Err(Errno::BADMSG.into()) }
    }

    /// Waits for one message and says how many descriptors came with it; the executor going away is an
    /// error like any other.
    pub(crate) fn next(&mut self) -> Result<(ToInit, usize), Failure> {
        let mut packet = [0; 64];
        let (message, received) = self.next_into(&mut packet)?;
        Ok((message, received.donations))
    }

    /// The same, where more than a message may come in the packet.
    pub(crate) fn next_into(&mut self, packet: &mut [u8]) -> Result<(ToInit, Received), Failure> {
        let received = receive(&self.control, packet, &mut self.donations)?;
        if received.length == 0 {
            return Err(Errno::PIPE.into());
        }
        let message = ToInit::decode(&packet[..received.length]).ok_or(Errno::BADMSG)?;
        Ok((message, received))
    }
}
