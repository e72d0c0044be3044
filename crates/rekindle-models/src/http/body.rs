//! The body of a response, read with a limit and with an eye on silence.

use std::time::Duration;

use rekindle::model::ModelError;
use reqwest::Response;

/// How long the end of a body is waited for when nothing more is wanted of it.
const NEAR: Duration = Duration::from_millis(100);

/// A body under way.
pub(crate) struct Body {
    response: Response,
    /// How long it may be silent.
    silence: Duration,
    /// The most bytes it may have.
    limit: usize,
    read: usize,
}

impl Body {
    pub(crate) fn new(response: Response, silence: Duration, limit: usize) -> Self {
        Self { response, silence, limit, read: 0 }
    }

    /// The next bytes; nothing at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, ModelError> {
        let chunk = match tokio::time::timeout(self.silence, self.response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            Ok(Err(_)) => return Err(self.cut()),
            Err(_) => {
                let message = format!("the stream was silent for {:?} after {} bytes", self.silence, self.read);
                return Err(ModelError::passing(message));
            }
        };
        self.read += chunk.as_ref().map_or(0, |bytes| bytes.len());
        if self.read > self.limit { Err(self.too_large()) } else { Ok(chunk) }
    }

    /// All of it.
    pub(crate) async fn all(&mut self) -> Result<Vec<u8>, ModelError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            all.extend_from_slice(bytes.as_ref());
        }
        Ok(all)
    }

    /// As much of its beginning as there is: the explanation of an error, say.
    pub(crate) async fn beginning(mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Ok(Some(bytes)) = self.chunk().await {
            all.extend_from_slice(bytes.as_ref());
        }
        all
    }

    /// Reads on to the end, if it is near: only then the connection can be used again.
    pub(crate) async fn finish(mut self) {
        let rest = async { while let Ok(Some(_)) = self.chunk().await {} };
        // If it is not, the next request makes a connection of its own.
        let _ = tokio::time::timeout(NEAR, rest).await;
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn cut(&self) -> ModelError {
        ModelError::passing(format!("the stream was cut after {} bytes", self.read))
    }

    /// Asking again gives as much again.
    pub(crate) fn too_large(&self) -> ModelError {
        ModelError::fatal(format!("the answer is larger than {} bytes", self.limit))
    }
}
