//! Effects: intent before, outcome after, each on its own; what settled is never run again.

use std::future::Future;
use std::time::{Duration, Instant};

use rekindle_core::record::{
    EffectIntent, EffectKind, EffectOutcome, EffectPartial, Extra, InDoubtPolicy, OutcomeStatus, Usage,
};
use rekindle_core::{BranchId, EffectId, Epoch, Error, ErrorKind, Hash, Json, Record, Result, SessionKey};
use tokio_util::sync::CancellationToken;

use super::{Driver, NewCheckpoint, Stop};
use crate::tool::Retries;

/// A call that reaches outside, as its executor describes it.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The effect.
    pub id: EffectId,
    /// What kind of call it is.
    pub kind: EffectKind,
    /// The tool, model or step.
    pub name: String,
    /// The version of the tool.
    pub version: Option<String>,
    /// Hash of the canonical arguments.
    pub hash: Hash,
    /// The arguments, where they stand nowhere else.
    pub arguments: Option<Json>,
    /// What to do if it never settles.
    pub policy: InDoubtPolicy,
    /// The step it belongs to.
    pub step: Option<String>,
    /// The child session, if it drives one.
    pub child: Option<SessionKey>,
    /// How passing failures are tried again.
    pub retries: Retries,
    /// Whether the last failure settles it; otherwise it stays open, to be tried by a resume.
    pub settles_when_exhausted: bool,
    /// The intent may share the next commit; replay-safe calls only.
    pub defer_intent: bool,
    /// The effect whose idempotency key it shares, if it is made in place of another.
    pub key_of: Option<EffectId>,
    /// What is committed together with its intent: the end of the wait it was waiting for.
    pub alongside: Vec<Record>,
}

impl Effect {
    /// A step called `name` with `arguments`, tried once. It counts as writing: if its outcome is not on record, a person
    /// is asked whether it happened.
    pub fn new(id: EffectId, name: impl Into<String>, arguments: Json) -> Result<Self> {
        Ok(Self {
            id,
            kind: EffectKind::Step,
            name: name.into(),
            version: None,
            hash: crate::wait::digest(&arguments)?,
            arguments: Some(arguments),
            policy: InDoubtPolicy::Ask,
            step: None,
            child: None,
            retries: Retries::none(),
            settles_when_exhausted: true,
            defer_intent: false,
            key_of: None,
            alongside: Vec::new(),
        })
    }

    /// Sets what happens if its outcome is not on record.
    #[must_use]
    pub fn with_policy(mut self, policy: InDoubtPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how passing failures are tried again.
    #[must_use]
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }
}

/// What is on record for an effect.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// Nothing.
    New,
    /// It was intended by this process and has not started.
    Fresh(EffectIntent),
    /// It was intended and nobody knows whether it happened.
    InDoubt(EffectIntent),
    /// It was intended and certainly did not happen.
    NotDone(EffectIntent),
    /// It ended.
    Settled(EffectOutcome),
}

impl Known {
    /// The number of the next try.
    pub(crate) fn next_attempt(&self) -> u32 {
        match self {
            Self::New => 1,
            Self::Fresh(intent) => intent.attempt,
            Self::InDoubt(intent) | Self::NotDone(intent) => intent.attempt.saturating_add(1),
            Self::Settled(outcome) => outcome.attempt,
        }
    }
}

/// One try at an effect, as the call sees it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Which try this is, from 1.
    pub number: u32,
    /// The same over retries and resumes, another on a fork.
    pub idempotency_key: String,
    /// The generation of the lease.
    pub fence: Epoch,
    /// Fires when the result is no longer wanted.
    pub cancel: CancellationToken,
}

/// What goes on record with the end of an effect, as one atomic batch.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The result, or what stands for it.
    pub value: Json,
    /// What it used.
    pub usage: Usage,
    /// What else is committed together with the outcome.
    pub records: Vec<Record>,
    /// What is marked right behind it.
    pub checkpoints: Vec<NewCheckpoint>,
    /// What the outcome says besides.
    pub extra: Extra,
}

impl From<Json> for Recorded {
    fn from(value: Json) -> Self {
        Self { value, usage: Usage::default(), records: Vec::new(), checkpoints: Vec::new(), extra: Extra::new() }
    }
}

