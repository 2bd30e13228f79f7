//! The one JSON-RPC 2.0 peer of the project: behind the Unix-socket door, between the daemon and its
//! executors, and towards agents over stdio. Both sides may ask, at any time and any number at once within
//! bounds. It carries words and knows none: who may do what is the business of the [`Service`] behind it.
//!
//! The way of a byte: [`listen`](Listener) admits a connection by who the kernel says it is, `read` and
//! [`frame`] cut frames, [`message`] reads them, `serve` starts calls and passes answers on, `write` writes.
//! Every wait on that way has a deadline and every buffer a bound, all of them in [`Limits`].
//!
//! ```
//! use serde_json::{Value, json};
//! use std::time::Duration;
//! use stockade_rpc::{Connection, Context, Error, Framing, Limits, Params, Service, Speak};
//!
//! struct Door { user: u32 }
//!
//! impl Service for Door {
//!     type Answer = Value;
//!
//!     async fn call(&self, method: &str, params: Params, _: Context) -> Result<Value, Error> {
//!         #[derive(serde::Deserialize)]
//!         struct Greet { name: String }
//!         match method {
//!             "greet" => Ok(json!({ "text": format!("{} from {}", params.read::<Greet>()?.name, self.user) })),
//!             _ => Err(Error::unknown_method(method)),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (here, there) = tokio::io::duplex(4096);
//! let server = Connection::new(tokio::io::split(here), Speak::Likewise, Limits::door(), Door { user: 7 });
//! tokio::spawn(server.run());
//! let client = Connection::new(tokio::io::split(there), Speak::This(Framing::Lines), Limits::client(), Door { user: 0 });
//! let peer = client.peer().clone();
//! tokio::spawn(client.run());
//! let answer = peer.call("greet", &json!({ "name": "you" }), Duration::from_secs(5)).await.unwrap();
//! assert_eq!(answer.get(), r#"{"text":"you from 7"}"#);
//! peer.close();
//! peer.closed().await;
//! # }
//! ```

mod error;
pub mod frame;
mod limits;
mod listen;
mod lock;
pub mod message;
mod peer;
mod read;
mod serve;
mod service;
mod share;
mod subscribe;
mod write;

pub use error::{
    BAD_PARAMS, BUSY, CLOSING, Error, INTERNAL, INVALID_REQUEST, PARSE_ERROR, Params, REFUSED,
    UNKNOWN_METHOD, params,
};
pub use frame::{Codec, FrameError, Framing, MAX_FRAME};
pub use limits::Limits;
pub use listen::{Admitted, Caller, ListenError, Listener, Places, Seat};
pub use message::Id;
pub use peer::{Asked, CallError, Peer};
/// What answers are kept as, and how one is made that is written once.
pub use serde_json::value::{RawValue, to_raw_value};
pub use service::{Connection, Context, Ending, Late, Service, Speak};
pub use share::Share;
pub use subscribe::{Bounds, Note, PublishError, SubscribeError, Subscription};
