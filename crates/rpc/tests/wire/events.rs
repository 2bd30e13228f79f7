use std::sync::Arc;

use serde_json::json;
use stockade_rpc::{BAD_PARAMS, Bounds, Limits, Note, PublishError, SubscribeError, Subscription};
use tokio::time::timeout;

use crate::world::{LONG, Served, request, serve};

async fn subscribe(served: &mut Served) -> Arc<Subscription> {
    served.raw.line(&request("\"s\"", "events/subscribe", &json!({}))).await;
    assert_eq!(served.raw.value().await["id"], "s");
    Arc::clone(served.seen.subscriptions.lock().unwrap().last().unwrap())
}

fn event(number: usize) -> Note {
    Note::new("event", &json!({ "number": number, "text": "x".repeat(200) })).unwrap()
}

#[tokio::test]
async fn a_slow_reader_is_cut_and_the_others_go_on() {
    // Long deadlines: the slow one is slow, not stalled.
    let limits = Limits { outgoing: 2048, stalled: LONG, ..Limits::door() };
    let (mut slow, mut fast) = (serve(limits.clone(), 1024), serve(limits, 1024));
    let (to_slow, to_fast) = (subscribe(&mut slow).await, subscribe(&mut fast).await);
    let mut cut_at = None;
    for round in 0..20 {
        for number in round * 50..(round + 1) * 50 {
            let event = event(number);
            to_fast.publish(&event).unwrap();
            match to_slow.publish(&event) {
                Ok(()) => assert_eq!(cut_at, None, "it went on after the cut"),
                Err(error) => {
                    assert_eq!(error, PublishError::Cut);
                    cut_at = cut_at.or(Some(number));
                }
            }
        }
        for number in round * 50..(round + 1) * 50 {
            assert_eq!(fast.raw.value().await["params"]["number"], number);
        }
    }
    assert!(to_slow.is_cut() && !to_fast.is_cut());
    // It reads again: what was queued, then one last message, and the connection is as good as before.
    for number in 0..cut_at.unwrap() {
        assert_eq!(slow.raw.value().await["params"]["number"], number);
    }
    let last = slow.raw.value().await;
    assert_eq!((&last["method"], &last["params"]["reason"]), (&json!("events/cut"), &json!("too slow")));
    slow.raw.line(&request("1", "healthCheck", &json!({}))).await;
    assert_eq!(slow.raw.value().await["id"], 1);
    // And it may subscribe anew.
    let again = subscribe(&mut slow).await;
    again.publish(&event(7)).unwrap();
    assert_eq!(slow.raw.value().await["params"]["number"], 7);
}

#[tokio::test]
async fn publishing_never_waits_nor_holds_more_than_its_bounds() {
    let served = serve(Limits { outgoing: 2048, stalled: LONG, ..Limits::door() }, 64);
    let last = || Note::new("cut", &json!({})).unwrap();
    let few = served.peer.subscribe(Bounds { messages: 10, bytes: 1 << 20 }, last()).unwrap();
    let small = served.peer.subscribe(Bounds { messages: 1000, bytes: 2000 }, last()).unwrap();
    for subscription in [few, small] {
        // The task that sends them on hasn't run at all: nothing here waits.
        let taken = (0..1000).take_while(|number| subscription.publish(&event(*number)).is_ok()).count();
        assert!(taken <= 10, "{taken}");
    }
}

#[tokio::test]
async fn subscriptions_are_bounded_and_end_with_the_connection() {
    let served = serve(Limits { subscriptions: 2, ..Limits::door() }, 4096);
    let last = || Note::new("cut", &json!({})).unwrap();
    let first = served.peer.subscribe(Bounds::default(), last()).unwrap();
    let second = served.peer.subscribe(Bounds::default(), last()).unwrap();
    let third = served.peer.subscribe(Bounds::default(), last());
    assert_eq!(third.unwrap_err(), SubscribeError::TooMany { bound: 2 });
    // An end gives the place back.
    first.finish().await;
    let third = served.peer.subscribe(Bounds::default(), last()).unwrap();
    drop(served.raw);
    served.peer.closed().await;
    for subscription in [second, third] {
        // Once the task that sends them on has seen the end.
        let wait = async {
            while subscription.publish(&event(1)) != Err(PublishError::Closed) {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, wait).await.expect("it goes on publishing");
        timeout(LONG, subscription.finish()).await.expect("it never ends");
    }
    assert!(served.peer.subscribe(Bounds::default(), last()).is_err());
}

#[tokio::test]
async fn an_event_that_is_too_long_is_refused_alone() {
    let mut served = serve(Limits { frame: 4000, ..Limits::door() }, 4096);
    let to = subscribe(&mut served).await;
    let long = Note::new("event", &json!("x".repeat(5000))).unwrap();
    assert!(matches!(to.publish(&long), Err(PublishError::TooLong { limit: 4000, .. })));
    to.publish(&event(1)).unwrap();
    assert_eq!(served.raw.value().await["params"]["number"], 1);
}

#[tokio::test]
async fn a_stage_reports_progress_then_its_result_and_is_cancelled_meanwhile() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("1", "startStage", &json!({ "id": "a" }))).await;
    for step in 0..5 {
        let heard = served.raw.value().await;
        assert_eq!((&heard["method"], &heard["params"]["step"]), (&json!("stage/progress"), &json!(step)));
    }
    served.seen.until_running(1).await;
    served.raw.line(&request("2", "cancelStage", &json!({ "id": "b" }))).await;
    assert_eq!(served.raw.value().await["error"]["code"], BAD_PARAMS);
    served.raw.line(&request("3", "healthCheck", &json!({}))).await;
    assert_eq!(served.raw.value().await["id"], 3);
    served.raw.line(&request("4", "cancelStage", &json!({ "id": "a" }))).await;
    let mut ids = [served.raw.value().await["id"].as_u64(), served.raw.value().await["id"].as_u64()];
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(4)]);
}

#[tokio::test]
async fn all_progress_comes_before_the_result() {
    let mut served = serve(Limits { outgoing: 256, ..Limits::door() }, 64);
    served.raw.line(&request("1", "startStage", &json!({ "id": "a" }))).await;
    served.seen.until_running(1).await;
    served.raw.line(&request("2", "cancelStage", &json!({ "id": "a" }))).await;
    let mut steps = 0;
    let result = timeout(LONG, async {
        loop {
            let heard = served.raw.value().await;
            match (heard["method"].as_str(), heard["id"].as_u64()) {
                (Some("stage/progress"), _) => steps += 1,
                (_, Some(1)) => break heard,
                _ => {}
            }
        }
    });
    assert_eq!(result.await.unwrap()["result"]["outcome"], "cancelled");
    assert_eq!(steps, 5);
}