/// How a try ended.
#[derive(Clone, Debug)]
pub enum Tried {
    /// It succeeded.
    Ok(Recorded),
    /// It failed, and trying again is no use.
    Failed {
        /// What goes on record.
        recorded: Recorded,
        /// What went wrong.
        error: String,
    },
    /// It failed without having happened; trying again may help.
    Passing {
        /// What goes on record if there are no tries left.
        recorded: Recorded,
        /// What went wrong.
        error: String,
        /// Not before then.
        after: Option<Duration>,
    },
    /// It was stopped, and did not happen.
    Cancelled {
        /// What goes on record.
        recorded: Recorded,
        /// Why.
        error: String,
    },
    /// Nobody knows whether it happened.
    InDoubt {
        /// Why.
        error: String,
    },
    /// It is to be made again once something else has happened.
    Suspended {
        /// What must happen, for people.
        waits_for: String,
    },
    /// It has not ended: something must happen elsewhere first.
    Open {
        /// What is committed now.
        records: Vec<Record>,
        /// What must happen, for people.
        waits_for: String,
    },
}

/// What came of an effect.
#[derive(Clone, Debug)]
pub enum Performed {
    /// It ended.
    Settled(EffectOutcome),
    /// It has not ended: it waits for this, or it is to be tried again at a resume.
    Open(String),
    /// Nobody knows whether it happened.
    InDoubt(String),
}

impl Driver {
    /// What is on record for `effect`; an error if that belongs to another call.
    pub(crate) async fn known(&self, effect: &Effect) -> Result<Known> {
        let core = self.shared.core.lock().await;
        let Some(state) = core.state.effect(&effect.id) else { return Ok(Known::New) };
        let intent = &state.intent;
        // Whichever model answers, it is asked the same.
        let same_name = intent.name == effect.name || effect.kind == EffectKind::Model;
        if !same_name || intent.arguments_hash != effect.hash {
            let message = match intent.name == effect.name {
                true => format!(
                    "`{}` is on record with other arguments than it has now (effect `{}`)",
                    intent.name, effect.id
                ),
                false => format!(
                    "effect `{}` is on record as a call of `{}`, and now it is `{}`",
                    effect.id, intent.name, effect.name
                ),
            };
            let error = Error::new(ErrorKind::EffectMismatch, message).on(self.session());
            return Err(match effect.kind {
                EffectKind::Step => error.hint("give the step the input it was recorded with, or give it a new name"),
                _ => error,
            });
        }
        Ok(match &state.outcome {
            Some(outcome) if state.is_settled() => Known::Settled(outcome.clone()),
            _ if core.fresh.contains(&effect.id) => Known::Fresh(intent.clone()),
            Some(outcome) if outcome.status == OutcomeStatus::InfraError && outcome.attempt == intent.attempt => {
                Known::NotDone(intent.clone())
            }
            _ => Known::InDoubt(intent.clone()),
        })
    }

    /// Commits records among which are the intents of calls that this process is about to make.
    pub(crate) async fn commit_intending(&self, records: Vec<Record>, intended: Vec<EffectId>) -> Result<()> {
        let mut core = self.shared.core.lock().await;
        self.make_room(&mut core, &records).await?;
        core.stage(records)?;
        core.fresh.extend(intended);
        self.write(&mut core).await
    }

    /// The hash by which a call is recognised: of its arguments as they are stored, so that it is the
    /// same after a restart.
    pub(crate) fn argument_hash(&self, arguments: &Json) -> Hash {
        let stored = self.redactor().arguments(arguments);
        // Arguments without a canonical form are recognised by their text.
        crate::wait::digest(&stored).unwrap_or_else(|_| Hash::of(stored.as_str().as_bytes()))
    }

    /// Makes the call, again if it fails in passing, and records its outcome. A call that was begun before and has no
    /// outcome is made again only if its policy is `replay_safe` or `idempotent`.
    pub async fn perform<F, Fut>(&self, effect: &Effect, call: F) -> Result<Performed>
    where
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Tried>,
    {
        let may_repeat = matches!(effect.policy, InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent);
        match self.known(effect).await? {
            Known::InDoubt(_) if !may_repeat => Ok(Performed::InDoubt("its outcome was not recorded".to_owned())),
            _ => self.perform_decided(effect, call).await,
        }
    }

