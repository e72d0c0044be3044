//! What runs a session that remembers its file.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle::worker::{Resolver, Work};
use rekindle::{Engine, Error, ErrorKind, Result, SessionInfo, async_trait};

use crate::app::App;
use crate::failure::Failure;
use crate::run::{self, Before, BuildArguments, Chosen, Remembered};

/// Makes what the files say that sessions remember, as far as they are trusted.
pub struct Files {
    app: App,
    engine: Engine,
    accept_drift: bool,
}

impl Files {
    pub fn new(app: App, engine: Engine, accept_drift: bool) -> Self {
        Self { app, engine, accept_drift }
    }

    async fn made(&self, session: &SessionInfo) -> Result<Arc<dyn Work>, Failure> {
        let remembered = Remembered::in_header(session);
        let definition = run::recorded(&self.app, session, remembered.as_ref())?;
        let remembered = remembered.unwrap_or_default();
        let chosen = Chosen::again(&self.app, definition, &remembered, None, &BTreeMap::new())?;
        let key = &session.header.key;
        let before =
            Before { engine: &self.engine, session: key, resumes_failed: false, accept_drift: self.accept_drift };
        let built = run::built(&self.app, &chosen, &BuildArguments::default(), Some(before)).await?;
        Ok(Arc::new(built))
    }
}

#[async_trait]
impl Resolver for Files {
    /// A file that changed since is another one.
    fn key(&self, session: &SessionInfo) -> Option<String> {
        let agent = session.header.agent.as_deref().unwrap_or_default();
        let Some(remembered) = Remembered::in_header(session) else {
            return self.app.settings.agent(agent).map(|file| format!("{agent} {}", file.display()));
        };
        let seen = std::fs::metadata(&remembered.file).ok().map(|file| (file.len(), file.modified().ok()));
        Some(format!("{} {agent} {seen:?}", remembered.to_json().ok()?.as_str()))
    }

    async fn make(&self, session: &SessionInfo) -> Result<Arc<dyn Work>> {
        let made = match self.made(session).await {
            Ok(work) => return Ok(work),
            Err(Failure::Error(error)) => error,
            Err(Failure::Faults(faults)) => faults.into(),
            Err(Failure::Closed) => Error::new(ErrorKind::Closed, "nobody reads the output any more"),
        };
        Err(made.on(&session.header.key))
    }
}
