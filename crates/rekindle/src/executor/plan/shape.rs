//! What goes on record when a step ends: its result, its status and the mark behind it.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use rekindle_core::record::{CheckpointTrigger, CheckpointType, LogAppendOutcomes};
use rekindle_core::{Json, Result};

use super::state::{LastError, PlanRegister, StepRegister, StepResult, StepStatus, results};
use crate::driver::{Driver, Frequency, NewCheckpoint, Recorded, shortened};
use crate::executor::call::{DecidedBy, Ended, Ready, Shape};
use crate::memory::MemoryView;

/// The steps of one run, as they go on record.
pub(super) struct StepShape {
    pub(super) at: PlanRegister,
    pub(super) checkpoints: Frequency,
    /// How many steps are completed.
    pub(super) completed: AtomicU64,
}

#[async_trait]
impl Shape for StepShape {
    async fn record(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded> {
        driver.record_spent().await;
        match ended.result.error {
            true => self.failed(driver, ready, ended).await,
            false => self.succeeded(driver, ready, ended),
        }
    }

    fn memory(&self) -> MemoryView {
        MemoryView::default()
    }

    fn node(&self) -> Option<String> {
        None
    }

    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Definition
    }

    fn closes_interrupted(&self) -> bool {
        false
    }
}

impl StepShape {
    fn succeeded(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded> {
        let step = &ready.call.id;
        let tokens = ended.usage.input_tokens.saturating_add(ended.usage.output_tokens);
        let result = StepResult {
            step_id: step.clone(),
            output: ended.result.content,
            completed_at: driver.now(),
            duration_ms: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            tokens,
        };
        let value = Json::of(&result)?;
        let mut records = vec![LogAppendOutcomes::new(results(), vec![ready.effect.id.clone()]).into()];
        records.push(StepRegister::new(self.at.turn, StepStatus::Completed).record(step)?);
        let memory = self.memory();
        for (key, value) in ended.remember {
            records.push(memory.write(&key, value)?);
        }
        let number = self.completed.fetch_add(1, Ordering::SeqCst) + 1;
        let marked = self.checkpoints.marks_step(number, ended.took, value.as_str().len());
        let checkpoint =
            marked.then(|| NewCheckpoint::auto(CheckpointType::Step, number, format!("step `{step}` completed")));
        Ok(Recorded { records, checkpoints: checkpoint.into_iter().collect(), ..value.into() })
    }

    async fn failed(&self, driver: &Driver, ready: &Ready, ended: Ended) -> Result<Recorded> {
        let step = &ready.call.id;
        let error = shortened(ended.result.content.decode::<String>().unwrap_or_default());
        let known = driver.read(|state| StepRegister::load(state, step, self.at.turn)).await?;
        let register = StepRegister {
            failures: known.failures.saturating_add(1),
            error: Some(error.clone()),
            ..StepRegister::new(self.at.turn, StepStatus::Failed)
        };
        let last_error = Some(LastError::new(step, &error, driver.now()));
        let plan = PlanRegister { last_error, ..self.at.clone() };
        let number = self.completed.load(Ordering::SeqCst);
        let checkpoint = NewCheckpoint {
            trigger: CheckpointTrigger::Error,
            ..NewCheckpoint::auto(CheckpointType::Step, number, format!("failed at step `{step}`: {error}"))
        };
        let records = vec![register.record(step)?, plan.record()?];
        Ok(Recorded { records, checkpoints: vec![checkpoint], ..Json::null().into() })
    }
}
