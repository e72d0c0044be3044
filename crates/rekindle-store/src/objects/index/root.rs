//! The root of an index: read by every list, and the one object that is written over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rekindle_core::{ErrorKind, Namespace, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::super::backend::Tag;
use super::super::envelope;
use super::super::layout::catalog;
use super::super::store::Inner;
use super::chunks::Chunk;
use super::{Line, LineKey, root_name};

/// How often other writers may be faster before the lines are left to the next one.
const TRIES: usize = 4;
/// The most lines that wait in the root before they go into chunks.
const MOST_RECENT: usize = 64;
/// How long it is remembered that a session is gone: longer than any process may hold back what it knows.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// The lines that changed last, and where all others are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(in super::super) struct Root {
    pub(super) recent: Vec<Line>,
    /// By the keys of their lines, which do not overlap.
    pub(super) chunks: Vec<Chunk>,
}

impl Root {
    /// Takes lines over, unless it knows of later changes.
    pub(super) fn merge(&mut self, lines: &[Line]) {
        for line in lines {
            match self.recent.iter_mut().find(|known| known.key == line.key) {
                Some(known) if known.number > line.number => {}
                Some(known) => *known = line.clone(),
                None => self.recent.push(line.clone()),
            }
        }
    }

    /// Returns true if its lines have to go into chunks: there are many, or one says that a session is gone, of
    /// which nothing may stay behind.
    fn is_due(&self, lines: &[Line]) -> bool {
        let live = self.recent.iter().filter(|line| line.removed_at.is_none()).count();
        live > MOST_RECENT || lines.iter().any(|line| line.removed_at.is_some())
    }

    /// Lets go of sessions that are long gone.
    pub(super) fn forget_removed(&mut self, now: Timestamp) {
        self.recent.retain(|line| line.removed_at.is_none_or(|at| now.since(at) < REMEMBERED));
    }

    /// The chunk that a key belongs into, if there is any.
    pub(super) fn chunk_of(&self, key: &LineKey) -> Option<usize> {
        match self.chunks.is_empty() {
            true => None,
            false => Some(self.chunks.partition_point(|chunk| chunk.first <= *key).saturating_sub(1)),
        }
    }
}

/// The roots that this process has seen, with their versions.
#[derive(Debug, Default)]
pub(in super::super) struct Roots(Mutex<HashMap<Namespace, (Root, Tag)>>);

impl Roots {
    fn known(&self, namespace: &Namespace) -> Option<(Root, Tag)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned()
    }

    fn remember(&self, namespace: &Namespace, known: Option<(Root, Tag)>) {
        let mut roots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => drop(roots.insert(namespace.clone(), known)),
            None => drop(roots.remove(namespace)),
        }
    }
}

impl Inner {
    /// The root of a namespace as it is; nothing if there is none that can be read. The version of one that cannot be
    /// read is told, so that another can take its place.
    pub(super) async fn read_root(&self, namespace: &Namespace) -> Result<(Option<Root>, Option<Tag>)> {
        let name = root_name(namespace);
        let Some((bytes, tag)) = self.bucket.get_tagged(&name).await? else {
            self.roots.remember(namespace, None);
            return Ok((None, None));
        };
        let root = envelope::decode::<Root>(&name, &bytes).ok().map(|(_, root, _)| root);
        self.roots.remember(namespace, root.clone().map(|root| (root, tag.clone())));
        Ok((root, Some(tag)))
    }

    /// Writes a root over the version that was read, or as the first; whether that was possible.
    pub(super) async fn write_root(&self, namespace: &Namespace, root: &Root, over: Option<&Tag>) -> Result<bool> {
        let bytes = envelope::encode(&self.ids.nonce(), root, 0)?.freeze();
        let name = root_name(namespace);
        let written = match over {
            Some(tag) => self.bucket.put_over(&name, bytes, tag).await?,
            None => self.bucket.try_put_new(&name, bytes).await?,
        };
        // Its version is not told by a write.
        self.roots.remember(namespace, None);
        Ok(written)
    }

    /// Returns true if the namespace has an index that can be read.
    pub(in super::super) async fn has_index(&self, namespace: &Namespace) -> Result<bool> {
        Ok(self.read_root(namespace).await?.0.is_some())
    }

