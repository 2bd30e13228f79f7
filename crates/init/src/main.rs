//! PID 1 of every sandbox. The executor starts it inside fresh namespaces with a control socket and
//! the ground in a sealed memfd, and sends the launch when the plan is made; it applies the stages in
//! order, starts the command, reaps, and ends. It decides nothing: every value comes from those two. A service has
//! it stop half-way, as the stem of many (`stem.rs`); `stockade run` starts it before there is a ground (`seed.rs`). Read on
//! in `stages/mod.rs`.

#![no_std]
#![no_main]

mod context;
mod reap;
mod seed;
mod stages;
mod stem;

use stockade_launch::{CONTROL_FD, FromInit, GROUND_FD, MAX_MESSAGE, Stage};
use stockade_nolibc::{Arguments, Fd, is_open, send, write};

use context::{Context, Failure, Origin};

mod entry {
    stockade_nolibc::runtime!(crate::init);
}

/// Exit codes that only a person who starts this by hand, or a test, ever sees.
const BY_HAND: i32 = 64;
const FAILED: i32 = 70;

fn init(arguments: Arguments) -> i32 {
    if arguments.get(1).is_some() || !is_open(CONTROL_FD) {
        return by_hand();
    }
    let (origin, inherited) = if is_open(GROUND_FD) {
        (Origin::Exec, None)
    } else {
        match seed::until_born() {
            Ok((origin, inherited)) => (origin, Some(inherited)),
            Err((stage, failure)) => return report(stage, &failure),
        }
    };
    let mut context = match Context::receive(origin) {
        Ok(context) => context,
        Err(failure) => return report(Stage::Receive, &failure),
    };
    context.inherited = inherited;
    for (stage, apply) in stages::GROUNDWORK {
        if let Err(failure) = apply(&mut context) {
            return report(stage, &failure);
        }
    }
    // From here on each of its inits by itself.
    if context.ground.is_stems()
        && let Err(failure) = stem::until_born(&mut context)
    {
        return report(Stage::Bear, &failure);
    }
    for (stage, apply) in stages::EXECUTION {
        if let Err(failure) = apply(&mut context) {
            return report(stage, &failure);
        }
    }
    match reap::until_the_command_ends(&context) {
        Ok(()) => 0,
        Err(failure) => report(Stage::Reap, &failure),
    }
}

fn report(stage: Stage, failure: &Failure) -> i32 {
    let mut buffer = [0; MAX_MESSAGE];
    let message = FromInit::Failed { stage, errno: failure.errno.0, subject: failure.subject };
    let length = message.encode(&mut buffer);
    match send(&Fd::inherited(CONTROL_FD), &buffer[..length]) {
        Ok(()) => FAILED,
        Err(_) => by_hand(),
    }
}

fn by_hand() -> i32 {
    let sentence = b"stockade-init is started by stockade, inside a sandbox; use `stockade run -- COMMAND`\n";
    match write(&Fd::inherited(2), sentence) {
        Ok(_) | Err(_) => BY_HAND,
    }
}