    /// Makes the call as [`Driver::perform`] does; that it may be made was decided before.
    pub(crate) async fn perform_decided<F, Fut>(&self, effect: &Effect, call: F) -> Result<Performed>
    where
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Tried>,
    {
        let mut number = match self.known(effect).await? {
            Known::Settled(outcome) => return Ok(Performed::Settled(outcome)),
            known => known.next_attempt(),
        };
        for tries_left in (0..effect.retries.attempts.max(1)).rev() {
            if self.is_stopping() {
                return Ok(Performed::Open("the run is to stop".to_owned()));
            }
            self.prepare(effect, number).await?;
            let started = Instant::now();
            let tried = call(self.attempt(effect, number)).await;
            let outcome = |status| EffectOutcome {
                attempt: number,
                duration_micros: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
                ..EffectOutcome::new(effect.id.clone(), status, None)
            };
            match tried {
                Tried::Passing { error, after, .. } if tries_left > 0 && !self.is_stopping() => {
                    // On record before the pause: a crash meanwhile leaves nothing in doubt.
                    let failed = EffectOutcome { error: Some(error), ..outcome(OutcomeStatus::InfraError) };
                    self.commit(vec![failed.into()]).await?;
                    let pause = effect.retries.pause(effect.retries.attempts - tries_left, self.random());
                    self.sleep(after.unwrap_or_default().max(pause)).await;
                    number += 1;
                }
                tried => return self.conclude(effect, tried, outcome).await,
            }
        }
        Ok(Performed::Open("it was not tried".to_owned()))
    }

    /// Records how the last try ended.
    async fn conclude(
        &self,
        effect: &Effect,
        tried: Tried,
        outcome: impl Fn(OutcomeStatus) -> EffectOutcome,
    ) -> Result<Performed> {
        let failed = |status, error| EffectOutcome { error: Some(error), ..outcome(status) };
        let (outcome, recorded) = match tried {
            Tried::Ok(recorded) => (outcome(OutcomeStatus::Ok), recorded),
            Tried::Failed { recorded, error } => (failed(OutcomeStatus::ToolError, error), recorded),
            Tried::Cancelled { recorded, error } => (failed(OutcomeStatus::Cancelled, error), recorded),
            Tried::Passing { recorded, error, .. } if effect.settles_when_exhausted && !self.is_stopping() => {
                (failed(OutcomeStatus::ToolError, error), recorded)
            }
            Tried::Passing { error, .. } => {
                self.commit(vec![failed(OutcomeStatus::InfraError, error.clone()).into()]).await?;
                return Ok(Performed::Open(error));
            }
            Tried::InDoubt { error } => {
                self.commit(vec![failed(OutcomeStatus::InDoubt, error.clone()).into()]).await?;
                return Ok(Performed::InDoubt(error));
            }
            Tried::Suspended { waits_for } => {
                self.commit(vec![failed(OutcomeStatus::InfraError, waits_for.clone()).into()]).await?;
                return Ok(Performed::Open(waits_for));
            }
            Tried::Open { records, waits_for } => {
                self.commit(records).await?;
                return Ok(Performed::Open(waits_for));
            }
        };
        self.settle(Vec::new(), outcome, recorded).await.map(Performed::Settled)
    }

    /// Records the end of an effect, after what led to it.
    pub(crate) async fn settle(
        &self,
        mut batch: Vec<Record>,
        outcome: EffectOutcome,
        recorded: Recorded,
    ) -> Result<EffectOutcome> {
        let Recorded { value, usage, records, checkpoints, extra } = recorded;
        let outcome = EffectOutcome { value: Some(value), usage, extra, ..outcome };
        batch.push(outcome.clone().into());
        batch.extend(records);
        let mut core = self.shared.core.lock().await;
        self.make_room(&mut core, &batch).await?;
        let known = core.state.effect(&outcome.effect).map(|known| known.intent.policy);
        let replay_safe = known.is_some_and(|policy| policy == InDoubtPolicy::ReplaySafe);
        core.stage(batch)?;
        for checkpoint in checkpoints {
            self.stage_checkpoint_in(&mut core, checkpoint)?;
        }
        if self.options().pending_writes || !replay_safe {
            self.write(&mut core).await?;
        }
        if !replay_safe {
            // Until this is on disk the call is in doubt, so it does not wait for the end of an `exit` run.
            core.writer.write_soon();
        }
        // As it is on record: without secrets.
        let on_record = core.state.effect(&outcome.effect).and_then(|known| known.outcome.clone());
        Ok(on_record.unwrap_or(outcome))
    }

