//! Chunks: lines of sessions that were created one after the other, in one object that is never changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join_all;
use rekindle_core::{Error, Namespace, Result};
use serde::{Deserialize, Serialize};

use super::super::envelope;
use super::super::store::Inner;
use super::root::Root;
use super::{Line, LineKey, chunk_name};

/// A chunk with more lines or bytes is split.
const MOST_LINES: usize = 200;
const MOST_BYTES: usize = 256 << 10;

/// A chunk as the root knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Chunk {
    /// The name of its object.
    pub(super) object: String,
    pub(super) first: LineKey,
    pub(super) last: LineKey,
}

/// Objects that were written for a root, and those that are not needed once it counts.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) written: Vec<String>,
    pub(super) replaced: Vec<String>,
}

impl Inner {
    /// The lines of a chunk, by their keys.
    pub(super) async fn chunk(&self, chunk: &Chunk) -> Result<Arc<Vec<Line>>> {
        let slot = self.chunks.get_or_make(&chunk.object, Arc::default);
        let mut slot = slot.lock().await;
        if let Some(lines) = slot.as_ref() {
            return Ok(lines.clone());
        }
        let missing = || Error::corrupt(format!("the object `{}` is missing", chunk.object));
        let bytes = self.bucket.get(&chunk.object).await?.ok_or_else(missing)?;
        let lines = Arc::new(envelope::decode::<Vec<Line>>(&chunk.object, &bytes)?.1);
        *slot = Some(lines.clone());
        Ok(lines)
    }

    /// Moves the lines of a root into chunks. Of sessions that are gone, the root alone remembers that: from its chunk
    /// such a line is taken when it is `new`, and never again.
    pub(super) async fn move_into_chunks(&self, namespace: &Namespace, root: &mut Root, new: &[Line]) -> Result<Moved> {
        let mut moved = Moved::default();
        let mut targets: BTreeMap<Option<usize>, Vec<Line>> = BTreeMap::new();
        let is_new = |line: &&Line| line.removed_at.is_none() || new.iter().any(|new| new.key == line.key);
        for line in root.recent.iter().filter(is_new) {
            targets.entry(root.chunk_of(&line.key)).or_default().push(line.clone());
        }
        root.recent.retain(|line| line.removed_at.is_some());
        // From behind, so that places before stay what they are.
        for (target, lines) in targets.into_iter().rev() {
            let before = match target {
                Some(target) => self.chunk(&root.chunks[target]).await?.to_vec(),
                None => Vec::new(),
            };
            let after = merged(before.clone(), lines);
            if after == before {
                continue;
            }
            let written = self.write_chunks(namespace, after).await?;
            moved.written.extend(written.iter().map(|chunk| chunk.object.clone()));
            let place = target.map_or(0..0, |target| target..target + 1);
            moved.replaced.extend(root.chunks.splice(place, written).map(|chunk| chunk.object));
        }
        Ok(moved)
    }

    /// Writes lines, which are in the order of their keys, as chunks.
    pub(super) async fn write_chunks(&self, namespace: &Namespace, lines: Vec<Line>) -> Result<Vec<Chunk>> {
        let writes = split(lines).into_iter().map(|lines| async move {
            let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Ok(None) };
            let nonce = self.ids.nonce();
            let object = chunk_name(namespace, &nonce);
            self.bucket.put(&object, envelope::encode(&nonce, &lines, 0)?.freeze()).await?;
            Ok::<_, Error>(Some(Chunk { object, first: first.key.clone(), last: last.key.clone() }))
        });
        Ok(try_join_all(writes).await?.into_iter().flatten().collect())
    }
}

/// The lines of a chunk with others laid over them, without those of sessions that are gone.
fn merged(before: Vec<Line>, lines: Vec<Line>) -> Vec<Line> {
    let mut all: BTreeMap<LineKey, Line> = before.into_iter().map(|line| (line.key.clone(), line)).collect();
    for line in lines {
        if all.get(&line.key).is_none_or(|known| known.number <= line.number) {
            all.insert(line.key.clone(), line);
        }
    }
    all.into_values().filter(|line| line.removed_at.is_none()).collect()
}

fn split(lines: Vec<Line>) -> Vec<Vec<Line>> {
    let mut chunks: Vec<Vec<Line>> = Vec::new();
    let mut bytes = 0;
    for line in lines {
        let len = serde_json::to_vec(&line).map_or(0, |json| json.len());
        match chunks.last_mut().filter(|chunk| chunk.len() < MOST_LINES && bytes + len <= MOST_BYTES) {
            Some(chunk) => {
                bytes += len;
                chunk.push(line);
            }
            None => {
                bytes = len;
                chunks.push(vec![line]);
            }
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use rekindle_core::Timestamp;

    fn line(at: u64, number: u64) -> Line {
        let key = LineKey { created_at: Timestamp(at), name: "s".into() };
        Line { key, number, info: None, removed_at: None }
    }

    #[test]
    fn lines_are_laid_over_others_by_their_last_change() {
        let gone = Line { removed_at: Some(Timestamp(9)), ..line(2, 8) };
        let found = merged(vec![line(1, 5), line(2, 5), line(3, 5)], vec![line(1, 4), gone, line(3, 6), line(4, 1)]);
        assert_eq!(found, [line(1, 5), line(3, 6), line(4, 1)]);
    }

    #[test]
    fn chunks_are_split_and_keep_the_order() {
        let lines: Vec<Line> = (0..450).map(|at| line(at, 1)).collect();
        let chunks = split(lines.clone());
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 50]);
        assert_eq!(chunks.concat(), lines);
        assert!(split(Vec::new()).is_empty());
    }
}
