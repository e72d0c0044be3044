//! What a URL and the options say about a store on Redis.

use std::fmt;
use std::time::Duration;

use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, TlsCertificates};
use rekindle_core::{Error, Result};

use crate::options::StoreOptions;
use crate::url::shown_url;

const PARAMETERS: &str = "prefix, cluster, durability, durable, evict, wait, wait_timeout, timeout";
const LONGEST_PREFIX: usize = 64;

/// How the server must keep what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// However it does.
    Any,
    /// In a file that is synced every second.
    EverySecond,
    /// In a file that is synced before it answers.
    Always,
}

/// Replicas that must confirm each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replicas {
    pub(super) count: u32,
    pub(super) timeout: Duration,
}

/// What is known about the server before it was asked anything.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) connection: ConnectionInfo,
    pub(super) shown: String,
    pub(super) prefix: String,
    pub(super) cluster: bool,
    pub(super) durability: Durability,
    /// Whoever wrote the URL says that the server is durable, though it may not say so itself.
    pub(super) durable: bool,
    pub(super) may_evict: bool,
    pub(super) replicas: Option<Replicas>,
    pub(super) timeout: Duration,
    /// Who vouches for the server and for us, if not those whom the machine trusts.
    pub(super) certificates: Option<TlsCertificates>,
    pub(super) create: bool,
    pub(super) read_only: bool,
}

impl fmt::Debug for Config {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("url", &self.shown).finish_non_exhaustive()
    }
}

impl Config {
    /// Reads a URL and the options that belong to it.
    pub(super) fn new(url: &str, options: &StoreOptions) -> Result<Self> {
        let shown = shown_url(url);
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        if url.contains('#') {
            return Err(wrong(&shown, "has a `#`").hint("write %23 for a # in a password"));
        }
        let mut config = Self {
            connection: connection(address, &shown, options)?,
            prefix: "rekindle".to_owned(),
            cluster: false,
            durability: Durability::Any,
            durable: false,
            may_evict: false,
            replicas: None,
            timeout: Duration::from_secs(10),
            certificates: certificates(options)?,
            create: options.create && !options.read_only,
            read_only: options.read_only,
            shown,
        };
        let mut wait = (None, Duration::from_secs(1));
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            config.set(name, value, &mut wait)?;
        }
        config.replicas = wait.0.map(|count| Replicas { count, timeout: wait.1 });
        if config.cluster && config.replicas.is_some() {
            let error = wrong(&config.shown, "asks a cluster to wait for replicas");
            return Err(error.hint("set min-replicas-to-write on the servers instead"));
        }
        Ok(config)
    }

    /// Whether what is acknowledged survives the machine.
    pub(super) fn is_durable(&self) -> bool {
        self.durable || self.durability == Durability::Always
    }

    /// Whether the connection is encrypted.
    pub(super) fn uses_tls(&self) -> bool {
        matches!(self.connection.addr(), ConnectionAddr::TcpTls { .. })
    }

    fn set(&mut self, name: &str, value: &str, wait: &mut (Option<u32>, Duration)) -> Result<()> {
        let bad = || wrong(&self.shown, &format!("says nothing known with `{name}`"));
        match name {
            "prefix" if is_prefix(value) => self.prefix = value.to_owned(),
            "prefix" => {
                let hint = format!("use 1 to {LONGEST_PREFIX} letters, digits, dots, dashes and underscores");
                return Err(wrong(&self.shown, "names no legal prefix").hint(hint));
            }
            "cluster" => self.cluster = flag(value).ok_or_else(bad)?,
            "durable" => self.durable = flag(value).ok_or_else(bad)?,
            "durability" => {
                self.durability = match value {
                    "aof-always" => Durability::Always,
                    "aof-everysec" => Durability::EverySecond,
                    "none" | "unknown" => Durability::Any,
                    _ => return Err(bad().hint("use aof-always, aof-everysec or none")),
                }
            }
            "evict" => {
                self.may_evict = match value {
                    "allow" => true,
                    "refuse" => false,
                    _ => return Err(bad().hint("use allow or refuse")),
                }
            }
            "wait" => wait.0 = value.parse().ok().map(Some).ok_or_else(bad)?.filter(|count| *count > 0),
            "wait_timeout" => wait.1 = milliseconds(value).ok_or_else(bad)?,
            "timeout" => self.timeout = milliseconds(value).ok_or_else(bad)?,
            _ => {
                let hint = format!("the parameters are {PARAMETERS}");
                return Err(wrong(&self.shown, "has a parameter that is not known").hint(hint));
            }
        }
        Ok(())
    }
}

