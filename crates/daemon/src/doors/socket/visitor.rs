//! One connection's side of the table of methods: who is there, what they may, and which verb a method is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_proto::Code;
use stockade_proto::door::{self, Method, Needs, Nothing, Pace};
use stockade_rpc::{Caller, Context, Error, Params, Service};
use stockade_store::ExecutionId;
use stockade_store::output::Cursor;
use tokio::sync::{Semaphore, watch};

use super::events::Subscriptions;
use super::fields::read;
use super::room::{CONNECTION, units};
use super::{Door, admit, errors};
use crate::core::Core;
use crate::denied::Denied;
use crate::doors::words;
use crate::pipeline;
use crate::principal::{Principal, Scope};

/// For answers that were made before to be taken.
const ROOM_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) door: Arc<Door>,
    pub(super) principal: Principal,
    caller: Caller,
    room: Arc<Semaphore>,
    subscriptions: Subscriptions,
    /// Where the last read of this connection ended: the next one goes straight there.
    last_read: Mutex<Option<(ExecutionId, Cursor)>>,
}

/// Counts while it lives.
struct InFlight<'a>(&'a watch::Sender<usize>);

impl<'a> InFlight<'a> {
    fn new(calls: &'a watch::Sender<usize>) -> Self {
        calls.send_modify(|calls| *calls = calls.saturating_add(1));
        Self(calls)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}

impl Service for Visitor {
    type Answer = Value;

    async fn call(&self, method: &str, params: Params, context: Context) -> Result<Value, Error> {
        let method = Method::find(method).ok_or_else(|| Error::unknown_method(method))?;
        self.may(method)?;
        let _in_flight = InFlight::new(&self.door.calls);
        match method {
            Method::Health => {
                let Nothing {} = read(&params)?;
                errors::answer(&words::health(self.core()))
            }
            Method::StartStage => self.start_stage(&params, &context).await,
            Method::CancelStage => self.cancel_stage(read(&params)?).await,
            Method::Start => self.start(read(&params)?).await,
            Method::Get => self.get(&read(&params)?).await,
            Method::List => self.list(read(&params)?, &context).await,
            Method::Read => self.read(&read(&params)?, &context).await,
            Method::Write => self.write(read(&params)?).await,
            Method::Stop => self.stop(&read(&params)?).await,
            Method::Wait => self.wait(&read(&params)?).await,
            Method::Subscribe => {
                let Nothing {} = read(&params)?;
                let changes = self.core().events.subscribe();
                let subscription = self.subscriptions.subscribe(context.peer(), &self.principal, changes)?;
                errors::answer(&door::Subscription { subscription })
            }
            Method::Unsubscribe => {
                let door::Subscription { subscription } = read(&params)?;
                self.subscriptions.unsubscribe(subscription).await?;
                Ok(json!({}))
            }
        }
    }

    fn urgent(&self, method: &str) -> bool {
        Method::find(method).is_some_and(|method| method.pace() == Pace::Urgent)
    }
}

impl Visitor {
    pub(super) fn new(door: Arc<Door>, caller: Caller, principal: Principal) -> Self {
        let (subscriptions, room) = (Subscriptions::default(), Arc::new(Semaphore::new(CONNECTION)));
        Self { door, principal, caller, room, subscriptions, last_read: Mutex::default() }
    }

    /// Room for an answer of so many bytes, kept until it is written. A short one needs none.
    pub(super) async fn room(&self, context: &Context, bytes: usize) -> Result<(), Error> {
        let units = units(bytes);
        if units <= 1 {
            return Ok(());
        }
        let own = Arc::clone(&self.room).acquire_many_owned(units);
        let both = async { (own.await, self.door.room.take(self.principal.name(), units).await) };
        match tokio::time::timeout(ROOM_WAIT, both).await {
            Ok(both) => {
                context.keep(both);
                Ok(())
            }
            Err(_) => Err(Error::busy("earlier answers were not read yet", ROOM_WAIT)),
        }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.door.core
    }

    fn may(&self, method: Method) -> Result<(), Error> {
        // Connections last for days, and the configuration may name others since.
        admit::admit(self.core(), self.caller)?;
        let allowed = match method.needs() {
            Needs::Nothing => true,
            Needs::Read => self.principal.may(Scope::Read) || self.principal.may(Scope::Execute),
            Needs::Execute => self.principal.may(Scope::Execute),
        };
        if allowed {
            return Ok(());
        }
        let message = format!("{} may not call {}", self.principal.name(), method.name());
        let denied = Denied::refuse(Code::NotPermitted, message, "Ask whoever runs the service.");
        self.core().refused(pipeline::Door::Socket, self.principal.name(), &denied);
        Err(errors::denied(&denied))
    }

    pub(super) fn last_read(&self) -> MutexGuard<'_, Option<(ExecutionId, Cursor)>> {
        self.last_read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::value::RawValue;
    use stockade_proto::door::{CancelStage, Presence, StartStage};

    use super::*;

    /// What a method's own type says to these params.
    fn typed(method: Method, text: &str) -> Result<(), Error> {
        let params = Params::new(Some(RawValue::from_string(text.to_owned()).unwrap()));
        match method {
            Method::Health | Method::Subscribe => read::<Nothing>(&params).map(drop),
            Method::StartStage => read::<StartStage>(&params).map(drop),
            Method::CancelStage => read::<CancelStage>(&params).map(drop),
            Method::Start => read::<door::Start>(&params).map(drop),
            Method::Get | Method::Stop => read::<door::Which>(&params).map(drop),
            Method::List => read::<door::List>(&params).map(drop),
            Method::Read => read::<door::Read>(&params).map(drop),
            Method::Write => read::<door::Write>(&params).map(drop),
            Method::Wait => read::<door::Wait>(&params).map(drop),
            Method::Unsubscribe => read::<door::Subscription>(&params).map(drop),
        }
    }

    #[test]
    fn the_table_has_the_fields_of_the_types() {
        for method in Method::ALL.iter().copied() {
            let error = typed(method, r#"{"no such field": 1}"#).unwrap_err();
            assert_eq!(error.data.unwrap()["field"], "no such field", "{}", method.name());
            // Serde names those that it knows after the one that it does not.
            let known: BTreeSet<&str> = error.message.split('`').skip(3).step_by(2).collect();
            let table: BTreeSet<&str> = method.fields().iter().map(|field| field.name).collect();
            assert_eq!(known, table, "{}: {}", method.name(), error.message);
        }
    }

    #[test]
    fn a_field_that_is_required_is_missed_and_no_other() {
        for method in Method::ALL.iter().copied() {
            let required = method.fields().iter().find(|field| field.presence == Presence::Required);
            match (required, typed(method, "{}")) {
                (None, Ok(())) => {}
                (Some(field), Err(error)) => assert_eq!(error.data.unwrap()["field"], field.name),
                (required, read) => panic!("{}: {required:?}, {read:?}", method.name()),
            }
        }
    }
}
