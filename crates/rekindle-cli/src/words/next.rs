//! The lines to run next, as they would be typed: quoted for a shell, with the store and the
//! namespace if those were said too.

use rekindle::core::queue::Job;
use rekindle::core::record::{EffectKind, InDoubtPolicy, WaitKind, WaitOpened};
use rekindle::operations::{self, EffectView, WaitView};
use rekindle::{BranchId, Engine, Error, ErrorKind, SessionKey};
use rekindle_store::shown_url;
use serde_json::{Value, json};

use crate::app::App;
use crate::owner;
use crate::ui::{style, time};

/// The line that runs `rekindle` with these words, where this one was told to look.
pub fn line<I>(app: &App, words: I) -> String
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let (mut line, store) = beginning(app.global.store.as_deref());
    let config = app.global.config.as_ref().map(|path| path.display().to_string());
    // A file that only the environment names is found again without a word.
    let config = config.filter(|_| std::env::var_os("REKINDLE_CONFIG").is_none());
    let said = [("--store", &store), ("--namespace", &app.global.namespace), ("--config", &config)];
    for (flag, value) in said {
        if let Some(value) = value {
            line.push_str(&format!(" {flag} {}", quoted(value)));
        }
    }
    if app.global.trust && std::env::var_os("REKINDLE_TRUST").is_none() {
        line.push_str(" --trust");
    }
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word.as_ref()));
    }
    line
}

/// How a line begins, and the store it names. A line is seen and kept by others: a URL with a
/// password is to be set in the environment, and stands there without it.
fn beginning(store: Option<&str>) -> (String, Option<String>) {
    match store.map(|url| (url, shown_url(url))) {
        Some((url, shown)) if url != shown => (format!("REKINDLE_STORE={} rekindle", quoted(&shown)), None),
        store => ("rekindle".to_owned(), store.map(|(url, _)| url.to_owned())),
    }
}

/// Says what can be run next.
pub fn tell(app: &App, line: &str) {
    app.ui.remark(format!("{}next:{} {}", style::HINT, style::RESET, crate::ui::printable(line)));
}

/// The line that goes on with a session.
pub fn resume(app: &App, session: &SessionKey) -> String {
    line(app, ["resume", session.id.as_str()])
}

/// The line that goes on with a branch of a session; with its current one if none is named.
pub fn resume_on(app: &App, session: &SessionKey, branch: Option<&BranchId>) -> String {
    match branch {
        Some(branch) => line(app, ["resume", session.id.as_str(), "--branch", branch.as_str()]),
        None => resume(app, session),
    }
}

/// Says who goes on with a session: a worker if it, or a session that started it, has a job; otherwise
/// whoever runs the line this says.
pub async fn go_on(app: &App, engine: &Engine, session: &SessionKey) {
    match worker_of(engine, session).await {
        Some(job) => {
            let queue = crate::ui::printable(job.queue.as_str());
            app.ui.remark(format!("a worker of the queue {queue} goes on with it"));
        }
        None => tell(app, &resume(app, session)),
    }
}

/// How far up the sessions that started a session are looked for.
const GENERATIONS: usize = 16;

/// The job with which a worker goes on with a session.
async fn worker_of(engine: &Engine, session: &SessionKey) -> Option<Job> {
    let mut at = session.clone();
    for _ in 0..GENERATIONS {
        if let Some(view) = operations::job(engine, &at).await.ok()? {
            return Some(view.job);
        }
        at = engine.journal().open(&at).await.ok()?.header.parent?;
    }
    None
}

/// An error of a run with the lines that help, where the engine can only name what to do.
pub fn explained(app: &App, error: Error) -> Error {
    let Some(session) = error.session().cloned() else { return error };
    let (id, resume) = (session.id.as_str(), resume(app, &session));
    let hint = match error.kind() {
        ErrorKind::AlreadyRunning { .. } if owner::has_died(&error) => {
            format!("its process has died; go on with: {resume}")
        }
        ErrorKind::AlreadyRunning { owner, branch, until, .. } => {
            let hint = format!("pause it with: {}; or wait for it: {resume} --wait 30s", line(app, ["pause", id]));
            let (owner, until) = (owner::named(owner.as_str()), time::short(*until));
            let message = format!("{owner} runs it: the lease of branch `{branch}` is held until {until} UTC");
            return Error::new(error.kind().clone(), message).on(&session).hint(hint);
        }
        ErrorKind::Unfinished => {
            let (cancel, send) = (line(app, ["cancel", id]), line(app, ["send", id, "TEXT"]));
            format!("go on: {resume}; give it up: {cancel}; or have the message read later: {send}")
        }
        ErrorKind::Drift => format!("restore what it ran with, or accept the change: {resume} --accept-drift REASON"),
        ErrorKind::NotResumable => {
            let (more, earlier) =
                (line(app, ["run", "FILE", "--continue", id, "TEXT"]), line(app, ["sessions", "checkpoints", id]));
            format!("say something new: {more}; or go back to one of these: {earlier}")
        }
        ErrorKind::InDoubt => {
            let (show, settle) = (line(app, ["sessions", "show", id]), line(app, ["settle", id]));
            format!("find out, and say it: {settle} --happened RESULT or --did-not-happen; look: {show}")
        }
        ErrorKind::Corrupt if error.position().is_some_and(|position| position.branch.is_inbox()) => {
            let (verify, inbox) = (line(app, ["verify", id]), line(app, ["log", id, "--records", "--branch", "inbox"]));
            format!(
                "look: {verify} and {inbox}; restore the session from a copy, or go on without what is lost: \
                 {resume} --ignore-damaged-inbox, and send it again"
            )
        }
        _ => return error,
    };
    error.hint(hint)
}

