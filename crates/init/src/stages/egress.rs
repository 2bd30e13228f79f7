//! Opens the ways through a network namespace. Out: every address is local, and what arrives on an allowed
//! port is the executor's to accept. In: sockets that the executor connects to published ports. Needs
//! capabilities over the namespace; decides nothing about names.

use stockade_launch::{Launch, MAX_INSIDE, MAX_OFFERED, Offer};
use stockade_nolibc::{Errno, Family, Fd, Transport, catch_every_address, listen_everywhere, stream_socket};

use crate::context::{About, Context, Failure};

/// Of the ranges whose other addresses stand for allowed names; the last of each, which stands for none.
const OWN_FOUR: [u8; 4] = [198, 19, 255, 254];
const OWN_SIX: [u8; 16] =
    [0xfd, 0x53, 0x74, 0x6f, 0x63, 0x6b, 0x61, 0x64, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
const DNS: u16 = 53;

/// Sockets of one offer; closed when it is over, because the executor has its own by then.
struct Sockets {
    held: [Option<Fd>; MAX_OFFERED],
    count: usize,
}

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.ports.len() > 0 {
        open_out(context, &launch)?;
    }
    if launch.inside > 0 {
        open_in(context, &launch)?;
    }
    Ok(())
}

fn open_out(context: &mut Context, launch: &Launch<'_>) -> Result<(), Failure> {
    catch_every_address(OWN_FOUR, OWN_SIX).about(b"AnyIP routes")?;
    let mut sockets = Sockets::none();
    let dns = [(Transport::Udp, DNS), (Transport::Tcp, DNS)];
    let ports = launch.ports.map(|port| (Transport::Tcp, u16::try_from(port).unwrap_or(0)));
    for (transport, port) in dns.into_iter().chain(ports) {
        sockets.add(listen_everywhere(transport, port).about(b"listener")?)?;
    }
    sockets.offer(context, Offer::Egress)
}

/// The executor can't make sockets here, nor ask us to once the command runs: it gets all that it will ever
/// use, and uses them again. A socket that was connected through an IPv4-mapped address can't be connected
/// to an IPv6 one later (the kernel keeps its IPv4 operations), so each family has its own.
fn open_in(context: &mut Context, launch: &Launch<'_>) -> Result<(), Failure> {
    let mut sockets = Sockets::none();
    let each = usize::try_from(launch.inside).unwrap_or(MAX_INSIDE).min(MAX_INSIDE);
    for family in [Family::Four, Family::Six] {
        for _ in 0..each {
            sockets.add(stream_socket(family).about(b"socket for published ports")?)?;
        }
    }
    sockets.offer(context, Offer::Publish)
}

impl Sockets {
    const fn none() -> Self {
        Self { held: [const { None }; MAX_OFFERED], count: 0 }
    }

    fn add(&mut self, socket: Fd) -> Result<(), Failure> {
        let slot = self.held.get_mut(self.count);
        *slot.ok_or(Failure { errno: Errno::BADMSG, subject: b"too many ports" })? = Some(socket);
        self.count += 1;
        Ok(())
    }

    fn offer(&self, context: &mut Context, what: Offer) -> Result<(), Failure> {
        let mut numbers = [-1; MAX_OFFERED];
        for (number, socket) in numbers.iter_mut().zip(self.held.iter().flatten()) {
            *number = Fd::number(socket);
        }
        context.offer(what, &numbers[..self.count])?;
        context.taken()
    }
}
