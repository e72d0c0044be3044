//! Building an agent.

use std::sync::Arc;
use std::time::Duration;

use rekindle_core::{Error, Result};

use super::toolbox::Toolbox;
use super::{Agent, Inner};
use crate::driver::{Budget, Budgets, Frequency, RunOptions, run_option_setters};
use crate::middleware::Middleware;
use crate::model::Model;
use crate::reduction::Reduction;
use crate::tool::{Retries, Tool, ToolGroup};

/// How many iterations a turn has unless a budget says otherwise.
const DEFAULT_ITERATIONS: u64 = 50;

/// Builds an [`Agent`].
#[derive(Debug)]
pub struct AgentBuilder {
    name: String,
    model: Arc<dyn Model>,
    system: Option<Arc<str>>,
    tools: Vec<Arc<dyn Tool>>,
    groups: Vec<ToolGroup>,
    middleware: Vec<Arc<dyn Middleware>>,
    reduction: Reduction,
    options: RunOptions,
    model_retries: Retries,
    model_timeout: Duration,
    same_call_limit: u32,
    failure_limit: u64,
    parallel: usize,
}

impl AgentBuilder {
    pub(super) fn new(name: String, model: Arc<dyn Model>) -> Self {
        Self {
            name,
            model,
            system: None,
            tools: Vec::new(),
            groups: Vec::new(),
            middleware: Vec::new(),
            reduction: Reduction::default(),
            options: RunOptions::default(),
            model_retries: Retries { attempts: 4, first_pause: Duration::from_secs(1), ..Retries::default() },
            model_timeout: Duration::from_secs(600),
            same_call_limit: 5,
            failure_limit: 5,
            parallel: 16,
        }
    }

    /// What the model is told first. Not part of the stored conversation.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<Arc<str>>) -> Self {
        self.system = Some(prompt.into());
        self
    }

    /// A tool it may use.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// A tool that is shared.
    #[must_use]
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Tools it sees once it asks for them.
    #[must_use]
    pub fn group(mut self, group: ToolGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// Middleware; the first one added is the outermost.
    #[must_use]
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// What of a long conversation is sent to the model.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Which positions are marked as checkpoints.
    #[must_use]
    pub fn checkpoints(mut self, frequency: Frequency) -> Self {
        self.options.checkpoints = frequency;
        self
    }

    run_option_setters!();

    /// What one turn may use. Without a limit on iterations it has fifty.
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

    /// How often partial answers are kept: after so many bytes or so long.
    #[must_use]
    pub fn partials(mut self, bytes: usize, interval: Duration) -> Self {
        self.options.partial_bytes = bytes.max(1);
        self.options.partial_interval = interval;
        self
    }

    /// How a model that fails in passing is asked again.
    #[must_use]
    pub fn model_retries(mut self, retries: Retries) -> Self {
        self.model_retries = retries;
        self
    }

    /// How long a model may be silent before it counts as failed: until its answer, or until the
    /// next piece of it.
    #[must_use]
    pub fn model_timeout(mut self, timeout: Duration) -> Self {
        self.model_timeout = timeout;
        self
    }

    /// The turn fails when the model makes the same call so often in a row; zero never.
    #[must_use]
    pub fn same_call_limit(mut self, calls: u32) -> Self {
        self.same_call_limit = calls;
        self
    }

    /// The turn fails when all calls of so many steps in a row failed; zero never.
    #[must_use]
    pub fn failure_limit(mut self, steps: u64) -> Self {
        self.failure_limit = steps;
        self
    }

    /// How many calls run at once.
    #[must_use]
    pub fn parallel(mut self, calls: usize) -> Self {
        self.parallel = calls.max(1);
        self
    }

    /// The agent. An error if a tool's name or schema is not valid or two have the same name.
    pub fn build(mut self) -> Result<Agent> {
        if self.options.budgets.limit(Budget::Iterations).is_none() {
            self.options.budgets = self.options.budgets.with(Budget::Iterations, DEFAULT_ITERATIONS);
        }
        let mut names: Vec<_> = self.middleware.iter().map(|layer| layer.name().to_owned()).collect();
        names.sort();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(format!("there are two middlewares named `{}`", pair[0])));
        }
        let inner = Inner {
            name: self.name,
            model: self.model,
            system: self.system,
            toolbox: Toolbox::new(self.tools, self.groups)?,
            middleware: self.middleware,
            reduction: self.reduction,
            options: self.options,
            model_retries: self.model_retries,
            model_timeout: self.model_timeout,
            same_call_limit: self.same_call_limit,
            failure_limit: self.failure_limit,
            parallel: self.parallel,
        };
        Ok(Agent { inner: Arc::new(inner) })
    }
}