    /// Begins the index of a namespace that has no sessions yet. Whoever creates one asks for it: an index that
    /// begins later has to be made from all sessions there are.
    pub(in super::super) async fn begin_index(&self, namespace: &Namespace) -> Result<()> {
        if self.roots.known(namespace).is_some() || self.read_root(namespace).await?.1.is_some() {
            return Ok(());
        }
        if self.bucket.entries(&catalog(namespace), None, 1).await?.is_empty() {
            self.write_root(namespace, &Root::default(), None).await?;
        }
        Ok(())
    }

    /// Writes lines into the index; whether they are there. If not, because there is no index or others were faster
    /// every time, the marks of their sessions have to stay.
    pub(in super::super) async fn write_lines(&self, namespace: &Namespace, lines: &[Line]) -> Result<bool> {
        let (mut known, mut failed) = (self.roots.known(namespace), None);
        for _ in 0..TRIES {
            let (mut root, tag) = match known.take() {
                Some(known) => known,
                None => match self.read_root(namespace).await? {
                    (Some(root), Some(tag)) => (root, tag),
                    _ => return Ok(false),
                },
            };
            root.merge(lines);
            root.forget_removed(self.now().await?.early);
            let moved = match root.is_due(lines) {
                true => match self.move_into_chunks(namespace, &mut root, lines).await {
                    // Its chunks were replaced meanwhile, or the root is one from memory.
                    Err(error) if *error.kind() == ErrorKind::Corrupt => {
                        self.roots.remember(namespace, None);
                        failed = Some(error);
                        continue;
                    }
                    moved => Some(moved?),
                },
                false => None,
            };
            let mut written = self.write_root(namespace, &root, Some(&tag)).await?;
            if let Some(moved) = moved {
                // A write whose acknowledgement was lost finds itself there.
                written = written || self.names_chunks(namespace, &moved.written).await?;
                // Of both sets one is named by no root any more.
                let _ = self.bucket.delete_all(if written { &moved.replaced } else { &moved.written }).await;
            }
            if written {
                return Ok(true);
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// Returns true if the root names these chunks.
    async fn names_chunks(&self, namespace: &Namespace, objects: &[String]) -> Result<bool> {
        let root = self.read_root(namespace).await?.0.unwrap_or_default();
        Ok(objects.iter().any(|object| root.chunks.iter().any(|chunk| chunk.object == *object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, number: u64) -> Line {
        let key = LineKey { created_at: Timestamp(7), name: name.into() };
        Line { key, number, info: None, removed_at: None }
    }

    #[test]
    fn later_changes_win_in_any_order() {
        let mut root = Root::default();
        root.merge(&[line("a", 3), line("b", 1)]);
        root.merge(&[line("a", 2), line("b", 4)]);
        let found: Vec<_> = root.recent.iter().map(|line| (line.key.name.as_str(), line.number)).collect();
        assert_eq!(found, [("a", 3), ("b", 4)]);
    }

    #[test]
    fn what_is_gone_is_remembered_for_a_while() {
        let gone = |at: u64| Line { removed_at: Some(Timestamp(at)), ..line(&at.to_string(), 1) };
        let mut root = Root { recent: vec![gone(0), gone(10_000_000), line("a", 1)], chunks: Vec::new() };
        root.forget_removed(Timestamp(0).plus(REMEMBERED).plus(Duration::from_secs(1)));
        assert_eq!(root.recent, [gone(10_000_000), line("a", 1)]);
    }

    #[test]
    fn fuzzed_roots() {
        let root = Root { recent: vec![line("a", 3)], chunks: Vec::new() };
        let seed = envelope::encode(&[1; 16], &root, 0).unwrap().to_vec();
        rekindle_fuzz::fuzz!("object-index-root").seeds([seed]).repair(envelope::repaired).bytes(|bytes| {
            let mut root = envelope::decode::<Root>("index/n/root", &bytes.to_vec().into()).ok()?.1;
            root.merge(&[line("a", 9)]);
            root.forget_removed(Timestamp::MAX);
            let _ = root.chunk_of(&line("a", 1).key);
            Some(())
        });
    }
}
