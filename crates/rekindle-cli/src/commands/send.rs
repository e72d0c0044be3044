//! `rekindle send`: a message for a session, whoever runs it, now or later.

use clap::{Args, ValueEnum};
use rekindle::core::record::InboxMode;
use rekindle::{Error, Message, MessageId, operations};

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::owner;
use crate::ui::{printable, style};
use crate::words::{next, value};

/// What to send.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle send trip-42 'and a hotel near the station'\n  git diff | rekindle send @ - --mode steer"
)]
pub struct Arguments {
    /// The session
    #[arg(value_name = "SESSION")]
    session: String,
    /// The message; - reads it from standard input
    #[arg(value_name = "TEXT")]
    text: String,
    /// What it does to a run: its own turn, part of the next model call, or an interruption
    #[arg(long, value_enum, default_value_t = Mode::Queue, value_name = "MODE")]
    mode: Mode,
    /// Its id; sending the same one again counts once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// What a message does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Becomes the next turn
    Queue,
    /// Goes into the next model call
    Steer,
    /// Stops the run first
    Interrupt,
}

impl Arguments {
    /// Sends it.
    pub async fn run(self, app: &App) -> Outcome {
        let engine = app.engine(Access::Existing)?;
        let session = app.session(&engine, &self.session).await?;
        let text = value::text_or_input(&self.text)?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Err(Error::invalid("the message is empty")
                .on(&session)
                .hint("say something, or - to read it")
                .into());
        }
        let mode = match self.mode {
            Mode::Queue => InboxMode::Queue,
            Mode::Steer => InboxMode::Steer,
            Mode::Interrupt => InboxMode::Interrupt,
        };
        let id = self.id.map(MessageId::new).transpose()?;
        let sent = operations::send(&engine, &session, Message::user(text), mode, &app.author(), id).await?;
        if app.ui.is_json() {
            app.ui.json(&sent)?;
            return Ok(Exit::Ok);
        }
        let (name, reset) = (style::NAME, style::RESET);
        let again = if sent.repeated { ", as before" } else { "" };
        let (message, to) = (printable(sent.message.as_str()), printable(session.id.as_str()));
        app.ui.line(format!("sent: {name}{message}{reset} to {name}{to}{reset}{again}"))?;
        match &sent.owner {
            Some(owner) if !owner::has_ended(owner.owner.as_str()) => {
                let owner = owner::named(owner.owner.as_str());
                app.ui.remark(format!("{owner} runs it and takes the message over"))
            }
            _ => next::go_on(app, &engine, &session).await,
        }
        Ok(Exit::Ok)
    }
}
