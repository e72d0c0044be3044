//! The values of `Host` and `Origin`, read strictly: anything that is not exactly a host with a port, or an
//! origin of the web, is nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name of a host.
const LONGEST_NAME: usize = 253;

/// A host and perhaps a port, as `Host` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
}

/// A host: an address, or a name in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    Name(String),
}

impl Authority {
    /// Reads `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`, and nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, behind) = rest.split_once(']')?;
                let host = Host::Address(address.parse::<Ipv6Addr>().ok()?.into());
                (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
            }
            None => match text.split_once(':') {
                Some((host, port)) => (Host::parse(host)?, Some(port)),
                None => (Host::parse(text)?, None),
            },
        };
        let port = match port {
            Some(text) => Some(parse_port(text)?),
            None => None,
        };
        Some(Self { host, port })
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_label = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(legal);
        let last = text.rsplit('.').next().unwrap_or_default();
        // `127.1`, `0x7f.1`: numbers that some programs take for addresses.
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
        let is_name = text.len() <= LONGEST_NAME && text.split('.').all(is_label) && !numeric;
        is_name.then(|| Self::Name(text.to_ascii_lowercase()))
    }

    /// Returns true if it can only mean this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

impl fmt::Display for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            Host::Address(address) => write!(formatter, "{address}"),
            Host::Name(name) => formatter.write_str(name),
        }?;
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

/// The origin of a page: `http` or `https`, a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    secure: bool,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl Origin {
    /// Reads `http://host`, `https://host:port`, and nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (secure, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return None,
        };
        let authority = Authority::parse(rest)?;
        let port = authority.port.unwrap_or(if secure { 443 } else { 80 });
        Some(Self { secure, host: authority.host, port })
    }

    /// Returns true if it is the origin of the server that was asked as `asked`.
    pub(crate) fn is_of(&self, asked: &Authority) -> bool {
        let usual = if self.secure { 443 } else { 80 };
        self.host == asked.host && self.port == asked.port.unwrap_or(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_strictly() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(Authority::parse(text).map(|found| found.to_string()).as_deref(), expected, "{text:?}");
        };
        check("localhost", Some("localhost"));
        check("LocalHost:7000", Some("localhost:7000"));
        check("127.0.0.1:7000", Some("127.0.0.1:7000"));
        check("[::1]", Some("[::1]"));
        check("[0:0::1]:80", Some("[::1]:80"));
        check("agents.example.com", Some("agents.example.com"));
        check("a_b-c.example:1", Some("a_b-c.example:1"));
        for wrong in [
            "",
            ":",
            ":80",
            "localhost:",
            "localhost:7398,evil",
            "localhost,evil",
            "localhost:+80",
            "localhost:080",
            "localhost:0",
            "localhost:65536",
            "localhost:80:80",
            "localhost.",
            "localhost..",
            ".localhost",
            "user@localhost",
            "user:password@localhost",
            "localhost@evil",
            "localhost/",
            "localhost/x",
            "localhost?x",
            "localhost#x",
            "local host",
            " localhost",
            "localhost\t",
            "127.1",
            "127.0.0.1.",
            "127.0.0.256",
            "0x7f000001",
            "2130706433",
            "127.0.0.0x1",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:",
            "[127.0.0.1]",
            "[::1%lo]",
            "lo\u{43e}calhost",
            "%6cocalhost",
            "http://localhost",
            "*",
            "a..b",
        ] {
            check(wrong, None);
        }
        check(&format!("{}.example", "a".repeat(64)), None);
        check(&"a.".repeat(200), None);
    }

    #[test]
    fn origins_are_read_strictly() {
        let check = |text: &str, expected: bool| assert_eq!(Origin::parse(text).is_some(), expected, "{text:?}");
        check("http://localhost", true);
        check("https://app.example.com", true);
        check("http://[::1]:6274", true);
        for wrong in [
            "",
            "null",
            "localhost",
            "//localhost",
            "data://localhost",
            "file://localhost",
            "ws://localhost",
            "HTTP://localhost",
            "http:/localhost",
            "http:///localhost",
            "http://localhost/",
            "http://localhost/path",
            "http://localhost?x",
            "http://user@localhost",
            "http://localhost@evil",
            "http://localhost.",
            "http://localhost:",
            "http://localhost:80,http://evil",
            "http://localhost http://evil",
            " http://localhost",
            "http://",
            "https://",
            "http://*",
        ] {
            check(wrong, false);
        }
        let origin = |text| Origin::parse(text).unwrap();
        assert_eq!(origin("http://a"), origin("http://A:80"));
        assert_ne!(origin("http://a"), origin("https://a"));
        assert_ne!(origin("http://a:443"), origin("https://a"));
    }
}
