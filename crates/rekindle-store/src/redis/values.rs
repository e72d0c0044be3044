//! Small values of the Redis store: for each kind in a namespace a hash of values and a sorted set of
//! their keys, changed by one script.

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;
use rekindle_core::values::{
    Change, Changed, Expected, ValueKey, ValuePage, ValueQuery, Values, check_keys, keys_by_kind,
};
use rekindle_core::{Error, PAGE_BYTES, Result};

use super::link::Call;
use super::{RedisStore, scripts, value};

impl RedisStore {
    async fn find_value(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        let keys = self.link.keys.values(key.namespace(), key.kind());
        let call = Call::reading(keys).arg(key.key().to_owned());
        match self.link.run(&scripts::VALUE, &call).await? {
            Value::Nil => Ok(None),
            found => value::bytes(found).map(Some),
        }
    }

    /// One script for each kind in a namespace: these are in one slot of a cluster.
    async fn find_values(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        let mut found = vec![None; keys.len()];
        for ((namespace, kind), places) in keys_by_kind(keys) {
            let call = Call::reading(self.link.keys.values(namespace, kind));
            let call = places.iter().fold(call, |call, at| call.arg(keys[*at].key().to_owned()));
            let answer = value::list(self.link.run(&scripts::VALUES, &call).await?)?;
            for (at, answer) in places.into_iter().zip(answer) {
                found[at] = match answer {
                    Value::Nil => None,
                    answer => Some(value::bytes(answer)?),
                };
            }
        }
        Ok(found)
    }

    async fn change_value(&self, change: &Change) -> Result<Changed> {
        let key = &change.key;
        let (what, expected) = match &change.expected {
            Expected::Anything => ("any", None),
            Expected::Is(None) => ("none", None),
            Expected::Is(Some(expected)) => ("is", Some(expected.clone())),
        };
        let call = Call::writing(self.link.keys.values(key.namespace(), key.kind()))
            .arg(key.key().to_owned())
            .arg(what)
            .arg(expected.unwrap_or_default())
            .arg(if change.value.is_some() { "set" } else { "delete" })
            .arg(change.value.clone().unwrap_or_default());
        let mut answer = value::list(self.link.run(&scripts::CHANGE_VALUE, &call).await?)?.into_iter();
        let done = value::number(answer.next().unwrap_or(Value::Nil))?;
        match done {
            1 => Ok(Changed::Done),
            // Written by an earlier call, perhaps over another connection: its replicas are waited for now.
            2 => self.link.confirm_all().await.map(|()| Changed::Done),
            _ => Ok(Changed::Differs(answer.next().map(value::bytes).transpose()?)),
        }
    }

    async fn list_values(&self, query: &ValueQuery) -> Result<ValuePage> {
        let from = query.after.as_ref().map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let call = Call::reading(self.link.keys.values(&query.namespace, query.kind))
            .arg(from)
            .arg(query.limit.to_string())
            .arg(PAGE_BYTES.to_string());
        let mut answer = value::list(self.link.run(&scripts::LIST_VALUES, &call).await?)?.into_iter();
        let more = value::number(answer.next().unwrap_or(Value::Nil))? == 1;
        let mut page = ValuePage { values: Vec::new(), more };
        while let (Some(key), Some(found)) = (answer.next(), answer.next()) {
            page.values.push((value::text(key)?, value::bytes(found)?));
        }
        Ok(page)
    }
}

#[async_trait]
impl Values for RedisStore {
    async fn get(&self, key: &ValueKey) -> Result<Option<Bytes>> {
        self.find_value(key).await.map_err(|error: Error| error.during("get value"))
    }

    async fn get_many(&self, keys: &[ValueKey]) -> Result<Vec<Option<Bytes>>> {
        check_keys(keys)?;
        self.find_values(keys).await.map_err(|error| error.during("get values"))
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        change.check()?;
        self.writable("change value")?;
        self.change_value(change).await.map_err(|error| error.during("change value"))
    }

    async fn list(&self, query: &ValueQuery) -> Result<ValuePage> {
        query.check()?;
        self.list_values(query).await.map_err(|error| error.during("list values"))
    }
}
