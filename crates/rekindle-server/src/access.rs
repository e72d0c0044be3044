//! Who may ask: the token, the name the server is called by, and the page a request comes from.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, StatusCode, Uri, header, uri::Authority};
use rekindle_core::{Error, ErrorKind, Result};

use crate::token::Token;

/// Who may ask.
#[derive(Clone, Debug, Default)]
pub struct Access {
    token: Option<Token>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Access {
    /// Whoever is on this machine.
    pub fn local() -> Self {
        Self::default()
    }

    /// Whoever knows the token.
    pub fn with_token(self, token: Token) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Another name this server may be called by, e.g. `agents.example.com` behind a proxy.
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Pages of this origin may ask too, e.g. `https://app.example.com`.
    pub fn with_origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into().trim_end_matches('/').to_ascii_lowercase());
        self
    }

    /// An address that others reach needs a token.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<()> {
        if address.ip().is_loopback() || self.token.is_some() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{address} can be reached from other machines, and there is no token"),
        )
        .hint("set a token, or listen on 127.0.0.1"))
    }

    /// Whether a request may be answered by a server at `address`; else how it is turned away.
    pub(crate) fn admit(&self, address: SocketAddr, uri: &Uri, headers: &HeaderMap) -> Result<(), Denial> {
        let host = asked_host(uri, headers).ok_or(Denial::NO_HOST)?;
        if !self.knows_host(address.ip(), &host) {
            return Err(Denial::HOST);
        }
        if !self.knows_origin(address.ip(), &host, headers) {
            return Err(Denial::ORIGIN);
        }
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        match &self.token {
            Some(token) if !given.next().is_some_and(|value| token.is_in(value.as_bytes())) => Err(Denial::TOKEN),
            _ => Ok(()),
        }
    }

    /// A page whose name was pointed at this machine asks under that name. Where a token is needed a page
    /// that does not know it gets nothing, so any name will do there unless names were given.
    fn knows_host(&self, at: IpAddr, host: &Authority) -> bool {
        let name = host.host().to_ascii_lowercase();
        let named = self.hosts.iter().any(|known| *known == name || *known == host.as_str().to_ascii_lowercase());
        let own = is_loopback(&name) && at.is_loopback();
        named || own || !at.is_loopback() && self.hosts.is_empty()
    }

    /// Programs send no origin; browsers always say the page's. One of this machine may ask a server of
    /// this machine, one of the server itself may, and those that were named.
    fn knows_origin(&self, at: IpAddr, host: &Authority, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return true };
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else { return false };
        let Some((_, page)) = origin.split_once("://") else { return false };
        let Ok(page) = page.parse::<Authority>() else { return false };
        let local = at.is_loopback() && is_loopback(page.host());
        let same = page.as_str().eq_ignore_ascii_case(host.as_str());
        origins.next().is_none() && (local || same || self.origins.contains(&origin))
    }
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial(pub(crate) StatusCode, pub(crate) &'static str);

impl Denial {
    const NO_HOST: Self = Self(StatusCode::BAD_REQUEST, "the request does not say whom it is for (Host)");
    const HOST: Self = Self(StatusCode::FORBIDDEN, "this server is not called that (Host)");
    const ORIGIN: Self = Self(StatusCode::FORBIDDEN, "pages of that origin may not ask (Origin)");
    pub(crate) const TOKEN: Self = Self(StatusCode::UNAUTHORIZED, "a token is needed (Authorization: Bearer …)");
}

/// The one host a request names.
fn asked_host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = match hosts.next() {
        Some(host) => Some(host.to_str().ok()?.parse::<Authority>().ok()?),
        None => None,
    };
    if hosts.next().is_some() {
        return None;
    }
    uri.authority().cloned().or(named)
}

/// Whether a name can only mean this machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:7000";
    const REMOTE: &str = "10.0.0.1:7000";

    fn status(access: &Access, at: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let admitted = access.admit(at.parse().unwrap(), &"/mcp".parse().unwrap(), &map);
        admitted.map_or_else(|denial| denial.0.as_u16(), |()| 200)
    }

    #[test]
    fn a_server_of_this_machine_answers_to_its_names_alone() {
        let check =
            |host: &str, expected| assert_eq!(status(&Access::local(), LOCAL, &[("host", host)]), expected, "{host}");
        check("localhost:7000", 200);
        check("LOCALHOST", 200);
        check("127.0.0.1:7000", 200);
        check("[::1]:7000", 200);
        check("evil.example", 403);
        check("localhost.evil.example", 403);
        check("127.0.0.1.evil.example:7000", 403);
        check("10.0.0.1:7000", 403);
        assert_eq!(status(&Access::local(), LOCAL, &[]), 400);
        assert_eq!(status(&Access::local(), LOCAL, &[("host", "localhost"), ("host", "evil.example")]), 400);
        let named = Access::local().with_host("Agents.example.com");
        assert_eq!(status(&named, LOCAL, &[("host", "agents.example.com")]), 200);
    }

    #[test]
    fn pages_of_strangers_are_turned_away() {
        let check = |origin: &str, expected| {
            let headers = [("host", "localhost:7000"), ("origin", origin)];
            assert_eq!(
                status(&Access::local().with_origin("https://app.example.com/"), LOCAL, &headers),
                expected,
                "{origin}"
            );
        };
        check("http://localhost:6274", 200);
        check("http://127.0.0.1", 200);
        check("https://app.example.com", 200);
        check("https://app.example.com:8443", 403);
        check("http://evil.example", 403);
        check("http://localhost.evil.example", 403);
        check("http://localhost@evil.example", 403);
        check("null", 403);
        check("", 403);
        let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example")];
        assert_eq!(status(&Access::local(), LOCAL, &two), 403);
    }

    #[test]
    fn other_machines_need_the_token() {
        let access = Access::local().with_token(Token::new("0123456789abcdef").unwrap());
        let ask = |value: &str| status(&access, REMOTE, &[("host", "box:7000"), ("authorization", value)]);
        assert_eq!(status(&access, REMOTE, &[("host", "box:7000")]), 401);
        assert_eq!(ask("Bearer 0123456789abcdef"), 200);
        assert_eq!(ask("Bearer 0123456789abcdeX"), 401);
        let local = status(&access, LOCAL, &[("host", "localhost")]);
        assert_eq!(local, 401, "on this machine too once there is one");
    }

    #[test]
    fn an_address_others_reach_needs_a_token() {
        let open = "0.0.0.0:0".parse().unwrap();
        let refused = Access::local().check(open).unwrap_err();
        assert!(refused.next_step().contains("token"), "{refused}");
        assert!(Access::local().with_token(Token::new("0123456789abcdef").unwrap()).check(open).is_ok());
        assert!(Access::local().check(LOCAL.parse().unwrap()).is_ok());
        assert!(Access::local().check("[::1]:0".parse().unwrap()).is_ok());
    }
}
