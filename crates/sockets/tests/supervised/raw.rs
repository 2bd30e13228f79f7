//! System calls with any arguments.

use std::mem::MaybeUninit;

/// The kernel's answer, or its error.
pub(crate) fn call(number: libc::c_long, args: &[usize]) -> Result<usize, i32> {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    // SAFETY: the scenarios pass memory that lives through the call, or none that the kernel could write to.
    let answer = unsafe { libc::syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]) };
    match usize::try_from(answer) {
        Ok(value) => Ok(value),
        Err(_) => Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")),
    }
}

fn fd(number: i32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(crate) fn number(socket: &impl std::os::fd::AsRawFd) -> usize {
    fd(socket.as_raw_fd())
}

pub(crate) fn connect(socket: i32, address: &[u8]) -> Result<usize, i32> {
    call(libc::SYS_connect, &[fd(socket), address.as_ptr().addr(), address.len()])
}

pub(crate) fn bind(socket: i32, address: &[u8]) -> Result<usize, i32> {
    call(libc::SYS_bind, &[fd(socket), address.as_ptr().addr(), address.len()])
}

pub(crate) fn listen(socket: i32, backlog: usize) -> Result<usize, i32> {
    call(libc::SYS_listen, &[fd(socket), backlog])
}

pub(crate) fn send_to(socket: i32, bytes: &[u8], address: &[u8]) -> Result<usize, i32> {
    let arguments =
        [fd(socket), bytes.as_ptr().addr(), bytes.len(), 0, address.as_ptr().addr(), address.len()];
    call(libc::SYS_sendto, &arguments)
}

/// An address of AF_UNIX with these bytes as its path, and no NUL added.
pub(crate) fn unix(path: impl AsRef<[u8]>) -> Vec<u8> {
    [&1_u16.to_ne_bytes()[..], path.as_ref()].concat()
}

/// A new socket that nothing closes: the scenario's process ends soon.
pub(crate) fn socket(family: i32, kind: i32) -> i32 {
    // SAFETY: numbers only.
    let number = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    assert!(number >= 0, "socket: {}", std::io::Error::last_os_error());
    number
}

pub(crate) fn close(number: i32) {
    // SAFETY: a number that the scenario made and uses no more.
    unsafe { libc::close(number) };
}

pub(crate) fn stream() -> i32 {
    socket(libc::AF_UNIX, libc::SOCK_STREAM)
}

pub(crate) fn datagram() -> i32 {
    socket(libc::AF_UNIX, libc::SOCK_DGRAM)
}

pub(crate) fn local_name(socket: i32) -> Vec<u8> {
    let mut name = [0_u8; 128];
    let mut length: libc::socklen_t = 128;
    // SAFETY: the kernel writes at most 128 bytes.
    let answer = unsafe { libc::getsockname(socket, name.as_mut_ptr().cast(), &raw mut length) };
    assert_eq!(answer, 0);
    name[..usize::try_from(length).expect("small")].to_vec()
}

/// Two pages, of which the second is not mapped; the end of the first.
pub(crate) fn edge() -> usize {
    // SAFETY: a new mapping.
    let pages = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(pages, libc::MAP_FAILED);
    let second = pages.wrapping_byte_add(4096);
    // SAFETY: the second page of the mapping above, which nothing uses.
    unsafe { libc::munmap(second, 4096) };
    second.addr()
}

/// A message with one piece.
pub(crate) struct Head {
    pub(crate) name: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) control: Vec<u8>,
    piece: Box<[usize; 2]>,
}

impl Head {
    pub(crate) fn new(name: &[u8], bytes: &[u8], control: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        let piece = Box::new([bytes.as_ptr().addr(), bytes.len()]);
        Self { name: name.to_vec(), bytes, control: control.to_vec(), piece }
    }

    /// `struct mmsghdr`; its first 56 bytes are a `struct msghdr`.
    pub(crate) fn words(&self) -> [usize; 8] {
        let pointer = |bytes: &[u8]| if bytes.is_empty() { 0 } else { bytes.as_ptr().addr() };
        assert_eq!(self.piece[0], self.bytes.as_ptr().addr());
        [
            pointer(&self.name),
            self.name.len(),
            self.piece.as_ptr().addr(),
            1,
            pointer(&self.control),
            self.control.len(),
            0,
            0,
        ]
    }

    pub(crate) fn send(&self, socket: i32, flags: i32) -> Result<usize, i32> {
        let words = self.words();
        call(libc::SYS_sendmsg, &[fd(socket), words.as_ptr().addr(), fd(flags)])
    }
}

/// A control message.
pub(crate) fn control(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + body.len()).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&level.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Receives bytes and at most one descriptor.
pub(crate) fn receive(socket: i32) -> (Vec<u8>, Option<i32>, Vec<u8>) {
    let mut bytes = [0_u8; 256];
    let mut control = [0_u64; 4];
    let mut name = [0_u8; 128];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: plain numbers and null pointers.
    let mut head: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    head.msg_iov = &raw mut piece;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of_val(&control);
    head.msg_name = name.as_mut_ptr().cast();
    head.msg_namelen = 128;
    // SAFETY: every buffer has the size given and outlives the call.
    let count = unsafe { libc::recvmsg(socket, &raw mut head, 0) };
    let count = usize::try_from(count).expect("received");
    let passed = (head.msg_controllen >= 20).then(|| {
        let [low, _] = [control[2] & 0xffff_ffff, 0];
        i32::try_from(low).expect("a descriptor")
    });
    let length = usize::try_from(head.msg_namelen).expect("small");
    (bytes[..count].to_vec(), passed, name[..length].to_vec())
}

/// Who is at the other end, as the kernel says: user and group.
pub(crate) fn peer(socket: i32) -> (u32, u32) {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("small");
    // SAFETY: one whole struct.
    let answer = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length)
    };
    assert_eq!(answer, 0);
    (peer.uid, peer.gid)
}

/// From now on the socket is told who sends to it.
pub(crate) fn pass_credentials(socket: i32) {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("small");
    // SAFETY: one int.
    let answer = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const on).cast(), length)
    };
    assert_eq!(answer, 0);
}

/// Who sent the next message, as it says itself: user and group.
pub(crate) fn sender(socket: i32) -> (u32, u32) {
    let (mut bytes, mut control) = ([0_u8; 64], [0_u32; 16]);
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: plain numbers and null pointers.
    let mut head: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    head.msg_iov = &raw mut piece;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of_val(&control);
    // SAFETY: every buffer has the size given and outlives the call.
    let count = unsafe { libc::recvmsg(socket, &raw mut head, 0) };
    assert!(count > 0 && head.msg_controllen >= 28, "{count}");
    // After the length, the level and the kind: process, user, group.
    (control[5], control[6])
}
