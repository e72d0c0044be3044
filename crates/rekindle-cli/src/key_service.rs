//! A program as a key service: what wraps the data keys of sessions, so that the main key stays with it.
//!
//! For each key the program is started once. It reads one line of JSON from its standard input,
//! `{"wrap": SECRET, "context": TEXT}` or `{"unwrap": WRAPPED, "key": ID, "context": TEXT}`, and writes one line:
//! `{"wrapped": BYTES, "key": ID}` or `{"secret": SECRET}`. Bytes are base64. It refuses to unwrap what was wrapped
//! with another context, and says on standard error why it cannot do what it is asked. Nothing secret stands in its
//! arguments.

use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rekindle::core::codec::{KeyService, Wrapped};
use rekindle::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use zeroize::Zeroizing;

use crate::ui::printable;

/// The time a program has for one key.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most that is read of its answer, and of what it says went wrong.
const MAX_ANSWER: u64 = 64 << 10;

/// A program that keeps the main key.
#[derive(Debug)]
pub struct CommandKeys {
    program: String,
    arguments: Vec<String>,
}

#[derive(Deserialize)]
struct WrapAnswer {
    wrapped: String,
    key: String,
}

#[derive(Deserialize)]
struct UnwrapAnswer {
    secret: String,
}

impl CommandKeys {
    /// The program of that name, with arguments.
    pub fn new(program: String, arguments: Vec<String>) -> Self {
        Self { program, arguments }
    }

    async fn ask<T: for<'de> Deserialize<'de>>(&self, question: &Value) -> Result<T> {
        let answer = match tokio::time::timeout(PATIENCE, self.run(question)).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.failed(format!("did not answer within {} seconds", PATIENCE.as_secs()))),
        };
        // Not the answer itself: it may be the secret.
        serde_json::from_slice(&answer)
            .map_err(|_| self.failed("answered with something else than is expected".to_owned()))
    }

    async fn run(&self, question: &Value) -> Result<Zeroizing<Vec<u8>>> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.kill_on_drop(true).spawn();
        let mut child = started.map_err(|error| self.failed(format!("cannot be started: {error}")))?;
        let line = Zeroizing::new(format!("{question}\n"));
        if let Some(mut input) = child.stdin.take() {
            // One that does not listen says in its answer what is wrong.
            let _ = input.write_all(line.as_bytes()).await;
        }
        let (mut answer, mut said) = (Zeroizing::new(Vec::new()), Vec::new());
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let read_answer = async {
            match output {
                Some(output) => output.take(MAX_ANSWER).read_to_end(&mut answer).await.map(drop),
                None => Ok(()),
            }
        };
        let read_errors = async {
            match errors {
                Some(errors) => errors.take(MAX_ANSWER).read_to_end(&mut said).await.map(drop),
                None => Ok(()),
            }
        };
        let read = tokio::try_join!(read_answer, read_errors);
        let ended = child.wait().await;
        match (read, ended) {
            (Ok(_), Ok(status)) if status.success() => Ok(answer),
            (_, Ok(status)) => {
                let said = String::from_utf8_lossy(&said);
                let said = said.trim().lines().next().unwrap_or_default();
                Err(self.failed(format!("ended with {status}: {}", printable(said))))
            }
            (_, Err(error)) => Err(self.failed(format!("was lost: {error}"))),
        }
    }

    fn failed(&self, what: String) -> Error {
        let message = format!("the key service `{}` {what}", printable(&self.program));
        Error::new(ErrorKind::StoreUnavailable, message).hint("see `encryption.service` in the configuration")
    }
}

#[async_trait]
impl KeyService for CommandKeys {
    async fn wrap(&self, secret: &[u8; 32], context: &[u8]) -> Result<Wrapped> {
        let question = json!({"wrap": STANDARD.encode(secret), "context": STANDARD.encode(context)});
        let answer: WrapAnswer = self.ask(&question).await?;
        let bytes = STANDARD.decode(&answer.wrapped).ok().filter(|bytes| bytes.len() <= 4 << 10);
        let legal = (1..=64).contains(&answer.key.len()) && answer.key.bytes().all(|byte| byte.is_ascii_graphic());
        match bytes.filter(|_| legal) {
            Some(bytes) => Ok(Wrapped { key: answer.key, bytes }),
            None => Err(self.failed("gave no key id of 64 visible characters, or too many bytes".to_owned())),
        }
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &[u8]) -> Result<Zeroizing<[u8; 32]>> {
        let question = json!({
            "unwrap": STANDARD.encode(&wrapped.bytes), "key": wrapped.key, "context": STANDARD.encode(context),
        });
        let answer: UnwrapAnswer = self.ask(&question).await?;
        let answered = Zeroizing::new(answer.secret);
        let secret = STANDARD.decode(answered.as_bytes()).ok().map(Zeroizing::new);
        let secret = secret.and_then(|secret| <[u8; 32]>::try_from(secret.as_slice()).ok());
        secret.map(Zeroizing::new).ok_or_else(|| self.failed("gave no secret of 32 bytes".to_owned()))
    }

    fn is_current(&self, _wrapped: &Wrapped) -> bool {
        // Which key is active is known to the service alone.
        false
    }
}
