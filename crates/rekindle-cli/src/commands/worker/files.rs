//! What runs a session that remembers its file.

use std::sync::Arc;

use rekindle::worker::{Resolver, Work};
use rekindle::{Error, ErrorKind, Result, SessionInfo, async_trait};

use crate::app::App;
use crate::failure::Failure;
use crate::run::{self, BuildArguments, DEFINITION, Remembered};

/// Makes what the files say that sessions remember.
pub struct Files(App);

impl Files {
    pub fn new(app: App) -> Self {
        Self(app)
    }
}

fn remembered(session: &SessionInfo) -> Option<Remembered> {
    session.header.metadata.get(DEFINITION)?.decode().ok()
}

#[async_trait]
impl Resolver for Files {
    /// A file that changed since is another one.
    fn key(&self, session: &SessionInfo) -> Option<String> {
        let remembered = remembered(session)?;
        let seen = std::fs::metadata(&remembered.file).ok().map(|file| (file.len(), file.modified().ok()));
        Some(format!("{} {seen:?}", remembered.to_json().ok()?.as_str()))
    }

    async fn make(&self, session: &SessionInfo) -> Result<Arc<dyn Work>> {
        let remembered = remembered(session)
            .ok_or_else(|| Error::not_found("the session does not say which file it runs").on(&session.header.key))?;
        if !remembered.file.exists() {
            let message = format!("its file {} is not here", remembered.file.display());
            return Err(Error::not_found(message).on(&session.header.key));
        }
        let made = async {
            let definition = run::load(&remembered.file)?;
            run::built(&self.0, definition, &remembered, &BuildArguments::default()).await
        };
        match made.await {
            Ok(built) => Ok(Arc::new(built)),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Faults(faults)) => Err(faults.into()),
            Err(Failure::Closed) => Err(Error::new(ErrorKind::Closed, "nobody reads the output any more")),
        }
    }
}
