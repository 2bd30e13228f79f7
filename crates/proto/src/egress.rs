//! The network allowlist in the plan: which hosts the command may reach, and which of its ports are published.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::Origin;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum TargetHost {
    /// Lower case, no trailing dot, in DNS's ASCII form.
    Name { name: String },
    /// `*.name`: every name below it, at any depth, and not the name itself.
    Below { name: String },
    /// One address, or all with this prefix. Naming an address is what opens private, link-local,
    /// metadata and loopback ranges.
    Net { address: IpAddr, prefix: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub host: TargetHost,
    /// TCP ports, never empty, sorted.
    pub ports: Vec<u16>,
    /// As a person wrote it, or `set:entry` for a member of a named set.
    pub rule: String,
    pub origin: Option<Box<Origin>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressPlan {
    pub targets: Vec<Target>,
}

/// A listener inside that the host's loopback reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Publish {
    /// Of the host, and a loopback one.
    pub address: IpAddr,
    /// On that address; 0 lets the kernel choose.
    pub host_port: u16,
    /// On 127.0.0.1 or ::1 inside.
    pub port: u16,
}

/// A port inside and where on the host it was reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedPort {
    pub host: SocketAddr,
    pub port: u16,
}
