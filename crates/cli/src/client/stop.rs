//! `stockade stop`: each one is asked to end, and ended after its grace. Returns when all were asked.

use clap::Args;
use serde::de::IgnoredAny;
use stockade_executor::Abort;
use stockade_proto::door::{self, method};

use super::door::{Door, SOON};
use super::{SocketOption, list};
use crate::say;

#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Their ids, as `stockade ps` shows them
    #[arg(required_unless_present = "last")]
    ids: Vec<String>,
    /// The one that was started last
    #[arg(long, conflicts_with = "ids")]
    last: bool,
    #[command(flatten)]
    at: SocketOption,
}

pub(super) async fn stop(arguments: &StopArguments) -> Result<u8, Abort> {
    let door = Door::open(arguments.at.socket.as_deref()).await?;
    let ids = if arguments.last { vec![list::last(&door).await?] } else { arguments.ids.clone() };
    // One that can't be stopped does not save the others.
    let mut first = None;
    for id in &ids {
        if let Err(abort) = ask(&door, id).await {
            if ids.len() > 1 {
                say::warning(&format!("{}:", super::text::clean(id)));
            }
            say::abort(&abort);
            first.get_or_insert(say::exit_code(&abort));
        }
    }
    Ok(first.unwrap_or(0))
}

pub(super) async fn ask(door: &Door, id: &str) -> Result<(), Abort> {
    let _answer: IgnoredAny = door.ask(method::STOP, &door::Which { id: id.to_owned() }, SOON).await?;
    Ok(())
}
