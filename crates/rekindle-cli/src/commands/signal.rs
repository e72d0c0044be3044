//! `rekindle signal`: gives a session the signal it waits for.

use clap::Args;
use rekindle::{Json, operations};

use super::answer;
use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::words::value;

/// Which signal.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle signal trip-42 payment-received\n  rekindle signal trip-42 payment-received '{\"cents\": 500}'"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The signal's name
    #[arg(value_name = "NAME")]
    name: String,
    /// What comes with it: JSON, or else a text; - reads it from standard input
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    value: Option<String>,
}

impl Arguments {
    /// Gives it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let value = match &self.value {
            Some(text) => value::typed(value::text_or_input(text)?.trim_end_matches(['\r', '\n'])),
            None => Json::null(),
        };
        let answered = operations::signal(&engine, &session, &self.name, value, app.identity()).await?;
        answer::tell(app, &engine, &session, &answered, "signalled", false).await?;
        Ok(Exit::Ok)
    }
}
