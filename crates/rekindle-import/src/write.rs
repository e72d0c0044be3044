//! Writing an imported session: each checkpoint of the source is one atomic batch with what is
//! different since the one before.

use std::collections::{BTreeMap, BTreeSet};

use rekindle::core::record::{
    Checkpoint, CheckpointSource, CheckpointTrigger, CheckpointType, RunEnded, RunOutcome, RunStarted,
    SessionDescribed, Usage,
};
use rekindle::core::{Hash, Head, Record, Seq, Target};
use rekindle::{BranchId, CheckpointId, Error, Json, Result, RunId, SessionHeader, SessionKey, State};
use serde_json::Value;

use super::changes;
use super::{Admitted, FROM, Import, Imported, ImportedCheckpoint, KEPT, MARK, Redacted, mark};

/// The most bytes of metadata that are taken over.
const METADATA: usize = 1 << 20;

/// A checkpoint of the source: everything that holds there, not only what changed.
#[derive(Default)]
pub(super) struct Point {
    /// The file or row.
    pub(super) place: String,
    /// Its id in the source.
    pub(super) id: String,
    /// When the source says it was made.
    pub(super) at: Option<Value>,
    pub(super) mark: Mark,
    /// Logs; one that is not named stays as it is.
    pub(super) logs: BTreeMap<String, Vec<Json>>,
    /// Registers; one that is not named is not there.
    pub(super) registers: BTreeMap<String, Json>,
    /// Records of effects.
    pub(super) effects: Vec<Record>,
    /// Whether a run begins here that does not go on with the one before.
    pub(super) fresh: bool,
    /// How the run ended here, if it did.
    pub(super) end: Option<(RunOutcome, String)>,
}

/// What the source says about a checkpoint.
#[derive(Default)]
pub(super) struct Mark {
    pub(super) source: CheckpointSource,
    pub(super) trigger: CheckpointTrigger,
    pub(super) kind: CheckpointType,
    pub(super) step: u64,
    pub(super) description: String,
    pub(super) active_micros: u64,
    pub(super) usage: Usage,
    /// Whether something failed on the way here.
    pub(super) unclean: bool,
    /// Whether no run may be resumed from here.
    pub(super) closed: bool,
    /// What else there is to keep.
    pub(super) extra: BTreeMap<String, Value>,
}

/// Where a session comes from.
pub(super) struct Origin {
    /// The executor whose session it is.
    pub(super) executor: &'static str,
    /// The name of the form it was stored in.
    pub(super) form: &'static str,
    pub(super) place: String,
    /// What the source says of its times.
    pub(super) times: BTreeMap<String, Value>,
    /// Everything but the key and the mark.
    pub(super) agent: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) metadata: BTreeMap<String, Json>,
}

/// Writes one session.
pub(super) struct Writer {
    key: SessionKey,
    origin: Origin,
    leftover: bool,
    header: Option<SessionHeader>,
    created: bool,
    head: Head,
    state: State,
    run: Option<RunId>,
    /// The point that is written once it is known what follows it.
    held: Option<Point>,
    ids: BTreeSet<String>,
    redacted: BTreeSet<String>,
    done: Vec<ImportedCheckpoint>,
}

impl Writer {
    pub(super) fn new<T>(admitted: &Admitted<T>, origin: Origin) -> Self {
        Self {
            key: admitted.key.clone(),
            origin,
            leftover: admitted.leftover,
            header: None,
            created: false,
            head: Head { seq: Seq::ZERO, hash: Hash::default() },
            state: State::default(),
            run: None,
            held: None,
            ids: BTreeSet::new(),
            redacted: BTreeSet::new(),
            done: Vec::new(),
        }
    }

    /// Takes the next point; the one before it is written.
    pub(super) async fn push(&mut self, import: &mut Import<'_>, point: Point) -> Result<()> {
        let fresh = point.fresh;
        match self.held.replace(point) {
            Some(held) => self.write(import, held, Some(fresh)).await,
            None => Ok(()),
        }
    }

