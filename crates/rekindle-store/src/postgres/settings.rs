//! What a URL says: where the server is, and how to use it.

use std::time::Duration;

use rekindle_core::{Error, Hash, Result};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::options::StoreOptions;
use crate::url::shown_url;

/// Parameters that are ours; all others are those of PostgreSQL.
const OWN: &[&str] = &["schema", "pool", "prepare", "timeout", "sslmode", "sslverify", "sslrootcert"];
const DEFAULT_SCHEMA: &str = "rekindle";
const DEFAULT_POOL: u64 = 16;
const MOST_CONNECTIONS: u64 = 1_000;
/// Seconds.
const DEFAULT_TIMEOUT: u64 = 30;
const LONGEST_TIMEOUT: u64 = 24 * 60 * 60;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest identifier PostgreSQL does not cut off.
const MAX_IDENTIFIER: usize = 63;

/// How the certificate of the server is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Not at all: encryption keeps out whoever only listens.
    Anybody,
    /// By the certificates the system trusts, and by name.
    System,
    /// By the certificates in this file, and by name.
    File(String),
}

/// Everything a URL and the options say.
#[derive(Clone)]
pub(super) struct Settings {
    /// The URL as it may be shown.
    pub(super) shown: String,
    /// Where the server is.
    pub(super) config: Config,
    /// The schema as it was said.
    pub(super) schema: String,
    /// How many connections there may be.
    pub(super) pool: usize,
    /// Whether statements are prepared once for each connection.
    pub(super) prepare: bool,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// How the certificate of the server is judged.
    pub(super) trust: Trust,
}

impl Settings {
    /// Reads `url`; settings of `options` win.
    pub(super) fn read(url: &str, options: &StoreOptions) -> Result<Self> {
        let shown = shown_url(url);
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let said = Said::of(query, options, &shown)?;
        let mut config = config(address, &said.others, &shown)?;
        if let Some(password) = options.settings.get("password") {
            config.password(password);
        }
        let trust = ssl(&mut config, &said)?;
        let pool = said.number("pool", DEFAULT_POOL, MOST_CONNECTIONS)?;
        let timeout = Duration::from_secs(said.number("timeout", DEFAULT_TIMEOUT, LONGEST_TIMEOUT)?);
        let prepare = match said.text("prepare").as_deref() {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(said.wrong("prepare").hint("`prepare` is `true` or `false`")),
        };
        let schema = checked_schema(said.text("schema").unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()))?;
        let pool = usize::try_from(pool).unwrap_or(usize::MAX);
        Ok(Self { shown, config, schema, pool, prepare, timeout, trust })
    }

    /// The schema as it stands in statements.
    pub(super) fn quoted_schema(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// The channel that notices of this schema go through.
    pub(super) fn channel(&self) -> String {
        let name = format!("rekindle_{}", self.schema);
        match name.len() <= MAX_IDENTIFIER {
            true => name,
            false => format!("rekindle_{}", &Hash::of(self.schema.as_bytes()).to_string()[..32]),
        }
    }

    /// The number of the lock for `what` in this schema.
    pub(super) fn lock(&self, what: &str, of: &str) -> i64 {
        let hash = Hash::of(format!("rekindle {what}\0{}\0{of}", self.schema).as_bytes());
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash.0[..8]);
        i64::from_le_bytes(bytes)
    }
}

/// What is said of our own parameters, and what else the URL says.
struct Said<'a> {
    own: Vec<(&'a str, String)>,
    others: Vec<&'a str>,
    options: &'a StoreOptions,
    shown: &'a str,
}

impl<'a> Said<'a> {
    fn of(query: &'a str, options: &'a StoreOptions, shown: &'a str) -> Result<Self> {
        let mut said = Self { own: Vec::new(), others: Vec::new(), options, shown };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match OWN.contains(&name) {
                true => said.own.push((name, decoded(value).ok_or_else(|| said.wrong(name))?)),
                false => said.others.push(part),
            }
        }
        Ok(said)
    }

    fn text(&self, name: &str) -> Option<String> {
        let in_url = || self.own.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
        self.options.settings.get(name).cloned().or_else(in_url)
    }

    fn number(&self, name: &str, default: u64, most: u64) -> Result<u64> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| self.wrong(name).hint(format!("`{name}` is a number from 1 to {most}")))
    }

    fn wrong(&self, name: &str) -> Error {
        Error::invalid(format!("the value of `{name}` is not legal in {}", self.shown))
    }
}

