//! Who may start now: so many executions at once in all and of one principal, a queue with a bound and a
//! deadline before them. The next place goes to whoever waits longest among those with the fewest running, so that
//! nobody's thousand requests keep out another's first. Next: `record`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stockade_proto::Code;
use tokio::sync::oneshot;

use crate::denied::Denied;
use crate::principal::{Principal, Scope};

/// How many at once, and for how long others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub running: usize,
    pub each_principal: usize,
    pub waiting: usize,
    pub wait: Duration,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { running: 64, each_principal: 48, waiting: 1024, wait: Duration::from_secs(30) }
    }
}

#[derive(Debug, Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity: Capacity,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    of: HashMap<String, usize>,
    waiting: VecDeque<Waiting>,
    draining: bool,
}

#[derive(Debug)]
struct Waiting {
    principal: String,
    go: oneshot::Sender<Result<Seat, Denied>>,
}

/// A place among those that run; given back when it is dropped.
#[derive(Debug)]
pub struct Seat {
    shared: Arc<Shared>,
    /// None once it is given back.
    principal: Option<String>,
}

/// A seat that its caller has and another may take. Dropped, it is given back, unless it was taken.
#[derive(Debug)]
pub(crate) struct Offer(Offered);

/// The other's view of it.
#[derive(Debug, Clone)]
pub(crate) struct Offered(Arc<Mutex<Option<Seat>>>);

impl Seat {
    pub(crate) fn offer(self) -> (Offer, Offered) {
        let offered = Offered(Arc::new(Mutex::new(Some(self))));
        (Offer(offered.clone()), offered)
    }
}

impl Offered {
    /// Once. None where the caller has left.
    pub(crate) fn take(&self) -> Option<Seat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// How full it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub running: usize,
    pub waiting: usize,
    pub capacity: usize,
    pub draining: bool,
}

impl Admission {
    pub fn new(capacity: Capacity) -> Self {
        Self { shared: Arc::new(Shared { capacity, state: Mutex::default() }) }
    }

    /// A seat, or why not. Dropped while it waits, it leaves the queue.
    pub async fn admit(&self, principal: &Principal) -> Result<Seat, Denied> {
        if !principal.may(Scope::Execute) {
            return Err(Denied::refuse(
                Code::NotPermitted,
                format!("{} may not start executions", principal.name()),
                "Use a token with the scope `execute`: stockade token create NAME --scope execute",
            ));
        }
        let come = match self.shared.ask(principal.name())? {
            Asked::Seated(seat) => return Ok(seat),
            Asked::Waits(come) => come,
        };
        match tokio::time::timeout(self.shared.capacity.wait, come).await {
            Ok(Ok(told)) => told,
            // The queue was emptied: we are stopping.
            Ok(Err(_)) => Err(draining()),
            Err(_) => Err(busy("no place became free in time")),
        }
    }

    pub fn load(&self) -> Load {
        let state = self.shared.state();
        Load {
            running: state.running,
            waiting: state.waiting.len(),
            capacity: self.shared.capacity.running,
            draining: state.draining,
        }
    }

    /// Nobody is admitted any more, and those that wait are told.
    pub fn drain(&self) {
        let mut state = self.shared.state();
        state.draining = true;
        state.waiting.clear();
    }
}

enum Asked {
    Seated(Seat),
    Waits(oneshot::Receiver<Result<Seat, Denied>>),
}

fn busy(why: &str) -> Denied {
    Denied::refuse(
        Code::TooBusy,
        format!("too many executions: {why}"),
        "Try again later, or raise `[admission]` in the service's configuration.",
    )
    .after(Duration::from_secs(1))
}