    /// Writes the last point, and that the import is complete.
    pub(super) async fn finish(mut self, import: &mut Import<'_>) -> Result<()> {
        if let Some(held) = self.held.take() {
            self.write(import, held, None).await?;
        }
        let Some(header) = self.header.take().filter(|_| !self.done.is_empty()) else {
            if self.created {
                import.engine.journal().clear_session(&self.key).await.map_err(|error| self.context(error))?;
            }
            import.skip(self.origin.place, "it has no checkpoint that can be imported");
            return Ok(());
        };
        if !import.options.dry_run {
            let mut metadata = header.metadata;
            metadata.insert(MARK.into(), self.mark(true));
            let complete = SessionDescribed { metadata: Some(metadata), ..SessionDescribed::default() };
            import.engine.journal().describe(&self.key, complete).await.map_err(|error| self.context(error))?;
        }
        import.report.sessions.push(Imported {
            session: self.key,
            checkpoints: self.done,
            status: self.state.status().seen(false),
            done_anew: self.leftover,
        });
        Ok(())
    }

    async fn write(&mut self, import: &mut Import<'_>, mut point: Point, next_fresh: Option<bool>) -> Result<()> {
        if self.header.is_none() {
            self.create(import).await?;
        }
        let place = point.place.clone();
        let redacted = self.redact(import, &mut point);
        let batch = redacted.and_then(|()| self.records(import, point, next_fresh));
        let (records, imported, run) = match batch {
            Ok(batch) => batch,
            Err(error) => {
                import.skip(place, chain(&error));
                return Ok(());
            }
        };
        let mut state = self.state.clone();
        let folded = records.iter().try_for_each(|record| state.apply(record));
        let target = Target::new(self.key.clone(), BranchId::main(), self.head);
        let prepared = folded.and_then(|()| import.engine.journal().prepare(&target, &records));
        let append = match prepared {
            Ok(append) => append,
            // Too large, or not legal: nothing a repetition could change.
            Err(error) => {
                import.skip(place, chain(&error));
                return Ok(());
            }
        };
        if !import.options.dry_run {
            let appended = import.engine.journal().store().append(&append).await;
            self.head = appended.map_err(|error| self.context(error))?.head;
        }
        self.state = state;
        self.run = run;
        self.done.push(imported);
        Ok(())
    }

    /// Creates the session; what a stopped import left of it goes first.
    async fn create(&mut self, import: &mut Import<'_>) -> Result<()> {
        let journal = import.engine.journal();
        let mut header = SessionHeader::new(self.key.clone());
        header.agent.clone_from(&self.origin.agent);
        header.labels.clone_from(&self.origin.labels);
        header.metadata.clone_from(&self.origin.metadata);
        header.metadata.insert(MARK.into(), self.mark(false));
        let bytes: usize = header.metadata.values().map(|value| value.as_str().len()).sum();
        let sealed = match bytes <= METADATA {
            true => journal.codec().check_header(&header),
            false => Err(Error::limit("bytes of the metadata", bytes as u64, METADATA as u64)),
        };
        if let Err(error) = sealed {
            import.warn(&self.origin.place, format!("the metadata were not taken over: {}", chain(&error)));
            header = SessionHeader::new(self.key.clone());
            header.metadata.insert(MARK.into(), self.mark(false));
        }
        let place = self.origin.place.clone();
        for key in header.metadata.keys().chain(header.labels.keys()) {
            if journal.codec().redaction().excludes(key) {
                self.note_redacted(import, key, &place);
            }
        }
        if !import.options.dry_run {
            if self.leftover {
                journal.clear_session(&self.key).await.map_err(|error| self.context(error))?;
            }
            let info = journal.create(header.clone()).await.map_err(|error| self.context(error))?;
            self.head = info.branch(&BranchId::main())?.head;
            self.created = true;
        }
        self.header = Some(header);
        Ok(())
    }

    /// The batch of a point, what the report says of it, and the run that is open behind it.
    fn records(
        &mut self,
        import: &mut Import<'_>,
        point: Point,
        next_fresh: Option<bool>,
    ) -> Result<(Vec<Record>, ImportedCheckpoint, Option<RunId>)> {
        let mut records = Vec::new();
        let run = self.begin(import, point.fresh, &mut records);
        for (log, items) in &point.logs {
            let (appended, replaced) = changes::log(&self.state, log, items)?;
            if let Some(from) = replaced {
                import.warn(&point.place, format!("log `{log}` is another than before from item {from} on"));
            }
            records.extend(appended);
        }
        records.extend(changes::registers(&self.state, &point.registers)?);
        records.extend(point.effects.iter().cloned());
        let end = match (&point.end, next_fresh) {
            // What follows belongs to the same run: it was not over.
            (Some((RunOutcome::Succeeded, _)), Some(false)) => None,
            (Some(end), _) => Some(end.clone()),
            (None, Some(_)) => None,
            (None, None) => Some((RunOutcome::Paused, "it was not finished when it was imported".into())),
        };
        if let Some((outcome, reason)) = &end {
            records.push(RunEnded { reason: reason.clone(), ..RunEnded::new(run.clone(), *outcome) }.into());
        }
        let (checkpoint, imported) = self.checkpoint(import, point, &run);
        records.push(checkpoint.into());
        Ok((records, imported, end.is_none().then_some(run)))
    }

