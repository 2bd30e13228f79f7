//! Opens the way out of a network namespace: every address is local, and what arrives on an allowed port is
//! the executor's to accept. Needs capabilities over the namespace; decides nothing about names.

use stockade_launch::{MAX_OFFERED, Offer};
use stockade_nolibc::{Errno, Fd, Transport, catch_every_address, listen_everywhere};

use crate::context::{About, Context, Failure};

/// Of the ranges whose other addresses stand for allowed names; the last of each, which stands for none.
const OWN_FOUR: [u8; 4] = [198, 19, 255, 254];
const OWN_SIX: [u8; 16] =
    [0xfd, 0x53, 0x74, 0x6f, 0x63, 0x6b, 0x61, 0x64, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
const DNS: u16 = 53;

pub(crate) fn apply(context: &mut Context) -> Result<(), Failure> {
    let launch = context.launch()?;
    if launch.ports.len() == 0 {
        return Ok(());
    }
    catch_every_address(OWN_FOUR, OWN_SIX).about(b"AnyIP routes")?;
    let mut sockets = [const { None }; MAX_OFFERED];
    let dns = [(Transport::Udp, DNS), (Transport::Tcp, DNS)];
    let ports = launch.ports.map(|port| (Transport::Tcp, u16::try_from(port).unwrap_or(0)));
    let wanted = dns.into_iter().chain(ports);
    let mut count = 0;
    for (transport, port) in wanted {
        let slot =
            sockets.get_mut(count).ok_or(Failure { errno: Errno::BADMSG, subject: b"too many ports" })?;
        *slot = Some(listen_everywhere(transport, port).about(b"listener")?);
        count += 1;
    }
    let mut numbers = [-1; MAX_OFFERED];
    for (number, socket) in numbers.iter_mut().zip(sockets.iter().flatten()) {
        *number = Fd::number(socket);
    }
    context.offer(Offer::Egress, &numbers[..count])
}