fn connection(address: &str, shown: &str, options: &StoreOptions) -> Result<ConnectionInfo> {
    // The reason is left out: it may quote what it did not understand.
    let info = address.into_connection_info().map_err(|_| {
        wrong(shown, "is not an address of Redis").hint("write redis://[user[:password]@]host[:port][/database]")
    })?;
    let mut settings = info.redis_settings().clone();
    for (name, value) in &options.settings {
        settings = match name.as_str() {
            "password" => settings.set_password(value),
            "username" => settings.set_username(value),
            _ => continue,
        };
    }
    Ok(info.set_redis_settings(settings))
}

fn certificates(options: &StoreOptions) -> Result<Option<TlsCertificates>> {
    let client_cert = pem(options, "client_certificate", "CERTIFICATE-----")?;
    let client_tls = match (client_cert, pem(options, "client_key", "PRIVATE KEY-----")?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => {
            let message = "the settings client_certificate and client_key belong together";
            return Err(Error::invalid(message).during("open store"));
        }
    };
    let root_cert = pem(options, "ca_certificate", "CERTIFICATE-----")?;
    Ok((client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
}

fn pem(options: &StoreOptions, name: &str, label: &str) -> Result<Option<Vec<u8>>> {
    match options.settings.get(name) {
        None => Ok(None),
        Some(text) if text.contains("-----BEGIN ") && text.contains(label) => Ok(Some(text.clone().into_bytes())),
        Some(_) => {
            let error = Error::invalid(format!("the setting {name} is not PEM")).during("open store");
            Err(error.hint("give the text of the file, not its name"))
        }
    }
}

fn wrong(shown: &str, what: &str) -> Error {
    Error::invalid(format!("the store URL `{shown}` {what}")).during("open store")
}

fn is_prefix(text: &str) -> bool {
    (1..=LONGEST_PREFIX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn milliseconds(value: &str) -> Option<Duration> {
    value.parse().ok().filter(|millis| (1..=600_000).contains(millis)).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::new(url, &StoreOptions::new())
    }

    #[test]
    fn parameters_are_understood() {
        let config =
            read("redis://:p@h:7000/3?prefix=a.b-c_1&durability=aof-always&wait=2&wait_timeout=200&timeout=5").unwrap();
        assert_eq!(config.prefix, "a.b-c_1");
        assert!(config.is_durable() && !config.cluster && !config.uses_tls());
        assert_eq!(config.replicas, Some(Replicas { count: 2, timeout: Duration::from_millis(200) }));
        assert_eq!(config.timeout, Duration::from_millis(5));
        assert_eq!(config.connection.redis_settings().db(), 3);
        assert!(read("rediss://h").unwrap().uses_tls());
        assert!(!read("redis://h?durability=aof-everysec").unwrap().is_durable());
        assert!(read("redis://h?durable=true").unwrap().is_durable());
    }

    #[test]
    fn nonsense_is_refused_without_its_secrets() {
        for url in [
            "redis://",
            "redis://u:hunter2@h:notaport",
            "redis://u:hunter2@h/x",
            "redis://u:hunter2@h?prefix=a{b}",
            "redis://u:hunter2@h?prefix=",
            "redis://u:hunter2@h?surprise=1",
            "redis://u:hunter2@h?cluster=maybe",
            "redis://u:hunter2@h?timeout=0",
            "redis://u:hunter2@h?cluster=true&wait=1",
            "redis://u:hunter2@h#insecure",
            "redis://u:hunter2#@h",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.code(), "RK0001", "{url}");
            assert!(!format!("{error:?} {}", error.next_step()).contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn a_password_among_the_settings_wins() {
        let options = StoreOptions::new().with_setting("password", "other");
        let config = Config::new("redis://:one@h", &options).unwrap();
        assert_eq!(config.connection.redis_settings().password(), Some("other"));
        assert!(!format!("{config:?}").contains("one"));
    }

    #[test]
    fn fuzzed_urls() {
        let seeds = [
            "redis://:p@h:7000/3?prefix=a.b-c_1&durability=aof-always&wait=2&wait_timeout=200&timeout=5",
            "rediss://h?cluster=true",
        ];
        rekindle_fuzz::fuzz!("redis-url").seeds(seeds).words(["@", "?", "&timeout=", "&cluster=", "[::1]"]).text(read);
    }
}
