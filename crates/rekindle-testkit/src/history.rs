//! Histories for tests: records, and a writer that keeps track of its head.

use rekindle_core::record::{Checkpoint, LogAppend, RegisterSet};
use rekindle_core::{
    BranchId, CheckpointId, Epoch, Head, Journal, Json, LogName, Record, RegisterKey, Result, SessionKey, State, Target,
};

/// A message for the log `messages`.
pub fn message(text: &str) -> Record {
    let log = LogName::new("messages").expect("the name is legal");
    LogAppend::new(log, vec![Json::from(text)]).into()
}

/// A register.
pub fn register(key: &str, value: &str) -> Record {
    RegisterSet::new(RegisterKey::new(key).expect("the test's key is legal"), Json::from(value)).into()
}

/// A checkpoint.
pub fn checkpoint(id: &str) -> Record {
    Checkpoint::new(CheckpointId::new(id).expect("the test's id is legal")).into()
}

/// A writer of one branch that remembers what was acknowledged.
#[derive(Clone, Debug)]
pub struct History {
    /// The journal it writes to.
    pub journal: Journal,
    /// The session.
    pub session: SessionKey,
    /// The branch.
    pub branch: BranchId,
    /// The head after the last acknowledged append.
    pub head: Head,
    /// The lease it writes under.
    pub fence: Option<Epoch>,
    /// Everything acknowledged, batch by batch, what was inherited included.
    pub batches: Vec<Vec<Record>>,
}

impl History {
    /// A writer at the head of an empty `main`.
    pub async fn begin(journal: &Journal, session: &SessionKey) -> Self {
        let info = journal.open(session).await.expect("the session exists");
        let branch = BranchId::main();
        let head = info.branch(&branch).expect("every session has `main`").head;
        Self { journal: journal.clone(), session: session.clone(), branch, head, fence: None, batches: Vec::new() }
    }

    /// Where the next append goes.
    pub fn target(&self) -> Target {
        let mut target = Target::new(self.session.clone(), self.branch.clone(), self.head);
        target.fence = self.fence;
        target
    }

    /// Appends a batch and remembers it.
    pub async fn append(&mut self, records: Vec<Record>) -> Result<()> {
        let appended = self.journal.append(&self.target(), &records).await?;
        self.head = appended.head;
        self.batches.push(records);
        Ok(())
    }

    /// Appends `count` messages, each with a register and every third with a checkpoint.
    pub async fn append_steps(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let step = self.batches.len();
            let mut records = vec![message(&format!("{} {step}", self.branch)), register("step", &step.to_string())];
            if step.is_multiple_of(3) {
                records.push(checkpoint(&format!("{}-{step}", self.branch)));
            }
            self.append(records).await?;
        }
        Ok(())
    }

    /// Starts a branch after the first `records` records of this one and gives its writer.
    pub async fn fork(&self, branch: &str, records: u64) -> Result<Self> {
        let branch = BranchId::new(branch)?;
        let at = rekindle_core::Position::new(self.branch.clone(), rekindle_core::Seq(records));
        let info = self.journal.fork(&self.session, &at, branch.clone()).await?;
        let mut rest = records as usize;
        let mut batches = Vec::new();
        for batch in &self.batches {
            let taken = batch.len().min(rest);
            if taken > 0 {
                batches.push(batch[..taken].to_vec());
            }
            rest -= taken;
        }
        Ok(Self { branch, head: info.head, batches, fence: None, ..self.clone() })
    }

    /// All records, in order.
    pub fn records(&self) -> Vec<Record> {
        self.batches.concat()
    }

    /// The state after the first `records` records, folded here and not by the journal.
    pub fn state_after(&self, records: usize) -> State {
        let mut state = State::default();
        for record in self.records().iter().take(records) {
            state.apply(record).expect("the history is sound");
        }
        state
    }
}
