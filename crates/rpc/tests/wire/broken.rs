use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use stockade_rpc::{CLOSING, Ending, FrameError, INVALID_REQUEST, Late, Limits, PARSE_ERROR};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{LONG, Raw, request, serve};

fn health(id: &str) -> String {
    request(id, "healthCheck", &json!({}))
}

async fn told(raw: &mut Raw, code: i64) -> String {
    let heard = raw.value().await;
    assert_eq!((&heard["id"], &heard["error"]["code"]), (&Value::Null, &json!(code)), "{heard}");
    heard["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn broken_lines_are_told_and_the_next_one_is_served() {
    let mut served = serve(Limits { frame: 10_000, ..Limits::door() }, 4096);
    let deep = format!("{{\"params\":{}{}}}", "[".repeat(500), "]".repeat(500));
    let long = "x".repeat(50_000);
    let cases: [(&[u8], i64); 10] = [
        (b"nonsense", PARSE_ERROR),
        (b"{\"jsonrpc\":", PARSE_ERROR),
        (b"{\"\xff\":1}", PARSE_ERROR),
        (b"{\"a\":\"\0\"}", PARSE_ERROR),
        (deep.as_bytes(), PARSE_ERROR),
        (long.as_bytes(), INVALID_REQUEST),
        (b"[]", INVALID_REQUEST),
        (b"{}", INVALID_REQUEST),
        (b"7", INVALID_REQUEST),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"m\"}", INVALID_REQUEST),
    ];
    for (bytes, code) in cases {
        served.raw.send(bytes).await;
        served.raw.send("\n").await;
        told(&mut served.raw, code).await;
        served.raw.line(&health("1")).await;
        assert_eq!(served.raw.value().await["result"]["status"], "ok");
    }
}

#[tokio::test]
async fn a_line_without_end_is_told_before_its_end() {
    let mut served = serve(Limits { frame: 10_000, ..Limits::door() }, 4096);
    served.raw.send("x".repeat(20_000)).await;
    told(&mut served.raw, INVALID_REQUEST).await;
    served.raw.send("x".repeat(200_000)).await;
    served.raw.line("").await;
    served.raw.line(&health("1")).await;
    assert_eq!(served.raw.value().await["id"], 1);
}

#[tokio::test]
async fn broken_texts_in_counted_frames_are_told_and_the_next_one_is_served() {
    let mut served = serve(Limits::door(), 4096);
    for text in ["nonsense", "\0", " "] {
        served.raw.counted(text).await;
        assert_eq!(served.raw.counted_value().await["error"]["code"], PARSE_ERROR);
        served.raw.counted(&health("1")).await;
        assert_eq!(served.raw.counted_value().await["id"], 1);
    }
}

#[tokio::test]
async fn a_wrong_length_is_told_and_ends() {
    let frame = 10_000;
    for (length, expected) in
        [(20_000_u32, FrameError::Announced { length: 20_000, limit: frame }), (0, FrameError::Empty)]
    {
        let mut served = serve(Limits { frame, ..Limits::door() }, 4096);
        served.raw.counted(&health("1")).await;
        assert_eq!(served.raw.counted_value().await["id"], 1);
        served.raw.send(length.to_be_bytes()).await;
        // Who is in the middle of writing can finish, and then read why.
        served.raw.send("x".repeat(20_000)).await;
        assert_eq!(served.raw.counted_value().await["error"]["code"], INVALID_REQUEST);
        served.raw.write.shutdown().await.unwrap();
        let Ending::Broken(error) = served.ended().await else { panic!("another ending") };
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn the_other_framing_later_is_refused() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&health("1")).await;
    assert_eq!(served.raw.value().await["id"], 1);
    served.raw.counted(&health("2")).await;
    assert!(told(&mut served.raw, INVALID_REQUEST).await.contains("framing"));
    assert_eq!(served.raw.heard().await, None);
    let mut served = serve(Limits::door(), 4096);
    served.raw.counted(&health("1")).await;
    assert_eq!(served.raw.counted_value().await["id"], 1);
    served.raw.line(&health("2")).await;
    assert_eq!(served.raw.counted_value().await["error"]["code"], INVALID_REQUEST);
    assert_eq!(served.raw.heard().await, None);
}

#[tokio::test]
async fn a_broken_answer_is_not_answered() {
    let mut served = serve(Limits::door(), 4096);
    for broken in [
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":1,"error":{}}"#,
        r#"{"jsonrpc":"2.0","result":1}"#,
        r#"{"id":1,"error":7}"#,
    ] {
        served.raw.line(broken).await;
    }
    served.raw.line(&health("1")).await;
    assert_eq!(served.raw.value().await["id"], 1);
}

