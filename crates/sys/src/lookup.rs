//! Where the C library looks for host names.

use std::ffi::{CStr, c_char, c_int};
use std::io;

unsafe extern "C" {
    /// glibc's; says for one database what the host's `nsswitch.conf` would.
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

const DATABASE: &CStr = c"hosts";
/// The two that are part of the library itself. Any other is a shared object, which a static program can
/// load from a host with the very same library only, and dies of otherwise.
const SERVICES: &CStr = c"files dns";

/// From now on this process finds hosts in `/etc/hosts` and through `/etc/resolv.conf`, and nowhere else.
pub fn look_up_hosts_in_files_and_dns() -> io::Result<()> {
    // SAFETY: two strings with an end, which the library copies what it needs from, under its own lock.
    let answer = unsafe { __nss_configure_lookup(DATABASE.as_ptr(), SERVICES.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    #[test]
    fn the_two_are_there() {
        super::look_up_hosts_in_files_and_dns().expect("known services");
        let found: Vec<_> = ("localhost", 1).to_socket_addrs().expect("in /etc/hosts").collect();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    }
}
