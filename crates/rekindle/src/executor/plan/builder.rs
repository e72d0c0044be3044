//! Building a plan.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use rekindle_core::{Error, Result};
use serde_json::Value;

use super::check::{Tools, check, check_nesting};
use super::spec::{PlanSpec, StepSpec};
use super::{Inner, Plan};
use crate::driver::{Budgets, Frequency, RunOptions, run_option_setters};
use crate::executor::call::Entry;
use crate::tool::Tool;

/// Builds a [`Plan`].
#[derive(Debug)]
pub struct PlanBuilder {
    spec: PlanSpec,
    tools: Vec<Arc<dyn Tool>>,
    options: RunOptions,
}

impl PlanBuilder {
    pub(super) fn new(spec: PlanSpec) -> Self {
        let options = RunOptions { checkpoints: Frequency::PerIteration, ..RunOptions::default() };
        Self { spec, tools: Vec::new(), options }
    }

    /// One more step.
    #[must_use]
    pub fn step(mut self, step: StepSpec) -> Self {
        self.spec.steps.push(step);
        self
    }

    /// More steps.
    #[must_use]
    pub fn steps(mut self, steps: impl IntoIterator<Item = StepSpec>) -> Self {
        self.spec.steps.extend(steps);
        self
    }

    /// A tool that steps may call.
    #[must_use]
    pub fn tool(self, tool: impl Tool) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// A tool that is shared.
    #[must_use]
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// The working memory its runs begin with, one key of it.
    #[must_use]
    pub fn context(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.spec.context.insert(key.into(), value.into());
        self
    }

    /// How many steps run at once.
    #[must_use]
    pub fn parallel(mut self, steps: usize) -> Self {
        self.spec.parallel = Some(steps);
        self
    }

    /// Nothing more is started once a required step has failed.
    #[must_use]
    pub fn fail_fast(mut self) -> Self {
        self.spec.fail_fast = true;
        self
    }

    /// Which steps are followed by a checkpoint; each of them unless this says otherwise. A step
    /// that fails always is.
    #[must_use]
    pub fn checkpoints(mut self, frequency: Frequency) -> Self {
        self.options.checkpoints = frequency;
        self
    }

    run_option_setters!();

    /// What one execution of the plan may use: a step counts as an iteration.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.options.budgets = budgets;
        self
    }

    /// How its runs behave, all of it.
    #[must_use]
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// The plan. An error names everything that is wrong with it, each with its place.
    pub fn build(mut self) -> Result<Plan> {
        check_nesting(&mut self.spec)?;
        let mut tools: Tools = HashMap::new();
        for tool in self.tools {
            let name = tool.spec().name.clone();
            if tools.insert(name.clone(), Arc::new(Entry::new(tool)?)).is_some() {
                return Err(Error::invalid(format!("there are two tools named `{name}`")).hint("rename one of them"));
            }
        }
        let steps = check(&self.spec, &tools)?;
        let index = steps.iter().enumerate().map(|(number, step)| (step.spec.id.clone(), number)).collect();
        let inner = Inner { spec: self.spec, steps, index, options: self.options, print: OnceLock::new() };
        Ok(Plan { inner: Arc::new(inner) })
    }
}
