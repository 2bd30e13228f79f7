//! OPS-1, OPS-3: the units as they are shipped, under a real systemd.

mod serve;
mod system;
mod user;
