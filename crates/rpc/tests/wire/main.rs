//! The peer as its two sides see it: raw bytes against a served connection, and peer against peer, over pipes
//! in memory and over real sockets.

#[cfg(test)]
mod broken;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod events;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod world;