    /// Records the intent, on disk unless the call is replay-safe, and checks that this process is
    /// still the owner. The durability of the run makes no difference here.
    pub(crate) async fn prepare(&self, effect: &Effect, attempt: u32) -> Result<()> {
        let mut records = Vec::new();
        {
            let mut core = self.shared.core.lock().await;
            if !core.fresh.remove(&effect.id) {
                let open = |record: &&Record| match record {
                    Record::WaitClosed(closed) => core.state.wait(&closed.wait).is_some(),
                    _ => attempt == 1,
                };
                records.extend(effect.alongside.iter().filter(open).cloned());
                records.push(self.intent(effect, attempt).into());
            }
        }
        // The answer of a model is asked for again if it is lost, so its intent can ride along.
        let replay_safe = effect.policy == InDoubtPolicy::ReplaySafe;
        let deferred = replay_safe && (effect.defer_intent || !self.options().pending_writes);
        if deferred || effect.kind == EffectKind::Model {
            self.stage(records).await?;
        } else if !records.is_empty() {
            self.commit(records).await?;
        }
        if !replay_safe {
            self.flush().await?;
        }
        self.ensure_owner().await
    }

    pub(crate) fn intent(&self, effect: &Effect, attempt: u32) -> EffectIntent {
        EffectIntent {
            version: effect.version.clone(),
            arguments: effect.arguments.clone(),
            attempt,
            idempotency_key: self.key(effect),
            policy: effect.policy,
            run: Some(self.run().clone()),
            step: effect.step.clone(),
            child: effect.child.clone(),
            ..EffectIntent::new(effect.id.clone(), effect.kind, effect.name.clone(), effect.hash)
        }
    }

    pub(crate) fn attempt(&self, effect: &Effect, number: u32) -> Attempt {
        Attempt { number, idempotency_key: self.key(effect), fence: self.fence(), cancel: self.step_token() }
    }

    fn key(&self, effect: &Effect) -> String {
        self.idempotency_key(effect.key_of.as_ref().unwrap_or(&effect.id))
    }

    /// The same over retries and resumes; another on a fork, and in a session that was deleted
    /// and made again under the same name.
    pub(crate) fn idempotency_key(&self, effect: &EffectId) -> String {
        self.key_of_branch(self.branch(), effect)
    }

    /// The key that a call would have on another branch.
    pub(crate) fn key_on(&self, branch: &BranchId, effect: &Effect) -> String {
        self.key_of_branch(branch, effect.key_of.as_ref().unwrap_or(&effect.id))
    }

    fn key_of_branch(&self, branch: &BranchId, effect: &EffectId) -> String {
        let mut hasher = blake3::Hasher::new();
        let session = self.session();
        let parts = [
            session.namespace.as_str(),
            session.id.as_str(),
            &self.shared.incarnation,
            branch.as_str(),
            effect.as_str(),
        ];
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..32].to_owned()
    }

    /// Keeps what a call has streamed since it was last kept.
    pub async fn partial(&self, effect: &EffectId, attempt: u32, value: Json) -> Result<()> {
        let partial = EffectPartial { attempt, ..EffectPartial::new(effect.clone(), value) };
        self.commit(vec![partial.into()]).await
    }

    /// How the run is to stop, if it is.
    pub(crate) fn stopping(&self) -> Option<Stop> {
        self.control().stopping().map(|(stop, _)| stop)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.control().stopping().is_some() || self.step_token().is_cancelled()
    }

    /// Sleeps, but not longer than the run is wanted.
    pub(crate) async fn sleep(&self, duration: Duration) {
        tokio::select! {
            () = tokio::time::sleep(duration) => {}
            () = self.control().asked() => {}
            () = self.step_token().cancelled_owned() => {}
        }
    }
}
