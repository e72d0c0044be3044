//! Asking a model: tries, silence, what is streamed, and stopping.

use std::time::{Duration, Instant};

use rekindle_core::record::{EffectOutcome, OutcomeStatus, Usage};
use rekindle_core::{Error, ErrorKind, Json, Result};

use crate::driver::{Driver, Effect, Known};
use crate::event::LiveKind;
use crate::message::{Message, Part};

use crate::model::{Answer, Delta, Deltas, Model, ModelError, ModelRequest, StopReason};
use crate::secret::Held;
use crate::tool::Retries;

/// After so long without an answer, what was staged is committed, so that others can see what
/// the run is doing.
const SHOW_AFTER: Duration = Duration::from_millis(100);

/// An answer, or why there is none.
enum Asked {
    Answer(Answer),
    Failed(ModelError),
    Stopped,
}

/// How a model is asked.
pub(super) struct Asking<'a> {
    pub(super) driver: &'a Driver,
    pub(super) effect: &'a Effect,
    /// How long it may be silent.
    pub(super) timeout: Duration,
    /// Whether listeners hear what it says.
    pub(super) tell: bool,
}

impl Asking<'_> {
    /// Asks a model, again if it fails in passing. Nothing if the answer is no longer wanted. The
    /// request is gone when this returns: whoever holds a view makes the log be copied.
    pub(super) async fn ask(
        &self,
        model: &dyn Model,
        mut request: ModelRequest,
    ) -> Result<Option<(Answer, EffectOutcome)>> {
        let (driver, effect) = (self.driver, self.effect);
        for (name, secret) in model.secrets() {
            driver.hide(&name, &secret);
        }
        let known = driver.known(effect).await?;
        if let Known::Settled(outcome) = &known
            && let Some(value) = &outcome.value
        {
            // Received before, and what followed from it failed: it is not asked for again.
            let message = Message::from_json(value)?;
            let answer = Answer { parts: message.parts, response: message.response, ..Answer::default() };
            return Ok(Some((answer, EffectOutcome { usage: Usage::default(), ..outcome.clone() })));
        }
        let first = known.next_attempt();
        let last = first.saturating_add(effect.retries.attempts.max(1) - 1);
        for number in first..=last {
            driver.prepare(effect, number).await?;
            let began = Instant::now();
            request.attempt = number;
            let asked = self.ask_once(model, &request).await?;
            let outcome = |status| EffectOutcome {
                attempt: number,
                duration_micros: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
                ..EffectOutcome::new(effect.id.clone(), status, None)
            };
            let error = match asked {
                Asked::Answer(answer) => {
                    let usage: Usage = answer.usage;
                    if let Some(why) = cut_off(answer.stop) {
                        let notice = format!("the answer of `{}` is not whole: {why}", model.name());
                        driver.say(|| LiveKind::Notice(notice));
                    }
                    return Ok(Some((answer, EffectOutcome { usage, ..outcome(OutcomeStatus::Ok) })));
                }
                Asked::Stopped => return Ok(None),
                Asked::Failed(error) => error,
            };
            let failed = EffectOutcome { error: Some(error.message.clone()), ..outcome(OutcomeStatus::InfraError) };
            driver.stage(vec![failed.into()]).await?;
            if number == last || !error.retry {
                return Err(model_failed(model.name(), &error));
            }
            pause(driver, &effect.retries, number - first + 1, &error).await;
            if driver.is_stopping() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// One try: listens to what is streamed, keeps it now and then, and stops when told to.
    async fn ask_once(&self, model: &dyn Model, request: &ModelRequest) -> Result<Asked> {
        let (deltas, mut pieces) = Deltas::channel();
        let mut kept = Kept::new(self, request);
        let answer = model.answer(request, &deltas);
        let silence = tokio::time::sleep(self.timeout);
        let show = tokio::time::sleep(SHOW_AFTER);
        tokio::pin!(answer, silence, show);
        let mut shown = false;
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                Some(piece) = pieces.recv() => {
                    silence.as_mut().reset(tokio::time::Instant::now() + self.timeout);
                    kept.take(piece).await?;
                }
                () = request.cancel.cancelled() => return Ok(Asked::Stopped),
                () = &mut silence => {
                    let text = format!("nothing was heard of it for {:?}", self.timeout);
                    return Ok(Asked::Failed(ModelError::passing(text)));
                }
                () = &mut show, if !shown => {
                    shown = true;
                    self.driver.commit_staged().await?;
                }
            }
        };
        while let Ok(piece) = pieces.try_recv() {
            kept.hear(piece);
        }
        kept.say_rest();
        Ok(match answered {
            // Paid for: it goes on record even if the run is to stop.
            Ok(answer) => {
                let mut answer = whole(answer, request);
                self.driver.redactor().answer(&mut answer.parts);
                Asked::Answer(answer)
            }
            Err(_) if request.cancel.is_cancelled() => Asked::Stopped,
            Err(error) => Asked::Failed(error),
        })
    }
}

