//! A visit of a node: what it does, and the call of a tool where that is what it does.

use std::sync::Arc;
use std::time::Instant;

use rekindle_core::record::InDoubtPolicy;
use rekindle_core::{EffectId, Json, Result};

use super::agent_node::NodeLoop;
use super::builder;
use super::node::Prepared;
use super::run::{VisitEnd, record};
use super::state::Strand;
use super::visit::Visit;
use crate::driver::{Driver, Performed};
use crate::executor::call::{Caller, Ended, Entry, Next, Ready};
use crate::executor::reference::Template;
use crate::memory::is_redacted;
use crate::message::{ToolCall, ToolResult};

impl<'a> Visit<'a> {
    /// Whether the start of the visit is recorded together with its end.
    pub(super) fn defers_intent(&self) -> bool {
        let policy = |entry: &Entry| entry.tool.options().policy();
        matches!(&self.node.work, Prepared::Call { entry, .. } if policy(entry) == InDoubtPolicy::ReplaySafe)
    }

    pub(super) fn is_risky(&self) -> bool {
        let tool = match &self.node.work {
            Prepared::Call { entry, .. } => entry.tool.options().risky,
            _ => false,
        };
        tool || self.node.spec.risky
    }

    /// The call the node makes.
    pub(super) fn call(&self, arguments: Json) -> ToolCall {
        let name = match &self.node.work {
            Prepared::Call { entry, .. } => entry.tool.spec().name.clone(),
            Prepared::Loop { agent, .. } => agent.name().to_owned(),
            Prepared::Route { .. } => self.node.spec.id.clone(),
        };
        ToolCall::new(&self.node.spec.id, name, arguments)
    }

    /// Does what the node does.
    pub(super) async fn run(self, driver: &'a Driver) -> Result<VisitEnd> {
        match &self.node.work {
            Prepared::Route { .. } => {
                let result = ToolResult::new(&self.call(Json::null()), Json::null());
                let recorded = self.completed(driver, Ended::new(result), 0).await?;
                record(driver, recorded).await?;
                Ok(VisitEnd::Done)
            }
            Prepared::Loop { agent, prompt, continues, asked } => {
                let began = Instant::now();
                NodeLoop { visit: &self, agent, prompt, continues: *continues, asked, began }.run(driver).await
            }
            Prepared::Call { .. } => self.run_call(driver).await,
        }
    }

    async fn run_call(self, driver: &'a Driver) -> Result<VisitEnd> {
        let mut caller = Caller::new(driver, Arc::new(self.clone()), 1);
        let (ready, fault) = self.ready(driver).await?;
        let mut next = match fault {
            Some(why) => {
                let result = ToolResult::failed(&ready.call, &why);
                caller.settle(&ready, result, Vec::new()).await?
            }
            None => match self.at.failures.checked_sub(1) {
                Some(before) => caller.anew(ready.clone(), &self.effect(before)?).await?,
                None => caller.next(ready.clone()).await?,
            },
        };
        loop {
            let made = match next {
                Next::Settled => break,
                Next::Waits(what) => return Ok(VisitEnd::Waits(what)),
                Next::Make(ready) => caller.job(*ready).run().await,
            };
            next = match made.performed? {
                Performed::Settled(_) => break,
                Performed::Open(_) | Performed::InDoubt(_) if driver.is_stopping() => return Ok(VisitEnd::Stopped),
                Performed::Open(what) => return Ok(VisitEnd::Waits(what)),
                Performed::InDoubt(why) => caller.doubt(&made.ready, &why).await?,
            };
        }
        let strands = driver.read(Strand::all).await?;
        let unchanged = strands.get(&self.strand).is_some_and(|strand| *strand == self.at);
        if unchanged {
            caller.adopt(&ready).await?;
        }
        Ok(VisitEnd::Done)
    }

    /// The call of the node, and what is wrong with its arguments. One that was begun goes on with
    /// the arguments it was begun with.
    async fn ready(&self, driver: &Driver) -> Result<(Ready, Option<String>)> {
        let Prepared::Call { entry, arguments } = &self.node.work else {
            return Err(builder::no_node(&self.node.spec.id));
        };
        let id = self.effect(self.at.failures)?;
        let intent = driver.read(|state| state.effect(&id).map(|known| known.intent.clone())).await;
        let (given, hash, fault) = match intent {
            Some(intent) => {
                let known = intent.arguments.unwrap_or_else(Json::null);
                (self.refilled(driver, arguments, known, intent.arguments_hash).await, intent.arguments_hash, None)
            }
            None => {
                let view = self.node.memory(&self.strand);
                match driver.read(|state| self.node.fill(arguments, &view, state)).await.map(Json::from) {
                    Ok(given) => {
                        let (hash, faults) = (driver.argument_hash(&given), entry.schema.faults(&given));
                        let name = &entry.tool.spec().name;
                        (given, hash, faults.err().map(|faults| format!("the arguments do not fit `{name}`: {faults}")))
                    }
                    Err(why) => (Json::null(), rekindle_core::Hash::of(b""), Some(why)),
                }
            }
        };
        let waits = driver.wait_of(&id).await.is_some();
        let mut ready = Ready::new(driver, id, Arc::clone(entry), self.call(given.clone()), hash);
        ready.effect.step = Some(self.at.step.to_string());
        ready.effect.defer_intent = true;
        ready.effect.arguments = Some(given);
        ready.share_key(driver, self.first_try(driver, hash).await?);
        ready.timeout = self.node.spec.timeout.or(ready.timeout);
        ready.approval = entry.tool.options().approval.clone();
        if let Some(retry) = &self.node.spec.retry {
            ready.effect.retries = retry.retries();
        }
        Ok((ready, fault.filter(|_| !waits)))
    }

    /// The arguments a call was begun with. What is never stored is looked up again, if nothing else
    /// has changed since.
    async fn refilled(&self, driver: &Driver, template: &Template, known: Json, hash: rekindle_core::Hash) -> Json {
        if !is_redacted(&known) {
            return known;
        }
        let view = self.node.memory(&self.strand);
        let again = driver.read(|state| self.node.fill(template, &view, state)).await.ok().map(Json::from);
        again.filter(|arguments| driver.argument_hash(arguments) == hash).unwrap_or(known)
    }

    /// The first try at the visit, if it had the same arguments: the two share a key, so that whoever
    /// can ignore a repeated request does.
    async fn first_try(&self, driver: &Driver, hash: rekindle_core::Hash) -> Result<Option<EffectId>> {
        let first = self.effect(0)?;
        let known = driver.read(|state| state.effect(&first).map(|known| known.intent.arguments_hash)).await;
        Ok(known.is_none_or(|known| known == hash).then_some(first))
    }

    /// The effect of the visit. One that failed is made anew, as another effect with the same key.
    fn effect(&self, failures: u32) -> Result<EffectId> {
        let (step, node) = (self.at.step, &self.node.spec.id);
        match failures {
            0 => EffectId::new(format!("n{step}.{node}")),
            _ => EffectId::new(format!("n{step}.{node}~{failures}")),
        }
    }
}
