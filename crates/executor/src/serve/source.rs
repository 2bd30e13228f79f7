//! Where sandboxes come from: a request goes in, one that is ready for its plan comes out. The only place that
//! knows whether it was made for this request or had been waiting.

use std::sync::Arc;

use stockade_executor::survey::{Outlook, ServiceProfiles};
use stockade_executor::{Abort, Beginning, Kept, Ready, Spare, begin_under, check_ground};
use stockade_proto::Request;
use stockade_proto::link::Place;

/// Under the service's terms.
#[derive(Debug)]
pub(super) struct Source {
    profiles: ServiceProfiles,
    outlook: Arc<Outlook>,
}

impl Source {
    pub(super) fn new(profiles: ServiceProfiles) -> Self {
        Self { profiles, outlook: Arc::new(Outlook::of_a_service()) }
    }

    /// On the execution's own thread, which outlives the sandbox. A spare that does not fit is let go.
    pub(super) fn ready(
        &self,
        request: Request,
        place: Place,
        spare: Option<Spare>,
        kept: &Kept,
    ) -> Result<Ready, Abort> {
        check_ground()?;
        let ready = match begin_under(request, place, &self.profiles, Arc::clone(&self.outlook)) {
            Ok(Beginning::Begun(begun)) => begun.ready_on(spare, kept),
            // Whoever started us could have put us into one.
            Ok(Beginning::NeedsScope(refusal)) => Err(refusal.into()),
            Err(abort) => Err(abort),
        };
        ready.inspect_err(|abort| match abort {
            Abort::Fault(_) => self.failed(),
            Abort::Refusal(_) | Abort::Profile(_) => {}
        })
    }

    /// One that was ready did not start, or none could be made: the host may not be what was seen of it.
    pub(super) fn failed(&self) {
        self.outlook.forget();
    }
}
