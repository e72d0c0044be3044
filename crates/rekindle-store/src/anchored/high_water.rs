//! What the marks of a store can tell and be told.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rekindle_core::high_water::{GoneSession, HighWater, Mark, MarkPlace};
use rekindle_core::values::{ValueKind, ValueQuery};
use rekindle_core::{BranchId, ErrorKind, Head, Namespace, Result, SessionId, SessionKey, Store as _};

use super::Anchored;
use super::place::note;

#[async_trait]
impl HighWater for Anchored {
    fn places(&self) -> Vec<MarkPlace> {
        self.0.places.iter().map(super::Place::describe).collect()
    }

    async fn marked(&self, session: &SessionKey) -> Result<Vec<BTreeMap<BranchId, Head>>> {
        let mut all = Vec::new();
        for place in &self.0.places {
            all.push(place.read(session).await?.mark.map(|mark| mark.heads()).unwrap_or_default());
        }
        Ok(all)
    }

    async fn gone(&self, namespace: &Namespace) -> Result<Vec<GoneSession>> {
        let mut gone: BTreeMap<SessionKey, GoneSession> = BTreeMap::new();
        for place in &self.0.places {
            let mut query = ValueQuery::new(namespace.clone(), ValueKind::HIGH_WATER);
            loop {
                let listed = place.values().list(&query).await;
                note(&place.trouble, &listed);
                let page = listed?;
                for (id, bytes) in &page.values {
                    let Some(mark) = Mark::decode(bytes).filter(Mark::is_kept) else { continue };
                    let Ok(id) = SessionId::new(id) else { continue };
                    let session = SessionKey::new(namespace.clone(), id);
                    // Opened here, not in the store: that compares with the marks as they are now.
                    let opened = self.open(&session).await;
                    if opened.is_err_and(|error| *error.kind() == ErrorKind::NotFound)
                        && place.read(&session).await?.mark.is_some_and(|mark| mark.is_kept())
                    {
                        let found = GoneSession { session: session.clone(), heads: mark.heads() };
                        gone.entry(session).or_insert(found);
                    }
                }
                match page.values.last().filter(|_| page.more) {
                    Some((last, _)) => query.after = Some(last.clone()),
                    None => break,
                }
            }
        }
        Ok(gone.into_values().collect())
    }

    fn permit(&self, session: &SessionKey) {
        self.0.seen.permit(session, true);
    }

    async fn accept(&self, session: &SessionKey) -> Result<()> {
        self.flush().await;
        for place in &self.0.places {
            let opened = self.0.store.open(session).await;
            match opened {
                Ok(_) => place.accept(session, || self.0.store.open(session)).await?,
                Err(error) if *error.kind() == ErrorKind::NotFound => place.forget(session).await.map(|_| ())?,
                Err(error) => return Err(error),
            }
        }
        self.0.seen.forget(session);
        self.0.seen.permit(session, false);
        Ok(())
    }

    async fn flush(&self) {
        for keeper in &self.0.keepers {
            keeper.flush().await;
        }
    }
}
