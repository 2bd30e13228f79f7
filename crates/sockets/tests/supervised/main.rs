//! The supervisor over real processes. Each test starts this very program again as the command behind the
//! filter (`scene`), with a scenario's name in its environment; the scenario makes the calls and asserts what
//! they answer, the test decides and looks at what happened outside.

#![expect(unsafe_code, reason = "a scenario makes calls with pointers that no safe function would pass")]
#![expect(clippy::expect_used, reason = "a test that can't go on has failed, in its helping functions too")]

mod blocking;
mod calls;
mod charges;
mod hostile;
mod identity;
mod powers;
mod races;
mod raw;
mod sends;
mod stage;

/// Not a test by itself: what the command does.
#[test]
fn scene() {
    let Ok(name) = std::env::var(stage::SCENE) else { return };
    let scenarios = [
        calls::SCENES,
        sends::SCENES,
        races::SCENES,
        blocking::SCENES,
        hostile::SCENES,
        identity::SCENES,
        powers::SCENES,
        charges::SCENES,
    ];
    let (_, scenario) =
        scenarios.iter().copied().flatten().find(|(one, _)| *one == name).expect("a scenario of that name");
    stage::enter(*scenario);
}
