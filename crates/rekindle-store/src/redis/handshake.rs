//! What a server is asked when a connection to it is made: whether it can keep a store at all, and
//! as durably as the URL says, and which store it holds.

use std::collections::HashMap;
use std::fmt;

use redis::{RedisError, Value};
use rekindle_core::{Error, ErrorKind, Result};

use super::config::{Config, Durability};
use super::failure::{another_store, server_error};
use super::keys::Keys;
use super::link::Wire;
use super::scripts;
use super::value;
use crate::system::system_ids;

/// The layout of keys this build writes, and the newest it reads.
const LAYOUT: u32 = 1;
const OLDEST_SERVER: u32 = 7;

/// An error if the server is not fit for what the URL says.
pub(super) async fn check(config: &Config, wire: &mut Wire) -> Result<()> {
    let answer = wire.send(&redis::cmd("INFO")).await.map_err(|error| server_error(&config.shown, error))?;
    let text = value::text(answer)?;
    let facts = Facts(text.lines().filter_map(|line| line.split_once(':')).collect());
    facts.check_kind(config)?;
    facts.check_state(config)?;
    check_durability(config, facts.get("aof_enabled") == "1", wire).await
}

/// What a server says about itself.
struct Facts<'a>(HashMap<&'a str, &'a str>);

impl Facts<'_> {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }

    fn check_kind(&self, config: &Config) -> Result<()> {
        let major = self.get("redis_version").split('.').next().and_then(|major| major.parse::<u32>().ok());
        if let Some(major) = major.filter(|major| *major < OLDEST_SERVER) {
            return Err(unfit(config, format!("the server is Redis {major}; {OLDEST_SERVER} or newer is needed")));
        }
        match (self.get("cluster_enabled") == "1", config.cluster) {
            (true, false) => {
                let error = unfit(config, "the server is part of a cluster");
                Err(error.hint("add cluster=true to the parameters of the URL"))
            }
            (false, true) => Err(unfit(config, "the server is not part of a cluster").hint("leave out cluster=true")),
            _ => Ok(()),
        }
    }

    fn check_state(&self, config: &Config) -> Result<()> {
        let unavailable = |what: String| {
            Error::new(ErrorKind::StoreUnavailable, format!("{what}: {}", config.shown)).during("open store")
        };
        if self.get("loading") == "1" {
            return Err(unavailable("the server is still loading its data".to_owned()));
        }
        // In a cluster, the client finds the primary of every slot.
        if self.get("role") == "slave" && !config.read_only && !config.cluster {
            let error = unavailable(format!("the server is a read-only replica of {}", self.get("master_host")));
            return Err(error.hint("name the primary, or open the store read-only"));
        }
        // Other policies only evict keys that expire, and keys of a store never do.
        let policy = self.get("maxmemory_policy");
        if policy.starts_with("allkeys") && !config.may_evict {
            let error = unfit(config, format!("the server forgets any key when its memory is full ({policy})"));
            return Err(error.hint("set maxmemory-policy to noeviction, or accept the loss with evict=allow"));
        }
        Ok(())
    }
}

async fn check_durability(config: &Config, appends: bool, wire: &mut Wire) -> Result<()> {
    let wanted = config.durability.max(if config.durable { Durability::Always } else { Durability::Any });
    if wanted == Durability::Any {
        return Ok(());
    }
    let answer = wire.send(redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await;
    let found = match answer.map(|answer| value::texts(answer).ok().and_then(|texts| texts.into_iter().nth(1))) {
        _ if !appends => Durability::Any,
        Ok(Some(policy)) if policy == "always" => Durability::Always,
        Ok(Some(policy)) if policy == "everysec" => Durability::EverySecond,
        Ok(_) => Durability::Any,
        // Managed servers keep their configuration to themselves.
        Err(error) if is_forbidden(&error) && config.durable => return Ok(()),
        Err(error) if is_forbidden(&error) => {
            let error = unfit(config, "the server does not say how durable it is");
            return Err(error.hint("say durable=true if you know that it syncs every write to disk"));
        }
        Err(error) => return Err(server_error(&config.shown, error)),
    };
    if found >= wanted {
        return Ok(());
    }
    let error = unfit(config, "the server keeps what it acknowledges less durably than the URL says");
    Err(error.hint("set appendonly yes and appendfsync always (or everysec), or say less in the URL"))
}

fn is_forbidden(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

/// What the store says it is. Made if there is none, it may be made and none was known before.
pub(super) async fn identity(config: &Config, keys: &Keys, known: Option<&str>, wire: &mut Wire) -> Result<String> {
    let fresh = match config.create && known.is_none() {
        true => format!("{LAYOUT} {:032x}", u128::from_be_bytes(system_ids()?.nonce())),
        false => String::new(),
    };
    let mut setup = redis::cmd("EVAL");
    setup.arg(&scripts::SETUP.code).arg(1).arg(keys.store()).arg(fresh);
    let answer = wire.send(&setup).await.map_err(|error| server_error(&config.shown, error))?;
    if answer == Value::Nil && known.is_some() {
        return Err(another_store(&config.shown));
    }
    if answer == Value::Nil {
        let message = format!("there is no store under the prefix `{}`: {}", config.prefix, config.shown);
        return Err(Error::not_found(message).during("open store"));
    }
    let identity = value::text(answer)?;
    let layout = identity.split_once(' ').and_then(|(layout, _)| layout.parse().ok());
    match layout {
        Some(LAYOUT) => Ok(identity),
        Some(found) if found > LAYOUT => {
            let kind = ErrorKind::VersionTooNew { what: "the layout of the store".into(), found, supported: LAYOUT };
            let message = format!("the store has layout {found}; this build knows {LAYOUT}: {}", config.shown);
            Err(Error::new(kind, message).during("open store"))
        }
        _ => {
            let message = format!("what stands under the prefix `{}` is not a store: {}", config.prefix, config.shown);
            Err(Error::corrupt(message).during("open store").hint("use another prefix"))
        }
    }
}

fn unfit(config: &Config, what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}: {}", config.shown)).during("open store")
}
