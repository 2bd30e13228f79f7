use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use stockade_rpc::{BAD_PARAMS, BUSY, CLOSING, CallError, Ending, Framing, INTERNAL, Limits, UNKNOWN_METHOD};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::world::{LONG, pair, request, serve};

const BOTH: [Framing; 2] = [Framing::Lines, Framing::Lengths];

#[tokio::test(start_paused = true)]
async fn two_hundred_calls_at_once_answer_in_their_own_time() {
    for framing in BOTH {
        let (peer, _notes, _seen, _ending) = pair(framing, Limits::door());
        let mut calls = JoinSet::new();
        for index in 0..200_u64 {
            let peer = peer.clone();
            calls.spawn(async move {
                // The later asked, the sooner answered.
                let ms = (200 - index) * 10;
                let answer = peer.call("sleep", &json!({ "ms": ms }), LONG).await.unwrap();
                assert_eq!(answer.get(), ms.to_string());
                ms
            });
        }
        let order = calls.join_all().await;
        assert!(order.len() == 200 && order.is_sorted(), "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_overtake_each_other() {
    let mut served = serve(Limits::door(), 4096);
    for (id, ms) in [("1", 300), ("2", 200), ("3", 100)] {
        served.raw.line(&request(id, "sleep", &json!({ "ms": ms }))).await;
    }
    for id in [3, 2, 1] {
        assert_eq!(served.raw.value().await["id"], id);
    }
}

#[tokio::test]
async fn both_sides_ask_in_both_framings() {
    for framing in BOTH {
        let (peer, _notes, _seen, _ending) = pair(framing, Limits::door());
        let answer = peer.call("ask", &json!({}), LONG).await.unwrap();
        assert_eq!(answer.get(), r#"{"heard":"{\"back\":1}"}"#);
    }
}

#[tokio::test]
async fn both_framings_are_spoken_back() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.counted(&request("7", "echo", &json!({ "a": "\n" }))).await;
    assert_eq!(served.raw.counted_value().await["result"], json!({ "a": "\n" }));
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("7", "echo", &json!({ "a": "\n" }))).await;
    assert_eq!(served.raw.value().await["result"], json!({ "a": "\n" }));
}

#[tokio::test]
async fn ids_of_all_kinds_come_back_to_the_letter() {
    let mut served = serve(Limits::door(), 4096);
    for id in ["0", "-7", "1.50", "1E400", "98765432109876543210", "\"\"", r#""\u00e9\\""#] {
        served.raw.line(&request(id, "healthCheck", &json!({}))).await;
        let heard = served.raw.heard().await.unwrap();
        assert!(heard.contains(&format!("\"id\":{id},")), "{id}: {heard}");
    }
    served.raw.line(&request("null", "healthCheck", &json!({}))).await;
    let refused = served.raw.value().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_told() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("1", r"no\u001bsuch", &json!({}))).await;
    let error = served.raw.value().await["error"].clone();
    assert_eq!(error["code"], UNKNOWN_METHOD);
    assert_eq!(error["message"], r#"unknown method "no\u{1b}such""#);
    served.raw.line(&request("2", "sleep", &json!({ "ms": "x" }))).await;
    let error = served.raw.value().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["field"]), (&json!(BAD_PARAMS), &json!("ms")));
    served.raw.line(&request("3", "sleep", &json!({}))).await;
    assert_eq!(served.raw.value().await["error"]["data"]["field"], "ms");
    served.raw.line(&request("4", "sleep", &json!(7))).await;
    let error = served.raw.value().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["field"]), (&json!(BAD_PARAMS), &json!("params")));
}

#[tokio::test]
async fn past_the_bound_a_call_is_told_to_come_back_and_health_is_not() {
    let mut served = serve(Limits { calls: 2, ..Limits::door() }, 4096);
    for id in ["1", "2"] {
        served.raw.line(&request(id, "hold", &json!({}))).await;
    }
    served.seen.until_running(2).await;
    served.raw.line(&request("3", "hold", &json!({}))).await;
    let busy = served.raw.value().await;
    assert_eq!((&busy["id"], &busy["error"]["code"]), (&json!(3), &json!(BUSY)));
    assert!(busy["error"]["data"]["retry_after_ms"].as_u64().unwrap() > 0);
    served.raw.line(&request("4", "healthCheck", &json!({}))).await;
    assert_eq!(served.raw.value().await["result"]["status"], "ok");
    served.seen.release.notify_waiters();
    for _ in 0..2 {
        assert_eq!(served.raw.value().await["result"], "released");
    }
    served.raw.line(&request("5", "sleep", &json!({ "ms": 0 }))).await;
    assert_eq!(served.raw.value().await["result"], 0);
}

