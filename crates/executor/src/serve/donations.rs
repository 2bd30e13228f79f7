//! Files for output, which the daemon sends once an execution is on record: one packet, the execution's id and one
//! descriptor; without a descriptor nothing is to become of it. Whatever else comes is closed. An execution is planned
//! meanwhile, and runs when it has its file.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use stockade_proto::link::ID_LIMIT;
use stockade_proto::{Code, Fault};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Files whose `execute` did not come yet. Beyond it the oldest is closed.
const MOST_WAITING: usize = 1024;
/// For a daemon to put an execution on record: longer than it waits for its disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// None where nothing is to become of the execution.
type Given = Option<OwnedFd>;

#[derive(Debug, Default)]
pub(super) struct Donations {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Those that came before their `execute`.
    early: VecDeque<(String, Given)>,
    expected: HashMap<String, SyncSender<Given>>,
    /// Nothing comes any more.
    closed: bool,
}

/// What one execution waits for.
#[derive(Debug)]
pub(super) struct Donation(Receiver<Given>);

impl Donation {
    /// Once it is here.
    pub(super) fn take(self) -> Result<File, Fault> {
        let given = self.0.recv_timeout(PATIENCE).map_err(|_| "no file for its output was sent");
        let file = given
            .and_then(|given| given.ok_or("it is not on record, or its file could not be taken"))
            .and_then(fit);
        file.map_err(|why| {
            Fault::new(Code::SuperviseFailed, why, "Try again; the service's log says what is wrong with it.")
        })
    }
}

impl Donations {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the execution of that id.
    pub(super) fn expect(&self, execution: &str) -> Donation {
        let (give, given) = sync_channel(1);
        let mut table = self.table();
        match table.early.iter().rposition(|(id, _)| id == execution).and_then(|at| table.early.remove(at)) {
            Some((_, early)) => hand(&give, early),
            // It has none to wait for, or is not the first of its name.
            None if table.closed || table.expected.contains_key(execution) => {}
            None => drop(table.expected.insert(execution.to_owned(), give)),
        }
        Donation(given)
    }

    /// None will come any more that is not here by now.
    pub(super) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        table.expected.clear();
    }

    fn arrived(&self, execution: String, given: Given) {
        let mut table = self.table();
        if let Some(expected) = table.expected.remove(&execution) {
            return hand(&expected, given);
        }
        if table.early.len() >= MOST_WAITING {
            table.early.pop_front();
        }
        table.early.push_back((execution, given));
    }

    /// Takes what comes, until nothing can come any more.
    pub(super) async fn receive(&self, socket: OwnedFd) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // Packets with an end, which the runtime has no type for; it only waits for them.
        let socket = UnixDatagram::from_std(socket.into())?;
        loop {
            let received = socket.async_io(Interest::READABLE, || Ok(receive(&socket)?)).await;
            match received {
                Ok(Some((execution, given))) => self.arrived(execution, given),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// There is room for one, and only one comes; who waited for it may be gone.
fn hand(give: &SyncSender<Given>, given: Given) {
    match give.try_send(given) {
        Ok(()) | Err(_) => {}
    }
}

/// None for a packet that is no donation.
fn receive(socket: &UnixDatagram) -> Result<Option<(String, Given)>, Errno> {
    // One byte more than an id may have: a longer packet is told by it.
    let mut text = [0; ID_LIMIT + 1];
    // One descriptor more than there may be; the kernel closes what is beyond that.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let packet = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if packet.bytes == 0 && files.is_empty() {
        // The other end is closed; the link says so too.
        return Err(Errno::NOTCONN);
    }
    let id = str::from_utf8(&text[..packet.bytes]).ok().filter(|_| packet.bytes <= ID_LIMIT);
    // There was no room for a descriptor: whoever waits for it hears that none will come.
    let only = files.pop().filter(|_| !packet.flags.contains(ReturnFlags::CTRUNC));
    Ok(id.filter(|_| files.is_empty()).map(|id| (id.to_owned(), only)))
}

/// Frames are appended, and taken back only where one could not be written whole: nothing else may be in there.
fn fit(file: OwnedFd) -> Result<File, &'static str> {
    let stat = fstat(&file).map_err(|_| "the file for its output can't be examined")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("what was sent for its output is no regular file");
    }
    if stat.st_size != 0 {
        return Err("the file for its output is not empty");
    }
    let flags = fcntl_getfl(&file).map_err(|_| "the file for its output can't be examined")?;
    let mode = flags & OFlags::ACCMODE;
    if !flags.contains(OFlags::APPEND) || (mode != OFlags::WRONLY && mode != OFlags::RDWR) {
        return Err("the file for its output is not open for appending");
    }
    Ok(File::from(file))
}
