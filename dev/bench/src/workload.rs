//! What is written: sessions whose every step is a message of 2 KB and a checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle_core::codec::{Codec, Frame};
use rekindle_core::record::{Checkpoint, Durability, LogAppend};
use rekindle_core::{
    BranchId, CheckpointId, Journal, Json, LogName, OwnerId, Position, Record, Seq, SessionHeader, SessionId,
    SessionKey, Store, StoreExt as _, Target,
};
use rekindle_store::{BranchWriter, StoreOptions, SystemClock, WriterOptions, system_ids};
use serde::Serialize;

use crate::Result;

/// The characters of a message's text: 2 KB.
const TEXT_CHARACTERS: usize = 2_048;
/// The records of a step.
const STEP_RECORDS: u64 = 2;
/// Longer than any run.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The stores that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Nothing is durable.
    Memory,
    /// Lines in files.
    Files,
    /// One database.
    Sqlite,
}

impl StoreKind {
    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Files => "files",
            Self::Sqlite => "sqlite",
        }
    }

    /// Opens the store of this kind in `directory`, with a journal over it.
    pub fn journal(self, directory: &Path, codec: Codec) -> Result<Journal> {
        let directory = directory.display();
        let url = match self {
            Self::Memory => "memory:".to_owned(),
            Self::Files => format!("file:{directory}/journals"),
            Self::Sqlite => format!("sqlite:{directory}/rekindle.db"),
        };
        let store: Arc<dyn Store> = rekindle_store::open(&url, StoreOptions::new())?;
        Ok(Journal::new(store, codec, Arc::new(SystemClock), system_ids()?))
    }
}

/// A message as a model's API has it.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    role: &'static str,
    /// What it says.
    pub content: String,
}

/// Messages of random printable ASCII, the same in every run.
#[derive(Debug)]
pub struct Messages {
    state: u64,
}

impl Messages {
    /// The messages of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next message: 95 symbols, all about equally likely, so 6.6 bits in each byte.
    pub fn next(&mut self) -> Message {
        let mut content = String::with_capacity(TEXT_CHARACTERS);
        while content.len() < TEXT_CHARACTERS {
            let symbols = self.number().to_le_bytes().map(|byte| (u16::from(byte) * 95 / 256) as u8 + b' ');
            content.extend(symbols.map(char::from));
        }
        Message { role: "user", content }
    }

    // SplitMix64.
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// A session that is being written, under its lease.
#[derive(Debug)]
pub struct Session {
    journal: Journal,
    target: Target,
    writer: BranchWriter,
    log: LogName,
    messages: Messages,
    step: u64,
    parent: Option<CheckpointId>,
    message_bytes: u64,
}

impl Session {
    /// The session of that name, new or not, written with that durability.
    pub async fn open(journal: &Journal, name: &str, durability: Durability) -> Result<Self> {
        let key: SessionKey = SessionId::new(name)?.into();
        journal.open_or_create(SessionHeader::new(key.clone())).await?;
        // The same in every session, so that it is let in again after it was closed.
        let owner = OwnerId::new("bench")?;
        let lease = journal.store().acquire(&key, &BranchId::main(), &owner, LEASE).await?;
        let target = Target::new(key, BranchId::main(), lease.head).with_fence(lease.info.epoch);
        Ok(Self {
            journal: journal.clone(),
            writer: BranchWriter::new(journal.clone(), target.clone(), WriterOptions::new(durability)),
            target,
            log: LogName::new("messages")?,
            messages: Messages::new(name.bytes().fold(1, |seed, byte| seed * 31 + u64::from(byte))),
            step: 0,
            parent: None,
            message_bytes: 0,
        })
    }

    /// Its name.
    pub fn key(&self) -> &SessionKey {
        &self.target.session
    }

    /// The bytes of all messages so far, as JSON.
    pub fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// The next message.
    pub fn message(&mut self) -> Message {
        self.messages.next()
    }

    /// The records of the step that appends `message`.
    pub fn step_with(&mut self, message: &Message) -> Result<[Record; 2]> {
        let item = Json::of(message)?;
        self.step += 1;
        self.message_bytes += item.as_str().len() as u64;
        let id = CheckpointId::generate(self.journal.ids(), self.journal.clock().now());
        let mut checkpoint = Checkpoint::new(id.clone());
        checkpoint.step = self.step;
        checkpoint.parent = self.parent.replace(id);
        Ok([LogAppend::new(self.log.clone(), vec![item]).into(), checkpoint.into()])
    }

    /// The records of the next step.
    pub fn step(&mut self) -> Result<[Record; 2]> {
        let message = self.message();
        self.step_with(&message)
    }

    /// A step as the store would be given it, never committed, and the bytes of its records.
    pub fn frame(&mut self) -> Result<(Frame, usize)> {
        let records = self.step()?;
        let append = self.journal.prepare(&self.target, &records)?;
        let frame = append.frames.into_iter().next().ok_or("a step without a frame")?;
        Ok((frame, serde_json::to_vec(&records)?.len()))
    }

    /// Commits the records of a step.
    pub async fn commit(&mut self, records: &[Record]) -> Result<()> {
        self.writer.commit(records).await?;
        Ok(())
    }

    /// Commits the next step and tells how long that took, without making the records.
    pub async fn timed_commit(&mut self) -> Result<Duration> {
        let records = self.step()?;
        let start = Instant::now();
        self.commit(&records).await?;
        Ok(start.elapsed())
    }

    /// Commits so many steps, each as a batch of its own.
    pub async fn commit_steps(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let records = self.step()?;
            self.commit(&records).await?;
        }
        Ok(())
    }

    /// Waits until everything is durable, then goes on with another durability.
    pub async fn switch(mut self, durability: Durability) -> Result<Self> {
        self.target.expected = self.writer.close().await?;
        self.writer = BranchWriter::new(self.journal.clone(), self.target.clone(), WriterOptions::new(durability));
        Ok(self)
    }

    /// Waits until everything is durable and ends.
    pub async fn close(self) -> Result<()> {
        self.writer.close().await?;
        Ok(())
    }
}

/// The position after so many steps on `main`.
pub fn after_steps(steps: u64) -> Position {
    Position::new(BranchId::main(), Seq(steps * STEP_RECORDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_two_kilobytes_of_printable_text_and_differ() {
        let mut messages = Messages::new(1);
        let (first, second) = (messages.next(), messages.next());
        for message in [&first, &second] {
            assert_eq!(message.content.len(), TEXT_CHARACTERS);
            assert!(message.content.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
        }
        assert_ne!(first.content, second.content);
        assert_eq!(Messages::new(1).next().content, first.content);
    }

    #[tokio::test]
    async fn sessions_count_what_they_write() {
        let journal = StoreKind::Memory.journal(Path::new(""), Codec::new()).unwrap();
        let mut session = Session::open(&journal, "s", Durability::Async).await.unwrap();
        session.commit_steps(3).await.unwrap();
        session = session.switch(Durability::Sync).await.unwrap();
        session.timed_commit().await.unwrap();
        let (key, bytes) = (session.key().clone(), session.message_bytes());
        session.close().await.unwrap();
        let restored = journal.load(&key, None).await.unwrap();
        assert_eq!(restored.position, after_steps(4));
        let log = LogName::new("messages").unwrap();
        let stored: usize = restored.state.log(&log).iter().map(|item| item.as_str().len()).sum();
        assert_eq!((restored.state.log(&log).len(), stored as u64), (4, bytes));
    }
}
