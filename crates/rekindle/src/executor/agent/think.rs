//! Asking the model.

use std::time::Instant;

use rekindle_core::record::{
    EffectKind, EffectOutcome, InDoubtPolicy, LogAppend, LogAppendOutcomes, RegisterSet, Usage,
};
use rekindle_core::{EffectId, Error, ErrorKind, Hash, Json, Record, Result, State};

use super::asking::Asking;
use super::state::{CURSOR, Phase, SUMMARY};
use super::turn::{Turn, close_calls, model_effect};
use crate::driver::{Effect, Spent, check_value};
use crate::message::Message;
use crate::middleware::Verdict;
use crate::model::{Answer, Model, ModelRequest};
use crate::reduction::{Plan, ProviderCursor, Reduction, Summary, View};

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thought {
    /// The answer is on record.
    Answered,
    /// The run is to stop, or a message came in between.
    Interrupted,
}

/// What follows from an answer.
#[derive(Default)]
struct Followed {
    records: Vec<Record>,
    intended: Vec<EffectId>,
    /// A call that was made too often in a row.
    repeated: Option<(String, u32)>,
    /// Why the turn is over, if it is.
    ended: Option<String>,
}

impl Turn<'_> {
    /// Asks the model once and records its answer together with what follows from it.
    pub(super) async fn think(&mut self) -> Result<Thought> {
        self.step_began = Instant::now();
        self.driver.begin_step();
        let Some((view, previous)) = self.view().await? else { return Ok(Thought::Interrupted) };
        let effect = self.model_effect(model_effect(&self.place.scope, self.at.step)?, self.agent.model.as_ref());
        let partial = match self.agent.model.capabilities().continues_partial {
            true => Some(self.partial(&effect.id).await).filter(|text| !text.is_empty()),
            false => None,
        };
        let mut request = ModelRequest {
            system: self.agent.system.clone(),
            view,
            tools: self.agent.toolbox.shown(&self.groups),
            previous,
            partial,
            attempt: 1,
            idempotency_key: self.driver.idempotency_key(&effect.id),
            cancel: self.driver.step_token(),
        };
        for (layer, middleware) in self.agent.middleware.iter().enumerate() {
            let verdict = middleware.before_model(self.stack.state(layer), &mut request).await?;
            if let Verdict::Terminate(reason) = verdict {
                self.driver.stage(self.stack.changes(&self.agent.middleware)?).await?;
                self.finish(reason).await?;
                return Ok(Thought::Answered);
            }
        }
        let model = std::sync::Arc::clone(&self.agent.model);
        let asking = Asking { driver: self.driver, effect: &effect, timeout: self.agent.model_timeout, tell: true };
        let answer = asking.ask(model.as_ref(), request).await?;
        match answer {
            Some((answer, outcome)) => self.answered(answer, outcome).await,
            None => Ok(Thought::Interrupted),
        }
    }

    fn model_effect(&self, id: EffectId, model: &dyn Model) -> Effect {
        Effect {
            hash: Hash::of(id.as_str().as_bytes()),
            id,
            kind: EffectKind::Model,
            name: model.name().to_owned(),
            version: None,
            arguments: None,
            policy: InDoubtPolicy::ReplaySafe,
            step: Some(self.at.step.to_string()),
            child: None,
            retries: self.agent.model_retries.clone(),
            settles_when_exhausted: false,
            defer_intent: true,
            key_of: None,
            alongside: Vec::new(),
        }
    }

    /// Records an answer, its message and what follows from it as one commit.
    async fn answered(&mut self, answer: Answer, mut outcome: EffectOutcome) -> Result<Thought> {
        let (ids, now) = (self.driver.engine().journal().ids(), self.driver.now());
        let mut message = answer.into_message().with_id(ids, now);
        let received = message.to_json()?;
        check_value(&received, self.driver.limits()).map_err(unusable)?;
        self.driver.spend(outcome.usage.into()).await;
        let followed = self.follow(&mut message, outcome.usage).await;
        let Followed { records, intended, repeated, ended } = match followed {
            Ok(followed) => followed,
            Err(error) => {
                let calls = message.calls().count() as u64;
                self.driver.refund(Spent { iterations: 1, tool_calls: calls, ..Spent::default() }).await;
                // What was paid for is on record, whatever failed behind it.
                outcome.value = Some(received);
                self.driver.commit(vec![outcome.into()]).await?;
                return Err(error);
            }
        };
        let stored = message.to_json()?;
        let mut batch = self.record_answer(outcome, stored).await?;
        batch.extend(records);
        let (id, response) = (message.id.clone(), message.response.clone());
        self.answer = Some(message);
        self.driver.stage(batch).await?;
        // In the same commit as the answer: what the provider has must not be forgotten.
        if let (Some(response), Some(id), true) = (response, id, self.agent.model.capabilities().keeps_history) {
            self.move_cursor(id, response).await?;
        }
        self.driver.commit_intending(Vec::new(), intended).await?;
        if let Some((tool, times)) = repeated {
            return Err(super::turn::repeats_itself(&tool, times));
        }
        if let Some(reason) = ended {
            self.mark_turn(&reason);
        }
        Ok(Thought::Answered)
    }

    /// The records of an answer and of its message in the conversation. An answer that was on record
    /// before counts as it is there.
    async fn record_answer(&mut self, mut outcome: EffectOutcome, stored: Json) -> Result<Vec<Record>> {
        let effect = outcome.effect.clone();
        let known = self.driver.read(|state| {
            let known = state.effect(&effect)?;
            known.is_settled().then(|| known.outcome.as_ref()?.value.clone()).flatten()
        });
        let log = self.place.scope.messages()?;
        let into_log = |effect| LogAppendOutcomes::new(log.clone(), vec![effect]).into();
        Ok(match known.await {
            Some(value) if value == stored => vec![into_log(effect)],
            Some(_) => vec![LogAppend::new(log, vec![stored]).into()],
            None => {
                outcome.value = Some(stored);
                vec![outcome.into(), into_log(effect)]
            }
        })
    }

    /// What follows from an answer: where the loop stands, and what becomes of the calls.
    async fn follow(&mut self, message: &mut Message, usage: Usage) -> Result<Followed> {
        let asked = message.calls().count() as u64;
        self.driver.spend(Spent { iterations: 1, tool_calls: asked, ..Spent::default() }).await;
        let mut ended = None;
        for (layer, middleware) in self.agent.middleware.iter().enumerate() {
            if let Verdict::Terminate(reason) = middleware.after_model(self.stack.state(layer), message).await? {
                ended.get_or_insert(reason);
            }
        }
        let calls = message.calls().count() as u64;
        if self.place.is_node() {
            let used = Spent { tool_calls: calls, ..usage.into() };
            self.at.spent.get_or_insert_default().add(&used);
        }
        let mut followed = Followed::default();
        match (&ended, calls) {
            (None, 0) => ended = Some("the model had an answer".to_owned()),
            (None, _) => {
                let plan = self.plan(message).await?;
                followed =
                    Followed { records: plan.records, intended: plan.intended, repeated: plan.repeated, ended: None };
            }
            (Some(_), 0) => {}
            (Some(reason), _) => {
                let why = format!("the turn ended first: {reason}");
                let journal = self.driver.engine().journal();
                followed.records =
                    close_calls(&State::default(), journal, &self.place.scope, self.at.step, message, &why)?;
            }
        }
        self.at.phase = if ended.is_some() { Phase::Idle } else { Phase::Act };
        self.at.ended.clone_from(&ended);
        followed.records.push(self.at.record(&self.place.scope)?);
        followed.records.extend(self.stack.changes(&self.agent.middleware)?);
        followed.ended = ended;
        Ok(followed)
    }

    /// What is sent: what the provider lacks, or what the reduction leaves of the history. Nothing
    /// if the run is to stop before that is known.
    async fn view(&mut self) -> Result<Option<(View, Option<String>)>> {
        let log = self.place.scope.messages()?;
        let history = self.driver.read(|state| state.shared_log(&log)).await;
        self.index.update(&history)?;
        if self.agent.model.capabilities().keeps_history
            && let Some(cursor) = &self.cursor
            && let Some(unsent) = cursor.unsent(&mut self.index, &history)?
        {
            return Ok(Some((unsent, Some(cursor.response.clone()))));
        }
        loop {
            match self.agent.reduction.plan(&mut self.index, &history, self.summary.as_ref())? {
                Plan::Send(view) => return Ok(Some((view, None))),
                Plan::Summarise { through, request, .. } => {
                    let prefix = self.index.prefix_hash(&history, through);
                    let Some(text) = self.summarise(through, prefix, request).await? else { return Ok(None) };
                    let summary = Summary::new(&mut self.index, &history, through, text);
                    let record = RegisterSet::new(self.place.scope.register(SUMMARY)?, Json::of(&summary)?);
                    self.driver.commit(vec![record.into()]).await?;
                    self.summary = Some(summary);
                }
            }
        }
    }

    /// Has older messages summarised. The summary is an effect: it is paid for once.
    async fn summarise(&mut self, through: usize, prefix: Hash, view: View) -> Result<Option<String>> {
        let Reduction::Summarise(how) = &self.agent.reduction else { return Ok(None) };
        let model = how.model.clone().unwrap_or_else(|| std::sync::Arc::clone(&self.agent.model));
        // Of exactly these messages: after an edit it is another summary.
        let id = self.place.scope.effect(format!("summary{}.{through}.{}", self.at.step, prefix.short()))?;
        let effect = self.model_effect(id, model.as_ref());
        let request = ModelRequest {
            system: None,
            view,
            tools: std::sync::Arc::from([]),
            previous: None,
            partial: None,
            attempt: 1,
            idempotency_key: self.driver.idempotency_key(&effect.id),
            cancel: self.driver.step_token(),
        };
        let asking = Asking { driver: self.driver, effect: &effect, timeout: self.agent.model_timeout, tell: false };
        let asked = asking.ask(model.as_ref(), request).await?;
        let Some((answer, mut outcome)) = asked else { return Ok(None) };
        self.driver.spend(outcome.usage.into()).await;
        let message = answer.into_message();
        outcome.value = Some(message.to_json()?);
        let text = message.text();
        self.driver.stage(vec![outcome.into()]).await?;
        Ok(Some(text))
    }

    async fn move_cursor(&mut self, id: rekindle_core::MessageId, response: String) -> Result<()> {
        let log = self.place.scope.messages()?;
        let history = self.driver.read(|state| state.shared_log(&log)).await;
        self.index.update(&history)?;
        let cursor = ProviderCursor::after(&mut self.index, &history, id, response);
        let record = RegisterSet::new(self.place.scope.register(CURSOR)?, Json::of(&cursor)?);
        self.cursor = Some(cursor);
        self.driver.stage(vec![record.into()]).await
    }
}

/// An answer that cannot be stored is none.
fn unusable(error: Error) -> Error {
    Error::new(ErrorKind::ModelFailed, "the model's answer cannot be stored").because(error)
}
