//! The connections that are open. Those that have not shown a credential give way to new ones, so that silent
//! connections keep nobody out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The origin of a connection, as far as limits are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// An address; of IPv6 the network that one subscriber has.
    Address(IpAddr),
    /// A user of this machine.
    User(u32),
}

impl Source {
    pub(crate) fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(long) => IpAddr::V6(Ipv6Addr::from_bits(long.to_bits() >> 64 << 64)),
            short => short,
        })
    }
}

/// All open connections.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: usize,
    /// The most connections of one place that may be open without a credential.
    most_unknown: usize,
    members: Mutex<Members>,
    room: Notify,
}

#[derive(Debug, Default)]
struct Members {
    next: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    from: Source,
    known: bool,
    close: CancellationToken,
}

/// One connection; open until this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    crowd: Arc<Crowd>,
    number: u64,
    /// Cancelled when the connection has to give way.
    pub(crate) close: CancellationToken,
}

impl Crowd {
    pub(crate) fn new(most: usize, most_unknown: usize) -> Arc<Self> {
        let members = Mutex::default();
        Arc::new(Self { most: most.max(1), most_unknown: most_unknown.max(1), members, room: Notify::new() })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more connection can be taken.
    pub(crate) async fn room(&self) {
        loop {
            let left = self.room.notified();
            {
                let members = self.members();
                if members.open.len() < self.most || members.open.values().any(|open| !open.known) {
                    return;
                }
            }
            left.await;
        }
    }

    /// Takes a connection in. Others without a credential are closed for it: the oldest from the same place if
    /// it has as many as it may have, and the oldest from the place with the most of them if all is full.
    pub(crate) fn join(self: &Arc<Self>, from: Source) -> Member {
        let mut members = self.members();
        if members.unknown(from) >= self.most_unknown {
            members.close_oldest(from);
        }
        if members.open.len() >= self.most
            && let Some(fullest) = members.fullest()
        {
            members.close_oldest(fullest);
        }
        let (number, close) = (members.next, CancellationToken::new());
        members.next += 1;
        members.open.insert(number, Open { from, known: false, close: close.clone() });
        Member { crowd: Arc::clone(self), number, close }
    }
}

impl Members {
    fn unknown(&self, from: Source) -> usize {
        self.open.values().filter(|open| !open.known && open.from == from).count()
    }

    fn fullest(&self) -> Option<Source> {
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for open in self.open.values().filter(|open| !open.known) {
            *counts.entry(open.from).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(from, _)| from)
    }

    fn close_oldest(&mut self, from: Source) {
        let oldest = self.open.iter().find(|(_, open)| !open.known && open.from == from).map(|(number, _)| *number);
        if let Some(open) = oldest.and_then(|number| self.open.remove(&number)) {
            open.close.cancel();
        }
    }
}

impl Member {
    /// A credential was shown: this connection gives way to no other.
    pub(crate) fn known(&self) {
        if let Some(open) = self.crowd.members().open.get_mut(&self.number) {
            open.known = true;
        }
    }

    /// Returns true once a credential was shown.
    pub(crate) fn is_known(&self) -> bool {
        self.crowd.members().open.get(&self.number).is_some_and(|open| open.known)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.members().open.remove(&self.number);
        self.crowd.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Source {
        Source::address(text.parse().unwrap())
    }

    fn closed(members: &[Member]) -> Vec<usize> {
        members.iter().enumerate().filter(|(_, member)| member.close.is_cancelled()).map(|(index, _)| index).collect()
    }

    #[test]
    fn those_without_a_credential_give_way() {
        let crowd = Crowd::new(4, 3);
        let mut members: Vec<Member> = (0..3).map(|_| crowd.join(from("10.0.0.1"))).collect();
        members[0].known();
        assert!(members[0].is_known() && !members[1].is_known());
        members.push(crowd.join(from("10.0.0.2")));
        assert_eq!(closed(&members), [0_usize; 0]);
        members.push(crowd.join(from("10.0.0.2")));
        assert_eq!(closed(&members), [1], "the oldest of the place with the most");
        members.extend((0..3).map(|_| crowd.join(from("10.0.0.3"))));
        assert_eq!(closed(&members), [1, 3, 5, 6], "who comes again and again closes its own");
        let crowd = Crowd::new(100, 2);
        let members: Vec<Member> = (0..4).map(|_| crowd.join(from("10.0.0.1"))).collect();
        assert_eq!(closed(&members), [0, 1], "one place has no more than its share");
    }

    #[tokio::test]
    async fn with_credentials_everywhere_the_next_one_waits() {
        let crowd = Crowd::new(1, 1);
        let only = crowd.join(from("10.0.0.1"));
        crowd.room().await;
        only.known();
        let waiting = crowd.room();
        tokio::pin!(waiting);
        assert!(is_pending(&mut waiting).await, "there is no room");
        drop(only);
        waiting.await;
    }

    /// Returns whether something is not ready at once.
    async fn is_pending(waiting: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        tokio::select! {
            biased;
            () = waiting => false,
            () = std::future::ready(()) => true,
        }
    }

    #[test]
    fn one_subscriber_is_one_place() {
        assert_eq!(from("2001:db8::1"), from("2001:db8::ffff"));
        assert_ne!(from("2001:db8::1"), from("2001:db8:0:1::1"));
        assert_eq!(from("::ffff:10.0.0.1"), from("10.0.0.1"));
        assert_ne!(from("10.0.0.1"), from("10.0.0.2"));
    }
}