#[tokio::test]
async fn a_frame_that_is_cut_off_is_told() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.send([0, 0, 0, 9, b'{']).await;
    served.raw.write.shutdown().await.unwrap();
    assert_eq!(served.raw.counted_value().await["error"]["code"], PARSE_ERROR);
    assert!(matches!(served.ended().await, Ending::Broken(FrameError::CutOff)));
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_first_frame_has_a_deadline() {
    let mut served = serve(Limits::door(), 4096);
    let start = Instant::now();
    assert!(told(&mut served.raw, CLOSING).await.contains("10s"));
    assert!(start.elapsed() >= Duration::from_secs(10));
    assert_eq!(served.raw.heard().await, None);
    assert!(matches!(served.ended().await, Ending::Late(Late::FirstFrame)));
}

#[tokio::test(start_paused = true)]
async fn bytes_that_dribble_have_a_deadline() {
    for start in [health("1").into_bytes(), vec![0, 0, 1, 0, b'{']] {
        let mut served = serve(Limits { first_frame: None, ..Limits::door() }, 4096);
        let began = Instant::now();
        let mut bytes = start.into_iter().cycle();
        // One each second never is a frame in time; the pipe is closed at the deadline.
        let dribble = async {
            loop {
                let byte = [bytes.next().unwrap()];
                if served.raw.write.write_all(&byte).await.is_err() {
                    break;
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(Duration::from_secs(300), dribble).await.expect("it was let dribble");
        assert!(began.elapsed() >= Duration::from_secs(29), "{:?}", began.elapsed());
        assert!(matches!(served.ended().await, Ending::Late(Late::WholeFrame)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_skipped_has_a_deadline_too() {
    let mut served = serve(Limits { frame: 4000, ..Limits::door() }, 4096);
    served.raw.send("x".repeat(5000)).await;
    told(&mut served.raw, INVALID_REQUEST).await;
    told(&mut served.raw, CLOSING).await;
    assert!(matches!(served.ended().await, Ending::Late(Late::WholeFrame)));
}

#[tokio::test(start_paused = true)]
async fn idleness_has_a_deadline_where_one_is_set() {
    let idle = Duration::from_secs(5);
    let mut served = serve(Limits { idle: Some(idle), ..Limits::door() }, 4096);
    // A call that runs is not idle.
    served.raw.line(&request("1", "sleep", &json!({ "ms": 20_000 }))).await;
    assert_eq!(served.raw.value().await["result"], 20_000);
    served.raw.line(&health("2")).await;
    assert_eq!(served.raw.value().await["id"], 2);
    told(&mut served.raw, CLOSING).await;
    assert!(matches!(served.ended().await, Ending::Late(Late::Idle)));
    // Without one, a quiet connection stays.
    let mut served = serve(Limits::door(), 4096);
    served.raw.line(&health("1")).await;
    served.raw.value().await;
    sleep(Duration::from_secs(100_000)).await;
    served.raw.line(&health("2")).await;
    assert_eq!(served.raw.value().await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_let_go() {
    let mut served = serve(Limits { outgoing: 4096, ..Limits::door() }, 1024);
    let ask = request("1", "big", &json!([1000]));
    let mut asked = 0_usize;
    // Past what the pipe and the bounds hold nothing more is read, and then the connection ends.
    let flood = async {
        while served.raw.write.write_all(format!("{ask}\n").as_bytes()).await.is_ok() {
            asked += 1;
            assert!(asked < 100_000, "it reads forever");
        }
    };
    timeout(LONG, flood).await.expect("it was never let go");
    let Ending::Write(error) = served.ended().await else { panic!("another ending") };
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn blank_lines_and_unknown_members_are_nothing() {
    let mut served = serve(Limits::door(), 4096);
    served.raw.send("\n \r\n\t\n").await;
    served.raw.line(r#"{"jsonrpc":"2.0","id":1,"method":"healthCheck","trace":{"a":[]},"trace":1}"#).await;
    assert_eq!(served.raw.value().await["id"], 1);
    // The last line may lack its end.
    served.raw.send(health("2")).await;
    served.raw.write.shutdown().await.unwrap();
    assert_eq!(served.raw.value().await["id"], 2);
}

/// Writes all, reads all, and is over: whatever the bytes are.
async fn survive(bytes: Vec<u8>) {
    let mut served = serve(Limits { frame: 4000, ..Limits::door() }, 512);
    let Raw { read, write } = &mut served.raw;
    let mut heard = Vec::new();
    let write = async {
        match write.write_all(&bytes).await {
            // It may have been enough before.
            Ok(()) | Err(_) => write.shutdown().await,
        }
    };
    let (_written, read) =
        timeout(LONG, async { tokio::join!(write, read.read_to_end(&mut heard)) }).await.expect("it hangs");
    read.unwrap();
    served.ended().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_answered_or_not_and_then_it_is_over(
        bytes in prop::collection::vec(any::<u8>(), 0..6000),
        pieces in prop::collection::vec(prop_oneof![
            Just(health("1").into_bytes()), Just(b"\n".to_vec()), Just(vec![0, 0, 0, 2]), Just(b"{}".to_vec()),
            Just(request("2", "hold", &json!({})).into_bytes()), Just(vec![b'x'; 3000]), Just(vec![0xff]),
        ], 0..60),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(survive(bytes));
        runtime.block_on(survive(pieces.concat()));
    }
}
