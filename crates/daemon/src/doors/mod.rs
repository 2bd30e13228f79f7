//! The doors translate bytes into asks and endings into bytes. They hold no policy.

pub mod http;
pub mod socket;
pub mod words;
