//! A real service for one test: `stockaded` in the foreground over a state directory and a socket in the test's
//! world. Asked to end when dropped, and waited for.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::ran::Running;
use crate::world::{World, programs};

/// For executions to end when the service is asked to, and then for the service itself.
const DRAIN: &str = "2s";
const LEAVING: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Service {
    running: Option<Running>,
}

impl Service {
    /// Started in this world, its socket open. The world's commands find it by `STOCKADE_SOCKET`.
    #[track_caller]
    pub fn start(world: &mut World) -> Self {
        world.set("STOCKADE_SOCKET", Self::socket(world));
        Self::start_again(world)
    }

    /// As `start`, over the state of one that was there before.
    #[track_caller]
    pub fn start_again(world: &World) -> Self {
        let program = programs().join("stockaded");
        assert!(program.exists(), "{} is missing: build stockade-daemon first", program.display());
        let text = format!(
            "state = {:?}\nworkspaces = [{:?}]\ndrain = {DRAIN:?}\n\
             [http]\nenabled = false\n[socket]\npath = {:?}\n",
            world.base().join("state"),
            world.work(),
            Self::socket(world),
        );
        let config = world.plant("service.toml", text);
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL").arg(program).arg("--config").arg(config);
        command.env_clear().envs(world.environment().iter().map(|(name, value)| (name, value)));
        command.current_dir(world.base()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let running = Running::start(command, None);
        running.wait_err("socket: listening on ");
        Self { running: Some(running) }
    }

    pub fn socket(world: &World) -> PathBuf {
        world.base().join("run/stockade.sock")
    }

    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// `kill -9`, and gone when this returns.
    pub fn kill(mut self) {
        // Killed and waited for by its drop.
        drop(self.running.take());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(running) = &self.running else { return };
        running.signal(Signal::TERM);
        // One that does not listen is killed by its own drop.
        let _ended = running.ends_within(LEAVING);
    }
}
