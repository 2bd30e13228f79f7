//! The text behind `?`, as every route reads it.

use stockade_daemon::fuzz;
use stockade_proto::Code;

use crate::sentence;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let reversed = text.split('&').rev().collect::<Vec<_>>().join("&");
    for (here, there) in fuzz::queries(text).zip(fuzz::queries(&reversed)) {
        assert_eq!(here.is_ok(), there.is_ok(), "the order decides: {text:?}");
        match here {
            Ok(()) => assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text:?} is taken"),
            Err(denied) => {
                assert_eq!(denied.code(), Code::RequestInvalid);
                sentence(denied.message());
                sentence(denied.remedy());
            }
        }
    }
}