    /// The run a point belongs to, begun if need be.
    fn begin(&self, import: &Import<'_>, fresh: bool, records: &mut Vec<Record>) -> RunId {
        match &self.run {
            Some(run) if !fresh => return run.clone(),
            Some(run) => {
                let reason = "another one followed it".to_owned();
                records.push(RunEnded { reason, ..RunEnded::new(run.clone(), RunOutcome::Idle) }.into());
            }
            None => {}
        }
        let journal = import.engine.journal();
        let run = RunId::generate(journal.ids(), journal.clock().now());
        let before = self.state.run().map(|run| run.started.run.clone()).filter(|_| !fresh);
        records.push(RunStarted::new(run.clone(), self.origin.executor).continuing(before).into());
        run
    }

    fn checkpoint(&mut self, import: &Import<'_>, point: Point, run: &RunId) -> (Checkpoint, ImportedCheckpoint) {
        let journal = import.engine.journal();
        let own = CheckpointId::new(&point.id).ok().filter(|_| self.ids.insert(point.id.clone()));
        let renamed_from = own.is_none().then(|| point.id.clone()).filter(|id| !id.is_empty());
        let id = own.unwrap_or_else(|| CheckpointId::generate(journal.ids(), journal.clock().now()));
        let Mark { source, trigger, kind, step, description, active_micros, usage, unclean, closed, mut extra } =
            point.mark;
        extra.insert(FROM.into(), point.place.clone().into());
        extra.extend(point.at.map(|at| ("imported_at_source".to_owned(), at)));
        extra.extend(renamed_from.clone().map(|id| ("imported_id".to_owned(), id.into())));
        let checkpoint = Checkpoint {
            parent: self.state.checkpoint().cloned(),
            source,
            trigger,
            kind,
            step,
            description,
            run: Some(run.clone()),
            active_micros,
            usage,
            clean: !unclean,
            resumable: !closed,
            extra,
            ..Checkpoint::new(id.clone())
        };
        (checkpoint, ImportedCheckpoint { id, place: point.place, renamed_from })
    }

    /// Takes out what must not be stored, and says so: the codec would do it in silence.
    fn redact(&mut self, import: &mut Import<'_>, point: &mut Point) -> Result<()> {
        let journal = import.engine.journal().clone();
        let mut names = BTreeSet::new();
        let redaction = journal.codec().redaction();
        changes::redact_registers(redaction, &mut point.registers, &mut names)?;
        let outcomes = point.effects.iter_mut().filter_map(|record| match record {
            Record::EffectOutcome(outcome) => outcome.value.as_mut(),
            _ => None,
        });
        for item in point.logs.values_mut().flatten().chain(outcomes) {
            changes::redact(redaction, item, &mut names)?;
        }
        names.iter().for_each(|name| self.note_redacted(import, name, &point.place));
        Ok(())
    }

    fn note_redacted(&mut self, import: &mut Import<'_>, key: &str, place: &str) {
        if self.redacted.insert(key.to_owned()) {
            let redacted = Redacted { session: self.key.clone(), key: key.to_owned(), place: place.to_owned() };
            import.report.redacted.push(redacted);
        }
    }

    fn mark(&self, complete: bool) -> Json {
        mark(self.origin.form, &self.origin.place, &self.origin.times, complete)
    }

    fn context(&self, error: Error) -> Error {
        error.during("import").on(&self.key)
    }
}

/// An error with what led to it, on one line.
pub(super) fn chain(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The name of a register for something that has no place of its own here.
pub(super) fn kept(name: &str) -> String {
    format!("{KEPT}{name}")
}
