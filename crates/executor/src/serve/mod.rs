//! The executor's side of the link (`stockade_proto::link`): one thread serves the words, one thread per execution
//! carries it out on the same core as `stockade run`. When the link ends, for whatever reason, so does everything
//! that came over it.

mod born;
mod carry;
mod donations;
mod executions;
mod service;
mod source;
mod stdin;
mod workers;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use stockade_proto::Cancel;
use stockade_redact::Redactor;
use stockade_rpc::{Connection, Limits, Speak};
use tokio::runtime::Builder;

use born::Born;
use donations::Donations;
use executions::Executions;
use service::Link;
use workers::Workers;

/// Grace of executions whose link is gone: nobody waits for what they would still say.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);
/// Grace of executions when this process alone is told to end.
const TERM_GRACE: Duration = Duration::from_secs(10);
/// For killed trees to be gone and their groups removed. Past it we leave, and what is left of them dies with us.
const KILLED: Duration = Duration::from_secs(15);

const FAILED: u8 = 70;

/// The whole program, to its exit code.
pub(crate) fn executor() -> u8 {
    let born = match born::receive() {
        Ok(born) => born,
        Err(refused) => return refused.say(),
    };
    let served = Redactor::new(&[], true).map_err(io::Error::other).and_then(|redactor| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(born, redactor))
    });
    match served {
        Ok(()) => 0,
        Err(error) => born::say(&format!("the link can't be served: {error}"), FAILED),
    }
}

/// Calls of `execute` last as long as their executions and hold their requests meanwhile; a daemon that is gone
/// leaves nothing to wait for.
fn limits() -> Limits {
    Limits { held: 64 << 20, urgent_calls: 256, after_eof: Duration::ZERO, ..Limits::link() }
}

async fn serve(born: Born, redactor: Redactor) -> io::Result<()> {
    let Born { link, donations, signals, limits: fact } = born;
    let executions = Arc::new(Executions::new());
    let link = tokio::net::UnixStream::from_std(UnixStream::from(link))?;
    let told = signals.when_terminated()?;
    let workers = Arc::new(Workers::new());
    let donated = Arc::new(Donations::default());
    let (known, given) = (Arc::clone(&executions), Arc::clone(&donated));
    let service = Link::new(known, Arc::clone(&workers), given, redactor, fact);
    let connection = Connection::new(link.into_split(), Speak::Likewise, limits(), service);
    let peer = connection.peer().clone();
    let terminated = async {
        if told.await.is_err() {
            // Signals can't be read; the link still can.
            return std::future::pending().await;
        }
        executions.end(Cancel::Terminate, TERM_GRACE, KILLED).await;
        // What ended is answered before the link closes.
        peer.close();
        std::future::pending::<()>().await
    };
    let received = async {
        match donated.receive(donations).await {
            // Over: the link is, too, or will be.
            Ok(()) | Err(_) => donated.close(),
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        // However it ended: there is nobody to tell.
        _ending = connection.run() => {}
        () = received => {}
        () = terminated => {}
    }
    donated.close();
    executions.end(Cancel::Hangup, ORPHAN_GRACE, KILLED).await;
    workers.close(KILLED);
    Ok(())
}