fn config(address: &str, others: &[&str], shown: &str) -> Result<Config> {
    let url = match others.is_empty() {
        true => address.to_owned(),
        false => format!("{address}?{}", others.join("&")),
    };
    let mut config: Config = url.parse().map_err(|_| match unknown_parameter(address, others) {
        Some(name) => {
            Error::invalid(format!("the parameter `{name}` of the store URL is not known, or its value is wrong"))
                .hint(format!("there are {} and those of PostgreSQL, e.g. application_name", OWN.join(", ")))
        }
        // What is wrong is not repeated: it may be a piece of the password.
        None => Error::invalid(format!("`{shown}` is not a PostgreSQL URL"))
            .hint("write postgres://user@host:5432/database; encode what is special in a URL, e.g. `@` as %40"),
    })?;
    if config.get_hosts().is_empty() {
        return Err(Error::invalid(format!("`{shown}` names no host")).hint(
            "write postgres://user@host:5432/database, or the directory of a socket as %2Fvar%2Frun%2Fpostgresql",
        ));
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("rekindle");
    }
    config.keepalives_idle(Duration::from_secs(30));
    Ok(config)
}

/// The parameter that makes a URL unreadable, if it is one and surely no piece of a password.
fn unknown_parameter<'a>(address: &str, others: &[&'a str]) -> Option<&'a str> {
    let is_legal = |query: &str| format!("{address}?{query}").parse::<Config>().is_ok();
    if !is_legal("") || others.iter().any(|part| part.contains('@')) {
        return None;
    }
    let part = others.iter().find(|part| !is_legal(part))?;
    Some(part.split_once('=').map_or(*part, |(name, _)| name))
}

fn ssl(config: &mut Config, said: &Said<'_>) -> Result<Trust> {
    let mode = said.text("sslmode").unwrap_or_else(|| "prefer".to_owned());
    let verified = match said.text("sslverify").as_deref() {
        None | Some("full") => true,
        Some("none") => false,
        Some(_) => return Err(said.wrong("sslverify").hint("`sslverify` is `full` or `none`")),
    };
    let root = || said.text("sslrootcert").filter(|file| file != "system").map_or(Trust::System, Trust::File);
    let (ssl_mode, trust) = match mode.as_str() {
        "disable" => (SslMode::Disable, Trust::Anybody),
        "prefer" | "allow" => (SslMode::Prefer, Trust::Anybody),
        "require" if !verified => (SslMode::Require, Trust::Anybody),
        "require" | "verify-full" if verified => (SslMode::Require, root()),
        _ => {
            return Err(said.wrong("sslmode").hint(
                "`sslmode` is `disable`, `prefer`, `require` or `verify-full`; `require` with `sslverify=none` encrypts \
                 without asking who answers",
            ));
        }
    };
    config.ssl_mode(ssl_mode);
    Ok(trust)
}

fn checked_schema(schema: String) -> Result<String> {
    let reserved = schema.starts_with("pg_") || schema == "information_schema";
    if schema.is_empty() || schema.len() > MAX_IDENTIFIER || schema.chars().any(char::is_control) || reserved {
        let message = format!("a schema has 1 to {MAX_IDENTIFIER} bytes, all printable, and is none of PostgreSQL's");
        return Err(Error::invalid(message));
    }
    Ok(schema)
}

