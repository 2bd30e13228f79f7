//! Bytes per host and port, in both directions, as the sandbox sees them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stockade_proto::HostTraffic;

use crate::shared::lock;

/// Rows; a wide CIDR rule could otherwise make one per address. What comes later is counted together.
const ROWS: usize = 8192;
const OTHERS: &str = "*";

#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) connections: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(String, u16), Arc<Count>>>);

impl Ledger {
    /// Opens a connection in the host's row.
    pub(crate) fn row(&self, host: String, port: u16) -> Arc<Count> {
        let mut rows = lock(&self.0);
        let key = (host, port);
        let key = if rows.len() < ROWS || rows.contains_key(&key) { key } else { (OTHERS.to_owned(), 0) };
        let count = Arc::clone(rows.entry(key).or_default());
        count.connections.fetch_add(1, Ordering::Relaxed);
        count
    }

    pub(crate) fn total(&self) -> Vec<HostTraffic> {
        let rows = lock(&self.0);
        rows.iter()
            .map(|((host, port), count)| HostTraffic {
                host: host.clone(),
                port: *port,
                connections: count.connections.load(Ordering::Relaxed),
                sent_bytes: count.sent.load(Ordering::Relaxed),
                received_bytes: count.received.load(Ordering::Relaxed),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_bounded() {
        let ledger = Ledger::default();
        for number in 0..ROWS + 10 {
            ledger.row(number.to_string(), 443);
        }
        ledger.row("0".to_owned(), 443);
        let total = ledger.total();
        assert_eq!(total.len(), ROWS + 1);
        assert_eq!(total.iter().find(|row| row.host == OTHERS).map(|row| row.connections), Some(10));
        assert_eq!(total.iter().find(|row| row.host == "0").map(|row| row.connections), Some(2));
    }
}
