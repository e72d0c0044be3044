//! Rules of access: credentials, the name the server is called by, and the page a request comes from. A credential
//! gives an identity, which is what goes on record.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use rekindle::{Error, ErrorKind, Identity, Result};

use crate::authority::{Authority, Origin};
use crate::token::Token;

/// The longest name of a token.
const LONGEST_NAME: usize = 64;

/// The callers who may ask. Nobody until a credential is named.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tokens: Vec<(Token, Identity)>,
    peers: Vec<(u32, Identity)>,
    anybody: Option<Identity>,
    hosts: Vec<Authority>,
    origins: Vec<Origin>,
    /// Names and origins that cannot be any.
    wrong: Vec<String>,
}

/// The place at which a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a port.
    Port(SocketAddr),
    /// On a socket of this machine.
    Socket,
}

impl Access {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whoever has the token; `name` is on record for what they do.
    pub fn with_token(mut self, name: impl Into<String>, token: Token) -> Self {
        let name = name.into();
        let credential = format!("token:{name}");
        self.tokens.push((token, Identity::proven(name, credential)));
        self
    }

    /// Returns true if no credential was named.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.peers.is_empty() && self.anybody.is_none()
    }

    /// Processes of the user with this id, on a socket of this machine.
    pub fn with_peer(mut self, uid: u32, identity: Identity) -> Self {
        self.peers.push((uid, identity));
        self
    }

    /// Anybody on this machine, without a credential: for tests of protocols whose clients have none.
    #[doc(hidden)]
    pub fn unauthenticated(author: &str) -> Self {
        Self { anybody: Some(Identity::claimed(author, "none")), ..Self::default() }
    }

    /// Another name this server may be called by, e.g. `agents.example.com` behind a proxy; with a port, only
    /// with that.
    pub fn with_host(mut self, host: &str) -> Self {
        match Authority::parse(host) {
            Some(host) => self.hosts.push(host),
            None => self.wrong.push(host.to_owned()),
        }
        self
    }

    /// Pages of this origin may ask too, e.g. `https://app.example.com`.
    pub fn with_origin(mut self, origin: &str) -> Self {
        match Origin::parse(origin.strip_suffix('/').unwrap_or(origin)) {
            Some(origin) => self.origins.push(origin),
            None => self.wrong.push(origin.to_owned()),
        }
        self
    }

    /// Checks that no server listens without a credential.
    pub(crate) fn check(&self, place: Place) -> Result<()> {
        if let Some(wrong) = self.wrong.first() {
            return Err(Error::invalid(format!("`{wrong}` is neither a host nor an origin")).hint(
                "write a host as agents.example.com or agents.example.com:8443, an origin as https://app.example.com",
            ));
        }
        for (index, (token, identity)) in self.tokens.iter().enumerate() {
            let name = &identity.author;
            if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
                return Err(Error::invalid("the name of a token has 1 to 64 characters and no control characters"));
            }
            if let Some((_, other)) = self.tokens[..index].iter().find(|(known, _)| known == token) {
                return Err(Error::invalid(format!("the tokens `{}` and `{name}` are the same", other.author))
                    .hint("give each of them a token of its own, e.g. what `openssl rand -hex 32` prints"));
            }
        }
        let (known, hint) = match place {
            Place::Port(address) if self.anybody.is_some() => (address.ip().is_loopback(), "listen on 127.0.0.1"),
            Place::Port(_) => (!self.tokens.is_empty(), "give it a token"),
            Place::Socket => (!self.peers.is_empty(), "say which users may connect"),
        };
        match known {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::Invalid, "no server listens without a credential for its clients").hint(hint))
            }
        }
    }

    /// The identity of the process at the other end of a socket; nothing if it may not connect.
    pub(crate) fn peer(&self, uid: u32) -> Option<&Identity> {
        self.peers.iter().find(|(known, _)| *known == uid).map(|(_, identity)| identity)
    }

    /// Returns who asks, if the request may be answered; else how it is turned away.
    pub(crate) fn admit(
        &self,
        place: Place,
        peer: Option<&Identity>,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Identity, Denial> {
        let host = asked_host(uri, headers).ok_or(Denial::NO_HOST)?;
        if !self.knows_host(place, &host) {
            return Err(Denial::HOST);
        }
        if !self.knows_origin(place, &host, headers) {
            return Err(Denial::ORIGIN);
        }
        match place {
            Place::Socket => peer.cloned().ok_or(Denial::PEER),
            Place::Port(_) if self.anybody.is_some() => self.anybody.clone().ok_or(Denial::TOKEN),
            Place::Port(_) => self.bearer(headers).ok_or(Denial::TOKEN),
        }
    }

    /// The identity of the token a request carries. All tokens are compared, so that the time says nothing.
    fn bearer(&self, headers: &HeaderMap) -> Option<Identity> {
        let given = only(headers, header::AUTHORIZATION)?.as_bytes();
        let fits = self.tokens.iter().fold(None, |found, (token, identity)| match token.is_in(given) {
            true => Some(identity),
            false => found,
        });
        fits.cloned()
    }

    /// A page whose name was pointed at this machine asks under that name. On an address that others reach a
    /// page without the token gets nothing, so any name will do there unless names were given.
    fn knows_host(&self, place: Place, asked: &Authority) -> bool {
        let Place::Port(at) = place else {
            return asked.host.is_loopback() && asked.port.is_none() || self.hosts.contains(asked);
        };
        let named = self.hosts.iter().any(|known| match (known.port, asked.port) {
            (None, Some(port)) => known.host == asked.host && [80, 443, at.port()].contains(&port),
            _ => known == asked,
        });
        let own_port = asked.port.is_none_or(|port| port == at.port());
        let own = asked.host.is_loopback() && at.ip().is_loopback() && own_port;
        named || own || !at.ip().is_loopback() && self.hosts.is_empty()
    }

    /// Programs send no origin; browsers always send the page's. A page of the server itself may ask, and those
    /// that were named.
    fn knows_origin(&self, place: Place, asked: &Authority, headers: &HeaderMap) -> bool {
        if !headers.contains_key(header::ORIGIN) {
            return true;
        }
        let origin = only(headers, header::ORIGIN).and_then(|value| Origin::parse(value.to_str().ok()?));
        let is_own = |origin: &Origin| place != Place::Socket && origin.is_of(asked);
        origin.is_some_and(|origin| is_own(&origin) || self.origins.contains(&origin))
    }
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial(pub(crate) StatusCode, pub(crate) &'static str);

impl Denial {
    const NO_HOST: Self = Self(StatusCode::BAD_REQUEST, "the request does not name one host it is for (Host)");
    const HOST: Self = Self(StatusCode::FORBIDDEN, "this server is not called that (Host)");
    const ORIGIN: Self = Self(StatusCode::FORBIDDEN, "pages of that origin may not ask (Origin)");
    const PEER: Self = Self(StatusCode::FORBIDDEN, "processes of other users may not ask");
    pub(crate) const TOKEN: Self = Self(StatusCode::UNAUTHORIZED, "a token is needed (Authorization: Bearer …)");
}

/// The value of a header that is there exactly once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// The one host a request names; nothing if its address names another.
fn asked_host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let host = Authority::parse(only(headers, header::HOST)?.to_str().ok()?)?;
    match uri.authority() {
        Some(named) => Authority::parse(named.as_str()).filter(|named| *named == host),
        None => Some(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:7000";
    const REMOTE: &str = "10.0.0.1:7000";
    const TOKEN: &str = "0123456789abcdef";
    const BEARER: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn access() -> Access {
        Access::new().with_token("ci", token(TOKEN))
    }

    fn asked(access: &Access, place: Place, uri: &str, headers: &[(&str, &str)]) -> Result<Identity, u16> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<header::HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        access.admit(place, None, &uri.parse().unwrap(), &map).map_err(|denial| denial.0.as_u16())
    }

    fn status(access: &Access, at: &str, headers: &[(&str, &str)]) -> u16 {
        let headers: Vec<_> = headers.iter().copied().chain([BEARER]).collect();
        asked(access, Place::Port(at.parse().unwrap()), "/mcp", &headers).err().unwrap_or(200)
    }

    #[test]
    fn a_server_of_this_machine_answers_to_its_names_alone() {
        let check = |host: &str, expected| assert_eq!(status(&access(), LOCAL, &[("host", host)]), expected, "{host}");
        check("localhost:7000", 200);
        check("LOCALHOST", 200);
        check("127.0.0.1:7000", 200);
        check("[::1]:7000", 200);
        check("localhost:7001", 403);
        check("evil.example", 403);
        check("localhost.evil.example", 403);
        check("127.0.0.1.evil.example:7000", 403);
        check("10.0.0.1:7000", 403);
        check("localhost:7000,evil", 400);
        check("localhost:7000, evil.example", 400);
        check("evil@localhost:7000", 400);
        check("localhost.:7000", 400);
        check("localh\u{f6}st", 400);
        assert_eq!(status(&access(), LOCAL, &[]), 400);
        assert_eq!(status(&access(), LOCAL, &[("host", "localhost"), ("host", "localhost")]), 400);
        let named = access().with_host("Agents.example.com").with_host("tunnel.example:9000");
        let check = |host: &str, expected| assert_eq!(status(&named, LOCAL, &[("host", host)]), expected, "{host}");
        check("agents.example.com", 200);
        check("agents.example.com:443", 200);
        check("agents.example.com:8443", 403);
        check("tunnel.example:9000", 200);
        check("tunnel.example", 403);
    }

    #[test]
    fn an_address_in_the_request_is_the_host_it_names() {
        let check = |uri: &str, host: &str, expected: u16| {
            let place = Place::Port(LOCAL.parse().unwrap());
            let told = asked(&access(), place, uri, &[("host", host), BEARER]).err().unwrap_or(200);
            assert_eq!(told, expected, "{uri} {host}");
        };
        check("http://localhost:7000/mcp", "localhost:7000", 200);
        check("http://evil.example/mcp", "localhost:7000", 400);
        check("http://localhost:7000/mcp", "evil.example", 400);
        check("http://user@localhost:7000/mcp", "localhost:7000", 400);
    }

    #[test]
    fn pages_of_strangers_are_turned_away() {
        let check = |origin: &str, expected| {
            let headers = [("host", "localhost:7000"), ("origin", origin)];
            let access = access().with_origin("https://app.example.com/");
            assert_eq!(status(&access, LOCAL, &headers), expected, "{origin}");
        };
        check("http://localhost:7000", 200);
        check("https://app.example.com", 200);
        check("https://app.example.com:443", 200);
        check("https://app.example.com:8443", 403);
        check("http://app.example.com", 403);
        // Another server of this machine may be another user's.
        check("http://localhost:6274", 403);
        check("http://localhost", 403);
        check("https://localhost:7001", 403);
        check("data://localhost:7000", 403);
        check("data://localhost", 403);
        check("http://evil.example", 403);
        check("http://localhost.evil.example", 403);
        check("http://localhost:7000@evil.example", 403);
        check("http://localhost:7000,http://evil.example", 403);
        check("null", 403);
        check("", 403);
        let two =
            [("host", "localhost:7000"), ("origin", "http://localhost:7000"), ("origin", "http://localhost:7000")];
        assert_eq!(status(&access(), LOCAL, &two), 403);
    }

    #[test]
    fn a_token_is_needed_on_this_machine_too_and_says_who_asks() {
        let access = access().with_token("maria", token("another-token-of-16"));
        for (at, host) in [(LOCAL, "localhost"), (REMOTE, "box:7000")] {
            let ask = |headers: &[(&str, &str)]| {
                let headers: Vec<_> = [("host", host)].iter().chain(headers).copied().collect();
                asked(&access, Place::Port(at.parse().unwrap()), "/mcp", &headers)
            };
            assert_eq!(ask(&[]), Err(401));
            assert_eq!(ask(&[("authorization", "Bearer 0123456789abcdeX")]), Err(401));
            assert_eq!(ask(&[BEARER, BEARER]), Err(401), "one credential, not two");
            assert_eq!(ask(&[BEARER]), Ok(Identity::proven("ci", "token:ci")));
            let maria = ask(&[("authorization", "Bearer another-token-of-16")]);
            assert_eq!(maria, Ok(Identity::proven("maria", "token:maria")));
        }
    }

    #[test]
    fn a_socket_takes_the_identity_of_its_peer_and_no_pages() {
        let maria = Identity::claimed("maria", "uid:7@box");
        let access = Access::new().with_peer(7, maria.clone());
        assert_eq!((access.peer(7), access.peer(8)), (Some(&maria), None));
        let check = |host: &str, origin: Option<&str>, expected: u16| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            origin.map(|origin| headers.insert(header::ORIGIN, origin.parse().unwrap()));
            let told = access.admit(Place::Socket, Some(&maria), &"/mcp".parse().unwrap(), &headers);
            assert_eq!(told.map_or_else(|denial| denial.0.as_u16(), |_| 200), expected, "{host} {origin:?}");
        };
        check("localhost", None, 200);
        check("evil.example", None, 403);
        check("localhost", Some("http://localhost"), 403);
        assert_eq!(asked(&access, Place::Socket, "/mcp", &[("host", "localhost"), BEARER]), Err(403));
    }

    #[test]
    fn no_server_listens_without_a_credential() {
        let (open, local) = (Place::Port("0.0.0.0:0".parse().unwrap()), Place::Port(LOCAL.parse().unwrap()));
        let check = |access: Access, place: Place, expected: bool| {
            assert_eq!(access.check(place).is_ok(), expected, "{access:?} {place:?}");
        };
        for place in [open, local, Place::Port("[::1]:0".parse().unwrap())] {
            check(Access::new(), place, false);
            check(access(), place, true);
        }
        check(access(), Place::Socket, false);
        check(Access::new().with_peer(0, "root".into()), Place::Socket, true);
        check(Access::unauthenticated("test"), local, true);
        check(Access::unauthenticated("test"), open, false);
        check(access().with_token("other", token(TOKEN)), local, false);
        check(access().with_token("", token("another-token-of-16")), local, false);
        check(access().with_host("http://example.com"), local, false);
        check(access().with_origin("example.com"), local, false);
    }

    /// Lines are the host, the origin and the authorization.
    #[test]
    fn fuzzed_requests() {
        let token = || Token::new("a-token-that-is-long-enough-for-anything").unwrap();
        let seeds = [
            "localhost:7000\nhttp://localhost:7000\nBearer a-token-that-is-long-enough-for-anything",
            "[::1]\nnull\nBasic x",
        ];
        rekindle_fuzz::fuzz!("server-request")
            .seeds(seeds)
            .words(["@", "[", "]", "://", "Bearer ", "evil.example"])
            .text(|text| {
                let mut map = HeaderMap::new();
                for (name, value) in
                    [header::HOST, header::ORIGIN, header::AUTHORIZATION].into_iter().zip(text.split('\n'))
                {
                    if let Ok(value) = value.parse() {
                        map.append(name, value);
                    }
                }
                let uri = "/mcp".parse().unwrap();
                let access = Access::new().with_token("test", token());
                for place in [LOCAL, REMOTE] {
                    let admitted = access.admit(Place::Port(place.parse().unwrap()), None, &uri, &map).is_ok();
                    assert!(!admitted || text.contains("a-token-that-is-long-enough-for-anything"));
                }
            });
    }
}
