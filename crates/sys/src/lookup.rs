//! Where the C library looks for host names.

use std::ffi::{CStr, c_char, c_int};
use std::io;

unsafe extern "C" {
    /// glibc's; says for one database what the host's `nsswitch.conf` would.
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

const DATABASE: &CStr = c"hosts";
/// Part of the library itself, as `files` is, for which `/etc/hosts` is read by hand. Any other is a shared object,
/// which a static program can load from a host with the very same library only, and dies of otherwise.
const SERVICES: &CStr = c"dns";

/// From now on the library finds hosts through `/etc/resolv.conf`, and nowhere else.
pub fn look_up_hosts_in_dns() -> io::Result<()> {
    // SAFETY: two strings with an end, which the library copies what it needs from, under its own lock.
    let answer = unsafe { __nss_configure_lookup(DATABASE.as_ptr(), SERVICES.as_ptr()) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    #[test]
    fn it_is_there() {
        super::look_up_hosts_in_dns().expect("a known service");
        // Addresses need no service, and what can't be asked of DNS is not asked.
        assert_eq!(("127.0.0.1", 1).to_socket_addrs().expect("an address").count(), 1);
        assert!((format!("{}.test.", "x".repeat(64)), 1).to_socket_addrs().is_err());
    }
}
