//! Who sends an HTTP request: the shared secret, a bearer token, or, where the service has no secret and so serves
//! loopback only, whoever is on this machine. A web page in somebody's browser is on this machine too, and is not
//! who is meant: pages show themselves by `Origin`, or by a name in `Host` that leads here (DNS rebinding).

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use super::listen::has_secret;
use crate::core::Core;
use crate::denied::Denied;
use crate::principal::{Principal, Scope};
use crate::record::failed;

/// Set by browsers, and not to be set by pages; `none` is a person who typed the address.
const FETCH_SITE: &str = "sec-fetch-site";

pub const SECRET_HEADER: &str = "x-executor-secret";

/// Why a request has no principal.
#[derive(Debug)]
pub enum NoPrincipal {
    Unauthorized,
    /// It has no credential and comes from a web page.
    Page,
    /// The store of tokens can't be asked.
    Denied(Denied),
}

/// Who can reach the socket. The configuration may be read again and have no secret any more, the socket stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Loopback,
    Others,
}

/// A wrong credential is never overlooked for a right one beside it; of two right ones the token says who it is.
pub async fn authenticate(core: &Core, reach: Reach, headers: &HeaderMap) -> Result<Principal, NoPrincipal> {
    let config = core.config();
    let door = config.http.as_ref().filter(|door| has_secret(door));
    let secret = door.and_then(|door| door.secret.as_ref());
    // Of two, a proxy before us may have judged the other one.
    if [SECRET_HEADER, AUTHORIZATION.as_str(), HOST.as_str()].iter().any(|name| is_twice(headers, name)) {
        return Err(NoPrincipal::Unauthorized);
    }
    let shown = headers.get(SECRET_HEADER).map(HeaderValue::as_bytes);
    let token = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    match (shown, token, secret) {
        // Another scheme is a proxy's own.
        (Some(shown), token, Some(secret)) if same(shown, secret) => match token.filter(|it| is_bearer(it)) {
            None => Ok(Principal::new("http:secret", [Scope::Execute, Scope::Read])),
            Some(token) => bearer(core, token).await,
        },
        (Some(_), _, Some(_)) => Err(NoPrincipal::Unauthorized),
        (_, Some(token), _) => bearer(core, token).await,
        (_, None, Some(_)) => Err(NoPrincipal::Unauthorized),
        (_, None, None) if reach == Reach::Others => Err(NoPrincipal::Unauthorized),
        (_, None, None) if from_a_page(headers) => Err(NoPrincipal::Page),
        (_, None, None) => Ok(Principal::new("http:local", [Scope::Execute, Scope::Read])),
    }
}

fn is_bearer(header: &[u8]) -> bool {
    header.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
}

fn is_twice(headers: &HeaderMap, name: &str) -> bool {
    headers.get_all(name).iter().nth(1).is_some()
}

fn same(shown: &[u8], secret: &SecretString) -> bool {
    bool::from(shown.ct_eq(secret.expose_secret().as_bytes()))
}

async fn bearer(core: &Core, header: &[u8]) -> Result<Principal, NoPrincipal> {
    let text = std::str::from_utf8(header).ok();
    let token = text
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token else { return Err(NoPrincipal::Unauthorized) };
    let token = SecretString::from(token.trim());
    let known = core
        .record
        .blocking(move |store| store.tokens.check(token.expose_secret()).map_err(|error| failed(&error)))
        .await
        .map_err(NoPrincipal::Denied)?;
    let known = known.ok_or(NoPrincipal::Unauthorized)?;
    let scopes = known.scopes.iter().filter_map(|scope| Scope::parse(scope));
    Ok(Principal::new(format!("token:{}#{}", known.name, known.id), scopes))
}

/// Programs send neither an `Origin` nor a foreign name; a page can leave out neither. Where a page fetches without
/// an `Origin`, as for an image, a browser says by itself that another site asked.
fn from_a_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map(HeaderValue::to_str);
    let here = match host {
        // HTTP/1.0 has none, and no browser speaks that.
        None => true,
        Some(Ok(host)) => is_loopback(host),
        Some(Err(_)) => false,
    };
    let fetched = headers.get(FETCH_SITE).is_some_and(|site| site != "none");
    headers.contains_key(ORIGIN) || fetched || !here
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = bare.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_only_lead_here_are_not_here() {
        for host in ["localhost", "LOCALHOST:3001", "127.0.0.1", "127.0.0.1:80", "[::1]:3001", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:3001", "localhost.evil.example", "10.0.0.1:80", "[::2]", ":1"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_page_is_known_by_its_origin() {
        let mut headers = HeaderMap::new();
        assert!(!from_a_page(&headers));
        headers.insert(HOST, HeaderValue::from_static("localhost:3001"));
        assert!(!from_a_page(&headers));
        headers.insert(ORIGIN, HeaderValue::from_static("null"));
        assert!(from_a_page(&headers));
        headers.remove(ORIGIN);
        headers.insert(HOST, HeaderValue::from_static("rebound.example:3001"));
        assert!(from_a_page(&headers));
        headers.insert(HOST, HeaderValue::from_static("127.0.0.1:3001"));
        headers.insert(FETCH_SITE, HeaderValue::from_static("none"));
        assert!(!from_a_page(&headers));
        for site in ["cross-site", "same-site", "same-origin", "\u{0}"] {
            headers.insert(FETCH_SITE, HeaderValue::from_str(site).unwrap_or(HeaderValue::from_static("x")));
            assert!(from_a_page(&headers), "{site}");
        }
    }

    #[test]
    fn what_is_sent_twice_is_seen() {
        let mut headers = HeaderMap::new();
        headers.append(SECRET_HEADER, HeaderValue::from_static("right"));
        assert!(!is_twice(&headers, SECRET_HEADER));
        headers.append(SECRET_HEADER, HeaderValue::from_static("wrong"));
        assert!(is_twice(&headers, SECRET_HEADER));
    }
}
