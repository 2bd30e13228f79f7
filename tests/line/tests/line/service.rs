//! The command line and a real service: the verbs that ask it, and `run --via`, which must be like a run without it.

mod asking;
mod gone;
mod via;

use stockade_line_tests::{Line, Service, World};

/// A world with a service in it. The service ends before its world.
struct Ground {
    service: Option<Service>,
    world: World,
}

impl Ground {
    fn new() -> Self {
        let mut world = World::new();
        std::fs::create_dir(world.base().join("run")).expect("a fresh directory");
        world.profile("patient", "extends = \"default\"\n[limits]\ngrace = \"10m\"\n");
        world.profile("hasty", "extends = \"default\"\n[limits]\ngrace = \"200ms\"\n");
        let service = Service::start(&mut world);
        Self { service: Some(service), world }
    }

    /// `stockade run --via -- sh -c SCRIPT`.
    fn sh(&self, script: &str) -> Line<'_> {
        self.world.sh(script).flag("--via")
    }

    fn cli(&self, words: &[&str]) -> Line<'_> {
        self.world.cli(words)
    }

    /// Executions, newest first, as `ps --json` lists them.
    #[track_caller]
    fn listed(&self, words: &[&str]) -> Vec<serde_json::Value> {
        let ran = self.cli(&[&["ps", "--json"], words].concat()).go().ends_with(0);
        ran.out().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The id of the newest.
    #[track_caller]
    fn last(&self) -> String {
        let listed = self.listed(&["--all", "--limit", "1"]);
        listed[0]["id"].as_str().expect("an id").to_owned()
    }

    /// Waits until the newest execution of all runs.
    #[track_caller]
    fn running(&self) -> String {
        stockade_line_tests::until("an execution that runs", || {
            let listed = self.listed(&["--state", "running"]);
            Some(listed.first()?["id"].as_str()?.to_owned())
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.service.take());
    }
}
