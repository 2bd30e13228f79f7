//! The egress with real sockets: a sandbox's network namespace on one side, servers on loopback addresses
//! of their own on the other.

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod bytes;
#[cfg(test)]
mod charges;
#[cfg(test)]
mod lookups;
#[cfg(test)]
mod names;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod throughput;
#[cfg(test)]
mod world;
