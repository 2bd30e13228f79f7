//! What another thread may tell an execution while it runs: one byte per order, through a pipe, so that it is one
//! more descriptor to wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use stockade_proto::Cancel;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Asks the tree to end, and kills it after its grace. Said again it changes nothing.
    Stop(Cancel),
    /// At once.
    Kill,
}

const TABLE: [(Order, u8); 4] = [
    (Order::Stop(Cancel::Interrupt), b'i'),
    (Order::Stop(Cancel::Terminate), b't'),
    (Order::Stop(Cancel::Hangup), b'h'),
    (Order::Kill, b'k'),
];

/// The end that gives orders. Dropped, it means [`Order::Kill`]: nobody could stop the execution any more.
#[derive(Debug)]
pub struct OrderSender(OwnedFd);

/// The end that an execution obeys.
#[derive(Debug)]
pub struct Orders(OwnedFd);

pub fn orders() -> io::Result<(OrderSender, Orders)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((OrderSender(write), Orders(read)))
}

impl OrderSender {
    /// Never waits. Before the execution begins to listen the order waits for it, after its end it is lost.
    pub fn give(&self, order: Order) {
        let Some((_, byte)) = TABLE.iter().find(|(known, _)| *known == order) else { return };
        match rustix::io::write(&self.0, &[*byte]) {
            // Full: it was told thousands of times. Broken: it has ended.
            Ok(_) | Err(_) => {}
        }
    }
}

/// What a look at the orders found.
pub(super) enum Heard {
    Order(Order),
    Nothing,
    /// Nobody gives orders any more.
    Closed,
}

impl Orders {
    pub(super) fn hear(&self) -> Result<Heard, Errno> {
        let mut byte = [0];
        match rustix::io::read(&self.0, &mut byte) {
            Ok(0) => Ok(Heard::Closed),
            Ok(_) => {
                let order = TABLE.iter().find(|(_, known)| *known == byte[0]);
                Ok(order.map_or(Heard::Nothing, |(order, _)| Heard::Order(*order)))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Heard::Nothing),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