#[tokio::test]
async fn calls_that_hold_much_are_bounded_in_bytes() {
    let mut served = serve(Limits { held: 2000, ..Limits::door() }, 8192);
    // Alone it is taken, however large.
    served.raw.line(&request("1", "hold", &json!({ "x": "x".repeat(3000) }))).await;
    served.seen.until_running(1).await;
    served.raw.line(&request("2", "sleep", &json!({ "ms": 0 }))).await;
    assert_eq!(served.raw.value().await["error"]["code"], BUSY);
    served.raw.line(&request("3", "healthCheck", &json!({}))).await;
    assert_eq!(served.raw.value().await["result"]["status"], "ok");
}

/// In the clock's own time, which only passes when everyone waits: health waits for nobody.
#[tokio::test(start_paused = true)]
async fn health_answers_at_once_while_many_calls_run() {
    let (peer, _notes, _seen, _ending) = pair(Framing::Lines, Limits::door());
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let peer = peer.clone();
        calls.spawn(async move { peer.call("sleep", &json!({ "ms": 10_000 }), LONG).await.unwrap() });
    }
    for _ in 0..20 {
        let start = Instant::now();
        peer.call("healthCheck", &json!({}), LONG).await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    }
    assert_eq!(calls.join_all().await.len(), 64);
}

#[tokio::test]
async fn a_client_that_vanishes_cancels_its_calls() {
    let mut served = serve(Limits { after_eof: Duration::ZERO, ..Limits::door() }, 4096);
    for id in ["1", "2", "3"] {
        served.raw.line(&request(id, "hold", &json!({}))).await;
    }
    served.seen.until_running(3).await;
    let seen = std::sync::Arc::clone(&served.seen);
    let (raw, ending) = (served.raw, served.ending);
    drop(raw);
    assert!(matches!(ending.await.unwrap(), Ending::Gone));
    assert_eq!((seen.running.load(Ordering::SeqCst), seen.dropped.load(Ordering::SeqCst)), (0, 3));
    assert!(served.peer.is_closed());
    assert_eq!(served.peer.call("echo", &json!({}), LONG).await.unwrap_err(), CallError::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_sends_no_more_gets_its_answers() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("1", "sleep", &json!({ "ms": 500 }))).await;
    served.raw.write.shutdown().await.unwrap();
    assert_eq!(served.raw.value().await["result"], 500);
    assert_eq!(served.raw.heard().await, None);
    assert!(matches!(served.ended().await, Ending::Gone));
}

#[tokio::test]
async fn dropping_the_connection_ends_everything() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("1", "hold", &json!({}))).await;
    served.seen.until_running(1).await;
    served.ending.abort();
    served.seen.until_running(0).await;
    assert_eq!(served.raw.heard().await, None);
    served.peer.closed().await;
}

#[tokio::test]
async fn closing_lets_calls_finish_and_begins_none() {
    let mut served = serve(Limits { drain: LONG, ..Limits::door() }, 4096);
    served.raw.line(&request("1", "hold", &json!({}))).await;
    served.seen.until_running(1).await;
    served.peer.close();
    // Closing is seen at the latest when the next request is answered with it.
    let mut id = 2;
    loop {
        served.raw.line(&request(&id.to_string(), "sleep", &json!({ "ms": 0 }))).await;
        let heard = served.raw.value().await;
        assert_eq!(heard["id"], id);
        if heard["error"]["code"] == CLOSING {
            break;
        }
        id += 1;
        assert!(id < 1000, "never closing");
    }
    served.seen.release.notify_waiters();
    assert_eq!(served.raw.value().await["result"], "released");
    assert_eq!(served.raw.heard().await, None);
    assert!(matches!(served.ended().await, Ending::Closed));
}