/// An error that ended a run under way: what to do when the store is there again. The error itself
/// says what is on record and which calls are in doubt.
pub fn cut_off(app: &App, error: Error) -> Error {
    match (error.kind(), error.session().cloned()) {
        (ErrorKind::StoreUnavailable | ErrorKind::PersistFailed, Some(session)) => {
            let line = resume(app, &session);
            error.hint(format!("when the store can be written again: {line}"))
        }
        _ => explained(app, error),
    }
}

/// The lines that answer a wait; none for what only time answers.
pub fn answers(app: &App, session: &SessionKey, wait: &WaitView) -> Vec<String> {
    answers_on(app, session, None, wait)
}

/// The lines that answer a wait of a branch; of the current one if none is named.
pub fn answers_on(app: &App, session: &SessionKey, branch: Option<&BranchId>, wait: &WaitView) -> Vec<String> {
    let (id, opened) = (session.id.as_str(), &wait.opened);
    let name = opened.wait.as_str();
    let on: Vec<&str> = branch.iter().flat_map(|branch| ["--branch", branch.as_str()]).collect();
    let said = |words: &[&str]| line(app, words.iter().chain(&on));
    match opened.kind {
        WaitKind::Timer => Vec::new(),
        // A signal is given to the current branch; the wait of another is answered by its id.
        WaitKind::Signal if branch.is_none() => {
            vec![line(app, ["signal", id, &opened.prompt, &example_of(opened, "null")])]
        }
        WaitKind::Signal => vec![said(&["answer", id, name, &example_of(opened, "null")])],
        WaitKind::Question => vec![said(&["answer", id, name, &example_of(opened, "ANSWER")])],
        WaitKind::Approval => {
            let mut yes = vec!["answer", id, name, "--approve"];
            let digest = wait.approve_digest.map(|digest| digest.to_string());
            if let Some(digest) = &digest {
                yes.extend(["--digest", digest]);
            }
            vec![said(&yes), said(&["answer", id, name, "--reject", "REASON"])]
        }
    }
}

/// The lines that settle a call of which nobody knows whether it happened; none if a resume makes
/// it again anyhow.
pub fn settle(app: &App, session: &SessionKey, effect: &EffectView) -> Vec<String> {
    let again = matches!(effect.policy, InDoubtPolicy::ReplaySafe | InDoubtPolicy::Idempotent);
    if effect.settled || effect.waits_for.is_some() || again || effect.kind == EffectKind::Model {
        return Vec::new();
    }
    let (id, name) = (session.id.as_str(), effect.effect.as_str());
    vec![line(app, ["settle", id, name, "--happened", "RESULT"]), line(app, ["settle", id, name, "--failed", "REASON"])]
}

/// An answer that fits, to be replaced by the one that is meant.
pub fn example_of(wait: &WaitOpened, otherwise: &str) -> String {
    let schema = wait.schema.as_ref().and_then(|schema| schema.to_value().ok());
    match schema.as_ref().and_then(example) {
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
        None => otherwise.to_owned(),
    }
}

/// A small value that fits a schema, as far as its shape says.
fn example(schema: &Value) -> Option<Value> {
    if let Some(first) = schema.get("enum").and_then(|values| values.get(0)) {
        return Some(first.clone());
    }
    match schema.get("type").and_then(Value::as_str)? {
        "object" => {
            let required = schema.get("required").and_then(Value::as_array);
            let names = required.into_iter().flatten().filter_map(Value::as_str);
            let of =
                |name: &str| schema.pointer(&format!("/properties/{name}")).and_then(example).unwrap_or(json!("…"));
            Some(Value::Object(names.map(|name| (name.to_owned(), of(name))).collect()))
        }
        "array" => Some(json!([])),
        "boolean" => Some(json!(true)),
        "integer" | "number" => Some(json!(1)),
        _ => None,
    }
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@=+,%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more_into_them() {
        assert_eq!(quoted("trip-42"), "trip-42");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("$(rm -rf ~)"), "'$(rm -rf ~)'");
    }

    #[test]
    fn a_password_stays_out_of_lines() {
        assert_eq!(beginning(Some("sqlite:a.db")), ("rekindle".into(), Some("sqlite:a.db".into())));
        assert_eq!(beginning(Some("postgres://u@h/d")), ("rekindle".into(), Some("postgres://u@h/d".into())));
        let hidden = "REKINDLE_STORE='postgres://u:***@h/d' rekindle".to_owned();
        assert_eq!(beginning(Some("postgres://u:hunter2@h/d")), (hidden, None));
        assert_eq!(beginning(None), ("rekindle".into(), None));
    }

    #[test]
    fn examples_fit_their_schema() {
        let check = |schema: Value, expected: Option<Value>| assert_eq!(example(&schema), expected);
        check(json!({"type": "integer"}), Some(json!(1)));
        check(json!({"enum": ["a", "b"]}), Some(json!("a")));
        check(json!({"type": "string"}), None);
        check(
            json!({"type": "object", "properties": {"action": {"enum": ["retry"]}, "result": {}}, "required": ["action"]}),
            Some(json!({"action": "retry"})),
        );
    }
}