fn draining() -> Denied {
    Denied::refuse(Code::Draining, "the service is stopping", "Try again when it is back.")
        .after(Duration::from_secs(5))
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, principal: &str) -> Result<Asked, Denied> {
        let mut state = self.state();
        if state.draining {
            return Err(draining());
        }
        if state.has_room(&self.capacity, principal) {
            state.seat(principal);
            return Ok(Asked::Seated(Seat {
                shared: Arc::clone(self),
                principal: Some(principal.to_owned()),
            }));
        }
        // Those that gave up hold no place in the queue.
        state.waiting.retain(|waiting| !waiting.go.is_closed());
        if state.waiting.len() >= self.capacity.waiting && !state.make_way(principal) {
            return Err(busy("the queue is full"));
        }
        let (go, come) = oneshot::channel();
        state.waiting.push_back(Waiting { principal: principal.to_owned(), go });
        Ok(Asked::Waits(come))
    }

    /// Gives free places away.
    fn next(self: &Arc<Self>, state: &mut State) {
        while let Some(waiting) = state.first(&self.capacity).and_then(|at| state.waiting.remove(at)) {
            if waiting.go.is_closed() {
                continue;
            }
            state.seat(&waiting.principal);
            let seat = Seat { shared: Arc::clone(self), principal: Some(waiting.principal) };
            if let Err(Ok(mut seat)) = waiting.go.send(Ok(seat)) {
                // Gone between the two: its place is taken back here, under the lock that its drop would want.
                if let Some(principal) = seat.principal.take() {
                    state.leave(&principal);
                }
            }
        }
    }
}

impl State {
    fn has_room(&self, capacity: &Capacity, principal: &str) -> bool {
        let of = self.of.get(principal).copied().unwrap_or(0);
        self.running < capacity.running && of < capacity.each_principal
    }

    /// Whose turn it is.
    fn first(&self, capacity: &Capacity) -> Option<usize> {
        let running = |waiting: &Waiting| self.of.get(&waiting.principal).copied().unwrap_or(0);
        let fits = |waiting: &Waiting| self.has_room(capacity, &waiting.principal);
        let all = self.waiting.iter().enumerate().filter(|(_, waiting)| fits(waiting));
        // The first of several that are as small.
        all.min_by_key(|(_, waiting)| running(waiting)).map(|(at, _)| at)
    }

    /// In a full queue, who has most of it loses the last of their places to one who has clearly less.
    fn make_way(&mut self, principal: &str) -> bool {
        let mut places: HashMap<&str, usize> = HashMap::new();
        for waiting in &self.waiting {
            *places.entry(&waiting.principal).or_default() += 1;
        }
        let own = places.get(principal).copied().unwrap_or(0);
        let most = places.into_iter().max_by_key(|(_, places)| *places);
        let Some((heaviest, _)) = most.filter(|(_, most)| *most > own + 1) else { return false };
        let Some(at) = self.waiting.iter().rposition(|waiting| waiting.principal == heaviest) else {
            return false;
        };
        let Some(waiting) = self.waiting.remove(at) else { return false };
        match waiting.go.send(Err(busy("the queue is full, and others have less of it"))) {
            // An error: it had left by itself.
            Ok(()) | Err(_) => true,
        }
    }

    fn seat(&mut self, principal: &str) {
        self.running += 1;
        *self.of.entry(principal.to_owned()).or_default() += 1;
    }