/// Why an answer is not whole. It counts all the same: asked again, the model would do the same.
fn cut_off(stop: StopReason) -> Option<&'static str> {
    match stop {
        StopReason::End => None,
        StopReason::Length => Some("it reached its limit of tokens"),
        StopReason::Filtered => Some("a filter of the provider stopped it"),
    }
}

async fn pause(driver: &Driver, retries: &Retries, tries: u32, error: &ModelError) {
    let pause = retries.pause(tries, driver.random());
    driver.sleep(error.retry_after.unwrap_or_default().max(pause)).await;
}

fn model_failed(model: &str, error: &ModelError) -> Error {
    let message = format!("the model `{model}` gave no answer: {error}");
    match error.retry {
        true => Error::new(ErrorKind::ModelFailed, message),
        false => Error::new(ErrorKind::ModelFailed, message).hint("mend what the message names, then resume"),
    }
}

/// The answer with the part that was said before it was cut off.
fn whole(mut answer: Answer, request: &ModelRequest) -> Answer {
    if let Some(partial) = &request.partial {
        let first = answer.parts.iter_mut().find_map(|part| match part {
            Part::Text(text) => Some(text),
            _ => None,
        });
        match first {
            Some(text) => text.insert_str(0, partial),
            None => answer.parts.insert(0, Part::Text(partial.clone())),
        }
    }
    answer
}

/// What was streamed and not yet kept.
struct Kept<'a> {
    asking: &'a Asking<'a>,
    attempt: u32,
    text: String,
    since: Instant,
    /// The ends that may be the beginning of a secret: of the text, and of the reasoning.
    held: [Held; 2],
}

impl<'a> Kept<'a> {
    fn new(asking: &'a Asking<'a>, request: &ModelRequest) -> Self {
        // A new try begins with nothing kept, so what it goes on from is kept again.
        let text = request.partial.clone().unwrap_or_default();
        Self { asking, attempt: request.attempt, text, since: Instant::now(), held: Default::default() }
    }

    async fn take(&mut self, piece: Delta) -> Result<()> {
        self.hear(piece);
        let driver = self.asking.driver;
        let options = driver.options();
        if self.text.len() >= options.partial_bytes || self.since.elapsed() >= options.partial_interval {
            self.since = Instant::now();
            let text = std::mem::take(&mut self.text);
            if !text.is_empty() {
                driver.partial(&self.asking.effect.id, self.attempt, Json::from(text.as_str())).await?;
            }
        }
        Ok(())
    }

    /// Keeps and says a piece, but for what may be the beginning of a secret.
    fn hear(&mut self, piece: Delta) {
        let finder = self.asking.driver.redactor().all();
        let piece = match piece {
            Delta::Text(text) => Delta::Text(self.held[0].push(finder.as_deref(), &text)),
            Delta::Reasoning(text) => Delta::Reasoning(self.held[1].push(finder.as_deref(), &text)),
        };
        self.say(piece);
    }

    /// Says what was held back: nothing follows any more.
    fn say_rest(&mut self) {
        let finder = self.asking.driver.redactor().all();
        let [text, reasoning] = self.held.each_mut().map(|held| held.rest(finder.as_deref()));
        self.say(Delta::Text(text));
        self.say(Delta::Reasoning(reasoning));
    }

    fn say(&mut self, piece: Delta) {
        let (Delta::Text(said) | Delta::Reasoning(said)) = &piece;
        if said.is_empty() {
            return;
        }
        if let Delta::Text(text) = &piece {
            self.text.push_str(text);
        }
        if self.asking.tell {
            self.asking.driver.say(|| match piece {
                Delta::Text(text) => LiveKind::Text(text),
                Delta::Reasoning(text) => LiveKind::Reasoning(text),
            });
        }
    }
}
