//! Telling clients of changes, in both ways of the protocol: a subscription that is a request of its
//! own, and the older one, where a connection has a list of addresses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rekindle::{Error, Result};
use rmcp::RoleServer;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, SubscriptionContext};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::uri::Address;
use crate::watch::{Interest, Subject, Watch};

/// The most addresses one client may subscribe to at a time.
const MAX_SUBSCRIPTIONS: usize = 256;

/// How often it is looked whether a silent connection is still there.
const SILENCE: Duration = Duration::from_secs(5);

/// What of a filter can be done.
pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let uris = requested.resource_subscriptions.iter().flatten();
    let known: Vec<String> = uris.filter(|uri| Address::parse(uri).is_ok()).take(MAX_SUBSCRIPTIONS).cloned().collect();
    let mut accepted = SubscriptionFilter::new();
    accepted.resources_list_changed = requested.resources_list_changed;
    accepted.resource_subscriptions = Some(known).filter(|uris| !uris.is_empty());
    accepted
}

/// Tells of changes until the subscription is cancelled.
pub(crate) async fn listen(watch: &Watch, context: SubscriptionContext) -> Result<()> {
    let mut changes = watch.changes();
    let mut wanted = Wanted::default();
    for uri in context.accepted().resource_subscriptions.iter().flatten() {
        wanted.add(watch, uri).await?;
    }
    let _list = match context.accepted().resources_list_changed {
        Some(true) => Some(watch.on(Subject::List).await?),
        _ => None,
    };
    loop {
        let changed = tokio::select! {
            () = context.cancelled() => return Ok(()),
            changed = next(&mut changes) => changed,
        };
        let sent = match changed {
            None => return Ok(()),
            Some(Changed::One(Subject::List)) => context.sink().notify_resource_list_changed().await,
            Some(Changed::One(Subject::At(address))) => match wanted.uri(&address) {
                Some(uri) => context.sink().notify_resource_updated(uri).await,
                None => Ok(()),
            },
            Some(Changed::Anything) => {
                let mut sent = context.sink().notify_resource_list_changed().await;
                for uri in wanted.uris() {
                    sent = sent.and(context.sink().notify_resource_updated(uri).await);
                }
                sent
            }
        };
        // What the filter holds back is no failure; a connection that is gone cancels the subscription.
        drop(sent);
    }
}

/// What one connection subscribed to, in the older way.
#[derive(Clone, Default)]
pub(crate) struct Connection {
    wanted: Arc<Mutex<Wanted>>,
    begun: Arc<AtomicBool>,
}

impl Connection {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to tell a client of changes, until its connection is gone; once, however often it is asked to.
    pub(crate) async fn begin(&self, watch: &Watch, peer: Peer<RoleServer>) -> Result<()> {
        if self.begun.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let (changes, list) = (watch.changes(), watch.on(Subject::List).await?);
        tokio::spawn(tell(changes, list, self.clone(), peer));
        Ok(())
    }

    /// Adds an address.
    pub(crate) async fn subscribe(&self, watch: &Watch, uri: &str) -> Result<()> {
        let (address, interest) = interest(watch, uri).await?;
        self.wanted().insert(address, uri, interest)
    }

    /// Takes an address off again.
    pub(crate) fn unsubscribe(&self, uri: &str) -> Result<()> {
        let address = Address::parse(uri)?;
        self.wanted().0.remove(&address);
        Ok(())
    }
}

async fn tell(mut changes: Receiver<Subject>, _list: Interest, connection: Connection, peer: Peer<RoleServer>) {
    while !peer.is_transport_closed() {
        let changed = match tokio::time::timeout(SILENCE, next(&mut changes)).await {
            Err(_) => continue,
            Ok(None) => break,
            Ok(Some(changed)) => changed,
        };
        let (list, uris) = match changed {
            Changed::One(Subject::List) => (true, Vec::new()),
            Changed::One(Subject::At(address)) => (false, connection.wanted().uri(&address).into_iter().collect()),
            Changed::Anything => (true, connection.wanted().uris()),
        };
        if list && peer.notify_resource_list_changed().await.is_err() {
            break;
        }
        for uri in uris {
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
        }
    }
    connection.wanted().0.clear();
}

enum Changed {
    One(Subject),
    /// Changes were missed: anything may be different.
    Anything,
}

async fn next(changes: &mut Receiver<Subject>) -> Option<Changed> {
    match changes.recv().await {
        Ok(subject) => Some(Changed::One(subject)),
        Err(RecvError::Lagged(_)) => Some(Changed::Anything),
        Err(RecvError::Closed) => None,
    }
}

/// Addresses, as the client spelled them.
#[derive(Default)]
struct Wanted(BTreeMap<Address, (String, Interest)>);

impl Wanted {
    async fn add(&mut self, watch: &Watch, uri: &str) -> Result<()> {
        let (address, interest) = interest(watch, uri).await?;
        self.insert(address, uri, interest)
    }

    fn insert(&mut self, address: Address, uri: &str, interest: Interest) -> Result<()> {
        if self.0.len() >= MAX_SUBSCRIPTIONS && !self.0.contains_key(&address) {
            let (found, limit) = (self.0.len() as u64 + 1, MAX_SUBSCRIPTIONS as u64);
            return Err(
                Error::limit("subscriptions of one connection", found, limit).hint("unsubscribe from others first")
            );
        }
        self.0.insert(address, (uri.to_owned(), interest));
        Ok(())
    }

    fn uri(&self, address: &Address) -> Option<String> {
        self.0.get(address).map(|(uri, _)| uri.clone())
    }

    fn uris(&self) -> Vec<String> {
        self.0.values().map(|(uri, _)| uri.clone()).collect()
    }
}

async fn interest(watch: &Watch, uri: &str) -> Result<(Address, Interest)> {
    let address = Address::parse(uri)?;
    let interest = watch.on(Subject::At(address.clone())).await?;
    Ok((address, interest))
}
