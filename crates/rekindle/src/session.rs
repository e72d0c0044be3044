//! A session as a program holds it: its name and the engine it lives in.

use rekindle_core::{Result, SessionInfo, SessionKey};

use crate::engine::Engine;

/// One durable piece of agent work. Holding it claims nothing: a session belongs to whoever runs
/// it.
#[derive(Clone, Debug)]
pub struct Session {
    engine: Engine,
    key: SessionKey,
}

impl Session {
    pub(crate) fn new(engine: Engine, key: SessionKey) -> Self {
        Self { engine, key }
    }

    /// The engine it lives in.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its full name.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// What is known of it now.
    pub async fn info(&self) -> Result<SessionInfo> {
        self.engine.journal().open(&self.key).await
    }
}
