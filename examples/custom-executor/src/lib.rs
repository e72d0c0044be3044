//! An executor of one's own: a checklist. Its input is a list of items, each of which is worked off by one durable
//! call; a resume goes on behind the last item on record.
//!
//! [`Checklist`] is the executor: it runs. [`Checklists`] is its descriptor: it tells operations, workers and front ends
//! about sessions of checklists from their state alone. Nothing in Rekindle knows either by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rekindle::core::record::{CheckpointType, RegisterSet, RunOutcome};
use rekindle::core::{Record, RegisterKey};
use rekindle::executor::{Attempt, Driver, Effect, End, Fingerprint, NewCheckpoint, Performed, Tried};
use rekindle::executor::{Descriptor, View};
use rekindle::{EffectId, Error, Executor, Input, Json, Result, State, async_trait};
use serde::{Deserialize, Serialize};

/// The register of where a checklist stands.
const REGISTER: &str = "checklist";

/// Works off one item: by its name, under an idempotency key.
type Worker = dyn Fn(&str, &Attempt) -> std::result::Result<Json, String> + Send + Sync;

/// Runs checklists.
pub struct Checklist {
    name: String,
    work: Arc<Worker>,
}

impl Checklist {
    /// A checklist whose items are worked off by `work`.
    pub fn new(
        name: impl Into<String>,
        work: impl Fn(&str, &Attempt) -> std::result::Result<Json, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), work: Arc::new(work) }
    }

    async fn work_off(&self, driver: &Driver, at: &Stand, item: &str) -> Result<Performed> {
        // Another effect after each failure: what is on record for one never changes.
        let id = EffectId::new(format!("{}.{}.{}", at.turn, at.results.len(), at.failures))?;
        let effect = Effect::new(id, item, Json::of(&item)?)?;
        let call = |attempt: Attempt| async move {
            match (self.work)(item, &attempt) {
                Ok(value) => Tried::Ok(value.into()),
                Err(error) => Tried::Failed { recorded: Json::null().into(), error },
            }
        };
        driver.perform(&effect, call).await
    }
}

/// The state of a checklist, in its register.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stand {
    turn: u64,
    items: Vec<String>,
    results: Vec<Json>,
    /// Number of failed tries in this turn.
    #[serde(default)]
    failures: u32,
}

impl Stand {
    fn load(state: &State) -> Result<Self> {
        Ok(state.register(REGISTER).map(Json::decode).transpose()?.unwrap_or_default())
    }

    fn record(&self) -> Result<Record> {
        Ok(RegisterSet::new(RegisterKey::new(REGISTER)?, Json::of(self)?).into())
    }

    fn is_done(&self) -> bool {
        self.results.len() == self.items.len()
    }
}

#[async_trait]
impl Executor for Checklist {
    fn descriptor(&self) -> Arc<dyn Descriptor> {
        Arc::new(Checklists)
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::new().with("checklist", &self.name)
    }

    fn check_input(&self, input: &Input, _set: &[&str]) -> Result<()> {
        match input {
            Input::Value(items) => items.decode::<Vec<String>>().map(drop),
            _ => Err(Error::invalid("a checklist is given a list of items")),
        }
    }

    async fn run(&self, driver: &Driver, input: Input) -> Result<End> {
        let mut at = driver.read(Stand::load).await?;
        if let Input::Value(items) = input {
            at = Stand { turn: at.turn + 1, items: items.decode()?, ..Stand::default() };
            driver.begin_turn().await;
            driver.commit(vec![at.record()?]).await?;
        } else {
            driver.commit_staged().await?;
        }
        while let Some(item) = at.items.get(at.results.len()).cloned() {
            if let Some(end) = driver.stop_requested().await? {
                return Ok(end);
            }
            driver.begin_step();
            match self.work_off(driver, &at, &item).await? {
                Performed::Settled(outcome) if outcome.error.is_some() => {
                    at.failures += 1;
                    driver.stage(vec![at.record()?]).await?;
                    return Ok(End::new(RunOutcome::Failed, outcome.error.unwrap_or_default()));
                }
                Performed::Settled(outcome) => at.results.push(outcome.value.unwrap_or_else(Json::null)),
                Performed::Open(why) => return Ok(End::new(RunOutcome::Paused, why)),
                Performed::InDoubt(why) => return Ok(End::new(RunOutcome::Paused, format!("`{item}`: {why}"))),
            }
            // In one commit: that the item is done, and the checkpoint that says so.
            driver.stage(vec![at.record()?]).await?;
            let step = at.results.len() as u64;
            driver.checkpoint(NewCheckpoint::auto(CheckpointType::Step, step, format!("{item} is done"))).await?;
        }
        let value = Some(Json::of(&at.results)?);
        Ok(End { value, ..End::new(RunOutcome::Succeeded, "every item is done") })
    }
}

impl fmt::Debug for Checklist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checklist").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Describes sessions of checklists.
#[derive(Debug)]
pub struct Checklists;

impl Descriptor for Checklists {
    fn kind(&self) -> &str {
        "checklist"
    }

    fn is_mid_turn(&self, state: &State) -> bool {
        Stand::load(state).is_ok_and(|at| !at.is_done())
    }

    fn turn(&self, state: &State) -> Option<u64> {
        Stand::load(state).ok().map(|at| at.turn)
    }

    fn step(&self, state: &State) -> Option<u64> {
        Stand::load(state).ok().map(|at| at.results.len() as u64)
    }

    fn checkpoint_type(&self) -> CheckpointType {
        CheckpointType::Step
    }

    fn result(&self, state: &State) -> Result<Option<Json>> {
        Json::of(&Stand::load(state)?.results).map(Some)
    }

    fn view(&self, state: &State) -> Result<View> {
        let at = Stand::load(state)?;
        let mut view = View::of_path(at.items.iter().take(at.results.len()).cloned());
        view.outputs = at.items.into_iter().zip(at.results).collect::<BTreeMap<_, _>>();
        Ok(view)
    }

    fn check_register(&self, key: &str, value: &Json) -> Result<()> {
        if key == REGISTER { value.decode::<Stand>().map(drop) } else { Ok(()) }
    }
}