/// A value of a URL, without percent encoding.
fn decoded(value: &str) -> Option<String> {
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Settings> {
        Settings::read(url, &StoreOptions::new())
    }

    #[test]
    fn a_url_says_everything() {
        let settings =
            read("postgres://u:p@h:5/d?schema=a%22b&pool=3&prepare=false&timeout=7&target_session_attrs=any");
        let settings = settings.unwrap();
        assert_eq!((settings.pool, settings.prepare, settings.timeout.as_secs()), (3, false, 7));
        assert_eq!(settings.quoted_schema(), "\"a\"\"b\"");
        assert_eq!(
            settings.shown,
            "postgres://u:***@h:5/d?schema=a%22b&pool=3&prepare=false&timeout=7&target_session_attrs=any"
        );
        let plain = read("postgresql://u@h/d").unwrap();
        assert_eq!((plain.schema.as_str(), plain.pool, plain.trust), ("rekindle", 16, Trust::Anybody));
    }

    #[test]
    fn how_the_server_is_trusted() {
        for (query, mode, trust) in [
            ("", SslMode::Prefer, Trust::Anybody),
            ("?sslmode=disable", SslMode::Disable, Trust::Anybody),
            ("?sslmode=require", SslMode::Require, Trust::System),
            ("?sslmode=require&sslverify=none", SslMode::Require, Trust::Anybody),
            ("?sslmode=verify-full&sslrootcert=%2Fca.pem", SslMode::Require, Trust::File("/ca.pem".into())),
        ] {
            let settings = read(&format!("postgres://u@h/d{query}")).unwrap();
            assert_eq!((settings.config.get_ssl_mode(), settings.trust), (mode, trust), "{query}");
        }
        assert!(read("postgres://u@h/d?sslmode=verify-full&sslverify=none").is_err());
    }

    #[test]
    fn settings_win_and_secrets_stay_out_of_errors() {
        let options = StoreOptions::new().with_setting("password", "hidden").with_setting("schema", "mine");
        let settings = Settings::read("postgres://u:other@h/d?schema=theirs", &options).unwrap();
        assert_eq!(settings.schema, "mine");
        assert_eq!(settings.config.get_password(), Some(&b"hidden"[..]));
        for url in [
            "postgres://u:hidden@h:nonsense/d",
            "postgres://u:hidden@/d",
            "postgres://u:hidden@h/d?pool=x",
            "postgres://u:hidden@h/d?pool=0",
            "postgres://u:hidden@h/d?timeout=18446744073709551615",
            "postgres://u:hidden@h/d?schema=pg_x",
            "postgres://u:hidden@h/d?schema=%zz",
            "postgres://u:hidden@h/d?sslmode=verify-ca",
            "postgres://u:hidden@h/d?unknown=1",
            "postgres://u:hidden@h/d?prepare=maybe",
        ] {
            let error = read(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
        }
    }

    #[test]
    fn a_parameter_that_is_wrong_is_named_unless_it_may_be_a_secret() {
        let error = read("postgres://u:hidden@h/d?application_name=x&pol=3").err().unwrap();
        assert!(error.message().contains("`pol`"), "{error:?}");
        for url in ["postgres://u:12?hidden=x@h:n/d", "postgres://u:hid?hidden@h:n/d", "postgres://u:p@h:x/d?hidden=1"]
        {
            let error = read(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(!error.message().contains("`hidden`"), "{error:?}");
        }
    }

    #[test]
    fn channels_fit_whatever_the_schema_is_called() {
        let long = read(&format!("postgres://u@h/d?schema={}", "s".repeat(63))).unwrap();
        assert!(long.channel().len() <= MAX_IDENTIFIER);
        assert_eq!(read("postgres://u@h/d").unwrap().channel(), "rekindle_rekindle");
    }

    #[test]
    fn fuzzed_urls() {
        let seeds = [
            "postgres://u:p@h:5432/d?schema=a&sslmode=verify-full&pool=3",
            "postgres://h1,h2/d?target_session_attrs=read-write",
        ];
        rekindle_fuzz::fuzz!("postgres-url").seeds(seeds).words(["@", "?", "&schema=", "%2", "[::1]"]).text(|text| {
            let settings = read(text).ok()?;
            assert!(settings.quoted_schema().len() <= 140 && settings.channel().len() <= 63);
            Some(())
        });
    }
}
