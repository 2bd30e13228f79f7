//! A configuration that takes the place of another one while the service runs. What the doors and the store were
//! opened with stays: a new value there waits for a restart, and is told.

use super::Config;

impl Config {
    /// This one, with what `old` has where it can't change. Also says which keys wait for a restart.
    #[must_use]
    pub(crate) fn following(mut self, old: &Self) -> (Self, Vec<&'static str>) {
        let mut waits = Vec::new();
        if self.state != old.state {
            self.state.clone_from(&old.state);
            self.workspaces.state.clone_from(&old.state);
            waits.push("state");
        }
        if self.capacity != old.capacity {
            self.capacity = old.capacity;
            waits.push("admission");
        }
        let address = |config: &Self| config.http.as_ref().map(|door| door.address);
        if address(&self) != address(old) {
            let secret = self.http.take().and_then(|door| door.secret);
            self.http.clone_from(&old.http);
            if let (Some(door), Some(_)) = (&mut self.http, &secret) {
                // In force at once; without a new one the old one stays, as the open address may need it.
                door.secret = secret;
            }
            waits.push("http.address");
        }
        let path = |config: &Self| config.socket.as_ref().map(|door| door.path.clone());
        if path(&self) != path(old) {
            let listed = self.socket.take();
            self.socket.clone_from(&old.socket);
            self.workspaces.closed.extend(old.socket.as_ref().map(|door| door.path.clone()));
            if let Some(door) = &mut self.socket {
                // Who is not named any more is out at once.
                (door.uids, door.gids) = listed.map(|door| (door.uids, door.gids)).unwrap_or_default();
            }
            waits.push("socket.path");
        }
        (self, waits)
    }
}