#[tokio::test(start_paused = true)]
async fn closing_has_a_deadline() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&request("1", "hold", &json!({}))).await;
    served.seen.until_running(1).await;
    served.peer.close();
    let start = Instant::now();
    assert_eq!(served.raw.heard().await, None);
    assert!(start.elapsed() >= Limits::door().drain);
    assert_eq!(served.seen.dropped.load(Ordering::SeqCst), 1);
    assert!(matches!(served.ended().await, Ending::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_call_of_ours_has_a_deadline_and_its_late_answer_is_ignored() {
    let mut served = serve(Limits { pending: 1, ..Limits::door() }, 4096);
    let within = Duration::from_millis(50);
    let late = served.peer.call("anything", &json!({}), within).await;
    assert_eq!(late.unwrap_err(), CallError::TimedOut { within });
    let asked = served.raw.value().await;
    let answer =
        |id: &Value, result: u32| json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    let peer = served.peer.clone();
    let second = tokio::spawn(async move { peer.call("more", &json!([1]), LONG).await });
    let again = served.raw.value().await;
    assert_ne!(asked["id"], again["id"]);
    assert!(matches!(
        served.peer.call("third", &json!({}), LONG).await,
        Err(CallError::TooMany { bound: 1 })
    ));
    served.raw.line(&answer(&asked["id"], 1)).await;
    served.raw.line(&answer(&json!("nobody's"), 2)).await;
    served.raw.line(&answer(&again["id"], 3)).await;
    assert_eq!(second.await.unwrap().unwrap().get(), "3");
}

#[tokio::test]
async fn an_error_answers_a_call_of_ours() {
    let mut served = serve(Limits::door(), 4096);
    let peer = served.peer.clone();
    let call = tokio::spawn(async move { peer.call("m", &json!({}), LONG).await });
    let id = served.raw.value().await["id"].clone();
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": 5, "message": "no" } });
    served.raw.line(&error.to_string()).await;
    let CallError::Answered(error) = call.await.unwrap().unwrap_err() else { panic!("another error") };
    assert_eq!((error.code, error.message.as_str()), (5, "no"));
}

#[tokio::test]
async fn a_call_of_ours_ends_with_the_connection() {
    let served = serve(Limits::door(), 4096);
    let peer = served.peer.clone();
    let call = tokio::spawn(async move { peer.call("m", &json!({}), LONG).await });
    drop(served.raw);
    assert_eq!(call.await.unwrap().unwrap_err(), CallError::Closed);
}

#[tokio::test]
async fn an_answer_that_is_too_long_says_so() {
    let mut served = serve(Limits { frame: 4000, ..Limits::door() }, 4096);
    served.raw.line(&request("1", "big", &json!([5000]))).await;
    let heard = served.raw.value().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(1), &json!(INTERNAL)));
    let long = served.peer.notify("m", &"x".repeat(5000)).await.unwrap_err();
    assert!(matches!(long, CallError::TooLong { limit: 4000, .. }));
    served.raw.line(&request("2", "big", &json!([900]))).await;
    assert_eq!(served.raw.value().await["result"].as_str().unwrap().len(), 900);
}

#[tokio::test]
async fn notifications_come_in_order_and_past_their_bound_nothing_is_read() {
    let mut served = serve(Limits { notifications: 2, ..Limits::door() }, 256);
    let note = |method: &str, n: u32| format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":[{n}]}}"#);
    served.raw.line(&note("slow", 0)).await;
    let raw = &mut served.raw;
    let flood = async {
        for n in 1..100 {
            raw.line(&note("note", n)).await;
        }
    };
    // The slow one is waited for: the flood stands still in the pipe.
    let stuck = tokio::time::timeout(Duration::from_millis(100), flood).await;
    assert!(stuck.is_err(), "all was read");
    assert!(served.seen.notes.lock().unwrap().is_empty());
    served.seen.release.notify_one();
    served.seen.until("some came", |seen| seen.notes.lock().unwrap().len() >= 3).await;
    let notes = served.seen.notes.lock().unwrap().clone();
    for (index, (_, params)) in notes.iter().enumerate() {
        assert_eq!(params.as_deref(), Some(format!("[{index}]").as_str()));
    }
}

#[tokio::test]
async fn notifications_go_both_ways_in_order() {
    let (peer, mut notes, seen, _ending) = pair(Framing::Lengths, Limits::door());
    for number in 0..50 {
        peer.notify("note", &json!([number])).await.unwrap();
    }
    seen.until("all came", |seen| seen.notes.lock().unwrap().len() == 50).await;
    let came: Vec<_> = seen.notes.lock().unwrap().iter().filter_map(|(_, params)| params.clone()).collect();
    assert_eq!(came, (0..50).map(|number| format!("[{number}]")).collect::<Vec<_>>());
    let stage = tokio::spawn({
        let peer = peer.clone();
        async move { peer.call("startStage", &json!({ "id": "a" }), LONG).await }
    });
    for step in 0..5 {
        let (method, params) = notes.recv().await.unwrap();
        assert_eq!((method.as_str(), &params["step"]), ("stage/progress", &json!(step)));
    }
    seen.until_running(1).await;
    peer.call("cancelStage", &json!({ "id": "a" }), LONG).await.unwrap();
    assert!(stage.await.unwrap().unwrap().get().contains("cancelled"));
}

/// However low the limit is set, whoever is refused can be told.
#[tokio::test]
async fn an_error_fits_with_the_longest_id_and_the_lowest_limit() {
    let mut served = serve(Limits { frame: 1, ..Limits::door() }, 4096);
    let id = format!("\"{}\"", "x".repeat(1022));
    served.raw.line(&request(&id, &"\u{202e}".repeat(100), &json!({}))).await;
    assert_eq!(served.raw.value().await["id"].as_str().unwrap().len(), 1022);
    served.raw.line(&request(&id, "big", &json!([5000]))).await;
    assert_eq!(served.raw.value().await["error"]["code"], INTERNAL);
}
