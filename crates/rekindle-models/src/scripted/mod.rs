//! The scripted model: answers from a script, remembers what it was asked.

mod asked;
mod choose;
mod ledger;
mod play;
mod request;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rekindle::Error;
use rekindle::model::{Answer, Deltas, Model, ModelCapabilities, ModelError, ModelRequest};

use crate::script::{By, Script};
use choose::{Choice, Place};
use ledger::Ledger;

pub use asked::Asked;

/// A model that answers from a [`Script`]. Clones share what was asked and counted.
///
/// Waiting (`delay_ms`) needs a runtime with a timer. A request that is cancelled ends at once, with
/// an error that may be tried again.
///
/// ```
/// use rekindle::message::Message;
/// use rekindle::model::{Deltas, Model, ModelRequest};
/// use rekindle::reduction::View;
/// use rekindle_models::{Script, ScriptedModel};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let model = ScriptedModel::new(Script::new("demo").text("hello").text("goodbye"));
/// let history = [Message::user("hi"), Message::assistant("hello"), Message::user("bye")];
/// let request = ModelRequest {
///     system: None,
///     view: View::of(history.iter().map(Message::to_json).collect::<Result<_, _>>()?),
///     tools: [].into(),
///     previous: None,
///     partial: None,
///     attempt: 1,
///     idempotency_key: "k2".into(),
///     cancel: Default::default(),
/// };
/// let (deltas, _pieces) = Deltas::channel();
/// let answer = model.answer(&request, &deltas).await?;
/// assert_eq!(answer.parts[0].as_text(), Some("goodbye"));
/// assert_eq!(model.requests()[0].last, "bye");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedModel {
    script: Arc<Script>,
    flaw: Option<Arc<str>>,
    capabilities: ModelCapabilities,
    start: usize,
    ledger: Option<Arc<Ledger>>,
    seen: Arc<Mutex<Seen>>,
}

/// What all clones of a model know.
#[derive(Debug, Default)]
struct Seen {
    asked: Vec<Asked>,
    given: Place,
}

impl ScriptedModel {
    /// A model that answers from `script`. If a turn contradicts itself ([`Script::check`]), every
    /// request fails with what is wrong.
    pub fn new(script: Script) -> Self {
        let flaw = script.check().err().map(|error| error.to_string().into());
        Self {
            script: Arc::new(script),
            flaw,
            capabilities: ModelCapabilities::default(),
            start: 0,
            ledger: None,
            seen: Arc::default(),
        }
    }

    /// A model that answers from a script in JSON.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        Script::from_json(text).map(Self::new)
    }

    /// A model that answers from a file of JSON.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Error> {
        Script::load(path).map(Self::new)
    }

    /// Declares what it can do. If it keeps history, an answer without an id gets one, from which
    /// the next request tells where to go on. If it continues partial answers, it says what follows
    /// the part it is given.
    #[must_use]
    pub fn with_capabilities(mut self, capabilities: ModelCapabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Starts counting at `turn`: so many counted turns are over before the first request.
    #[must_use]
    pub fn at(mut self, turn: usize) -> Self {
        self.start = turn;
        self
    }

    /// Appends a line to a file for each request, `asked <key>`, and one for each answer,
    /// `answered <key>`: what was asked for over several processes. If a line cannot be written, the
    /// request fails.
    #[must_use]
    pub fn with_ledger(mut self, path: impl Into<PathBuf>) -> Self {
        self.ledger = Some(Arc::new(Ledger::new(path.into())));
        self
    }

    /// What it was asked so far, in order.
    pub fn requests(&self) -> Vec<Asked> {
        self.seen().asked.clone()
    }

    /// What it answers from.
    pub fn script(&self) -> &Script {
        &self.script
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing is done under the lock that could leave it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the request and returns its number.
    fn note(&self, request: &ModelRequest) -> Result<usize, ModelError> {
        let asked = Asked::of(request)?;
        let mut seen = self.seen();
        seen.asked.push(asked);
        Ok(seen.asked.len() - 1)
    }

    fn place(&self, request: &ModelRequest) -> Result<Place, ModelError> {
        let place = match self.script.by {
            By::Messages => match choose::place_after(&self.script, request) {
                Some(place) => return Ok(place),
                None => choose::place_in(&self.script, &request.view)?,
            },
            By::Calls => self.seen().given,
        };
        Ok(place.plus(self.start))
    }

    async fn choose_and_play(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        if let Some(flaw) = &self.flaw {
            return Err(ModelError::fatal(&**flaw));
        }
        let place = self.place(request)?;
        let choice = choose::choose(&self.script, request, place)?;
        let mut answer = play::play(&choice, request, place, deltas).await?;
        if self.capabilities.keeps_history && answer.response.is_none() {
            answer.response = Some(place.after(&choice).response());
        }
        self.count(&choice);
        Ok(answer)
    }

    fn count(&self, choice: &Choice<'_>) {
        let mut seen = self.seen();
        seen.given = seen.given.after(choice);
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.script.name
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }

    async fn answer(&self, request: &ModelRequest, deltas: &Deltas) -> Result<Answer, ModelError> {
        let number = self.note(request)?;
        if let Some(ledger) = &self.ledger {
            ledger.asked(&request.idempotency_key)?;
        }
        let answer = tokio::select! {
            biased;
            () = request.cancel.cancelled() => return Err(ModelError::passing("the request was cancelled")),
            answer = self.choose_and_play(request, deltas) => answer?,
        };
        if let Some(ledger) = &self.ledger {
            ledger.answered(&request.idempotency_key)?;
        }
        if let Some(asked) = self.seen().asked.get_mut(number) {
            asked.answered = true;
        }
        Ok(answer)
    }
}