    fn leave(&mut self, principal: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(of) = self.of.get_mut(principal) {
            *of = of.saturating_sub(1);
            if *of == 0 {
                self.of.remove(principal);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(principal) = self.principal.take() else { return };
        let mut state = self.shared.state();
        state.leave(&principal);
        self.shared.next(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(name: &str) -> Principal {
        Principal::new(name, [Scope::Execute])
    }

    fn admission(running: usize, each: usize, waiting: usize) -> Admission {
        let wait = Duration::from_secs(5);
        Admission::new(Capacity { running, each_principal: each, waiting, wait })
    }

    #[tokio::test]
    async fn a_principal_at_its_bound_waits_and_others_pass() {
        let admission = admission(3, 1, 8);
        let first = admission.admit(&principal("a")).await.unwrap();
        let again = tokio::spawn({
            let admission = admission.clone();
            async move { admission.admit(&principal("a")).await }
        });
        while admission.load().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let other = admission.admit(&principal("b")).await.unwrap();
        drop(first);
        let second = again.await.unwrap().unwrap();
        assert_eq!((admission.load().running, admission.load().waiting), (2, 0));
        drop((second, other));
        assert_eq!(admission.load().running, 0);
        assert!(admission.shared.state().of.is_empty());
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_those_who_left_do_not_count() {
        let admission = admission(1, 1, 1);
        let seat = admission.admit(&principal("a")).await.unwrap();
        {
            let waiting = principal("b");
            let waits = admission.admit(&waiting);
            tokio::pin!(waits);
            assert!(tokio::time::timeout(Duration::from_millis(1), &mut waits).await.is_err());
            let refused = admission.admit(&principal("c")).await.unwrap_err();
            assert_eq!(refused.code(), Code::TooBusy);
            assert!(refused.retry_after.is_some());
        }
        let waits = tokio::spawn({
            let admission = admission.clone();
            async move { admission.admit(&principal("d")).await }
        });
        while admission.load().waiting == 0 {
            tokio::task::yield_now().await;
        }
        drop(seat);
        assert!(waits.await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn who_has_all_places_makes_way_for_others() {
        let admission = admission(2, 2, 3);
        let wait = |name: &'static str| {
            let admission = admission.clone();
            tokio::spawn(async move { admission.admit(&principal(name)).await })
        };
        let queued = async |count: usize| {
            while admission.load().waiting != count {
                tokio::task::yield_now().await;
            }
        };
        let one = admission.admit(&principal("greedy")).await.unwrap();
        let _two = admission.admit(&principal("greedy")).await.unwrap();
        let first = wait("greedy");
        queued(1).await;
        let second = wait("greedy");
        queued(2).await;
        let third = wait("greedy");
        queued(3).await;
        // The queue is full, and all of it is one's.
        let modest = wait("modest");
        assert_eq!(third.await.unwrap().unwrap_err().code(), Code::TooBusy);
        assert_eq!(admission.admit(&principal("greedy")).await.unwrap_err().code(), Code::TooBusy);
        // It came last, has nothing, and is next.
        drop(one);
        let seat = modest.await.unwrap().unwrap();
        assert!(!first.is_finished() && !second.is_finished());
        drop(seat);
        assert!(first.await.unwrap().is_ok());
        drop(second);
    }

    #[tokio::test]
    async fn draining_tells_those_that_wait() {
        let admission = admission(1, 1, 1);
        let _seat = admission.admit(&principal("a")).await.unwrap();
        let waits = tokio::spawn({
            let admission = admission.clone();
            async move { admission.admit(&principal("b")).await }
        });
        while admission.load().waiting == 0 {
            tokio::task::yield_now().await;
        }
        admission.drain();
        assert_eq!(waits.await.unwrap().unwrap_err().code(), Code::Draining);
        assert_eq!(admission.admit(&principal("c")).await.unwrap_err().code(), Code::Draining);
    }

    #[tokio::test]
    async fn an_offered_seat_is_the_callers_until_it_is_taken() {
        let admission = admission(2, 2, 1);
        let (left, offered) = admission.admit(&principal("a")).await.unwrap().offer();
        drop(left);
        assert!(offered.take().is_none());
        assert_eq!(admission.load().running, 0, "whoever looks at it still is in nobody's way");
        let (offer, offered) = admission.admit(&principal("a")).await.unwrap().offer();
        let seat = offered.take();
        drop((offer, offered));
        assert_eq!(admission.load().running, 1);
        drop(seat);
        assert_eq!(admission.load().running, 0);
    }

    #[tokio::test]
    async fn reading_is_not_starting() {
        let reader = Principal::new("r", [Scope::Read]);
        assert_eq!(admission(1, 1, 1).admit(&reader).await.unwrap_err().code(), Code::NotPermitted);
    }
}
