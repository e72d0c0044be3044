//! Which session and which moment of it a person means: whole ids, their beginnings, `@` for the
//! latest, and moments behind another `@`.

use rekindle::core::{MAX_PAGE, Seq, StoreExt as _};
use rekindle::operations::{self, At, HistoryOptions};
use rekindle::{
    BranchId, CheckpointId, Engine, Error, ErrorKind, Position, Result, SessionInfo, SessionKey, SessionQuery,
};

use crate::ui::time;
use crate::words::next::quoted;

/// How many candidates an error names.
const TOLD: usize = 8;

/// A moment of a session.
#[derive(Clone, Debug)]
pub struct Moment {
    pub session: SessionKey,
    pub at: At,
}

/// The session `text` means: its id, the beginning of one, `@` for the latest, `@-N` for the one
/// `N` before it.
pub async fn session(engine: &Engine, text: &str) -> Result<SessionKey> {
    if let Some(back) = latest(text) {
        return nth_latest(engine, back).await;
    }
    let key = engine.key(text)?;
    match engine.journal().open(&key).await {
        Ok(_) => return Ok(key),
        Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
        // One that was there and is gone is not another one that begins so.
        Err(error) if was_there(engine, &key).await => return Err(error),
        Err(_) => {}
    }
    by_beginning(engine, text).await
}

/// The session with exactly this id. What is removed is named as a whole: repeated after it stopped, a command that took
/// the beginning of an id, or `@`, would remove another session.
pub async fn exact_session(engine: &Engine, text: &str) -> Result<SessionKey> {
    if let Some(back) = latest(text) {
        let meant = nth_latest(engine, back).await?;
        let message = format!("`{text}` is another session each time; removing needs a whole id");
        return Err(Error::invalid(message).hint(format!("it is {} now", quoted(meant.id.as_str()))));
    }
    let key = engine.key(text)?;
    match engine.journal().open(&key).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            if engine.journal().is_removal_unfinished(&key).await? {
                return Ok(key);
            }
            if was_there(engine, &key).await {
                return Err(error);
            }
        }
        // What is damaged can be removed too.
        _ => return Ok(key),
    }
    let error = Error::not_found(format!("there is no session `{text}`"));
    Err(match by_beginning(engine, text).await {
        Ok(meant) => error.hint(format!("removing needs a whole id; did you mean {}?", quoted(meant.id.as_str()))),
        Err(_) => error.hint("`rekindle sessions` lists them; removing needs a whole id"),
    })
}

/// Returns whether high-water marks name a session.
pub async fn was_there(engine: &Engine, session: &SessionKey) -> bool {
    match engine.journal().store().high_water() {
        Some(marks) => marks.marked(session).await.is_ok_and(|places| places.iter().any(|heads| !heads.is_empty())),
        None => false,
    }
}

/// The moment `text` means. Without a session in it, a moment of `beside` if that is given.
pub async fn moment(engine: &Engine, text: &str, beside: Option<&SessionKey>) -> Result<Moment> {
    match session(engine, text).await {
        Ok(session) => return Ok(Moment { session, at: At::Latest }),
        Err(error) if *error.kind() != ErrorKind::NotFound || !could_be_moment(text) => {
            let Some(beside) = beside.filter(|_| *error.kind() == ErrorKind::NotFound) else { return Err(error) };
            return Ok(Moment { session: beside.clone(), at: at(engine, beside, text).await? });
        }
        Err(_) => {}
    }
    // An id may have an `@` in it; a moment has none.
    let (named, place) = text.rsplit_once('@').unwrap_or(("", text));
    let session = match (named, beside) {
        ("", Some(beside)) => beside.clone(),
        ("", None) => nth_latest(engine, 0).await?,
        (named, _) => session(engine, named).await?,
    };
    Ok(Moment { at: at(engine, &session, place).await?, session })
}

/// A moment of `session`: a checkpoint or the beginning of its id, a branch, `branch:seq`, `step:N`,
/// `~N` for the checkpoint `N` before the latest.
pub async fn at(engine: &Engine, session: &SessionKey, text: &str) -> Result<At> {
    if text.is_empty() {
        return Ok(At::Latest);
    }
    if let Some(step) = text.strip_prefix("step:").and_then(|step| step.parse().ok()) {
        return Ok(At::Step(step));
    }
    if let Some(back) = text.strip_prefix('~').map(|back| if back.is_empty() { Ok(1) } else { back.parse::<usize>() }) {
        let back =
            back.map_err(|_| Error::invalid(format!("`{text}` is no moment; write ~2 for two before the latest")))?;
        return nth_checkpoint(engine, session, back).await;
    }
    if let Some((branch, seq)) = text.rsplit_once(':')
        && let Ok(seq) = seq.parse()
    {
        return Ok(At::Position(Position::new(BranchId::new(branch)?, Seq(seq))));
    }
    let info = engine.journal().open(session).await?;
    if let Some(branch) = info.branches.iter().find(|branch| branch.branch.as_str() == text) {
        return Ok(At::Head(branch.branch.clone()));
    }
    checkpoint(engine, &info, text).await.map(At::Checkpoint)
}

/// The checkpoint a moment of `session` stands at: that one, or the last before it.
pub async fn checkpoint_at(engine: &Engine, session: &SessionKey, text: &str) -> Result<CheckpointId> {
    let at = at(engine, session, text).await?;
    checkpoint_of(engine, &Moment { session: session.clone(), at }).await
}

/// The checkpoint a moment stands at: that one, or the last before it.
pub async fn checkpoint_of(engine: &Engine, moment: &Moment) -> Result<CheckpointId> {
    if let At::Checkpoint(id) = &moment.at {
        return Ok(id.clone());
    }
    let options = HistoryOptions { at: moment.at.clone(), before: None, limit: 1 };
    let page = operations::history(engine, &moment.session, &options).await?;
    let first = page.checkpoints.into_iter().next();
    first.map(|found| found.checkpoint.id).ok_or_else(|| {
        let hint = format!("`rekindle checkpoint {}` makes one", quoted(moment.session.id.as_str()));
        Error::not_found("there is no checkpoint at or before that moment").on(&moment.session).hint(hint)
    })
}

/// The position a moment stands for now.
pub async fn position_of(engine: &Engine, moment: &Moment) -> Result<Position> {
    if let At::Position(position) = &moment.at {
        return Ok(position.clone());
    }
    let options = HistoryOptions { at: moment.at.clone(), before: None, limit: 1 };
    Ok(operations::history(engine, &moment.session, &options).await?.position)
}

/// The checkpoint with that id, or the only one whose id begins so.
async fn checkpoint(engine: &Engine, info: &SessionInfo, text: &str) -> Result<CheckpointId> {
    let session = &info.header.key;
    if let Ok(id) = CheckpointId::new(text)
        && engine.journal().checkpoint(session, &id).await.is_ok()
    {
        return Ok(id);
    }
    let mut found = Vec::new();
    for branch in info.branches.iter().filter(|branch| !branch.branch.is_inbox()) {
        let options = HistoryOptions { at: At::Head(branch.branch.clone()), limit: 1_000, ..HistoryOptions::default() };
        for checkpoint in operations::history(engine, session, &options).await?.checkpoints {
            let id = checkpoint.checkpoint.id;
            if begins(id.as_str(), text) && !found.contains(&id) {
                found.push(id);
            }
        }
    }
    match found.len() {
        1 => Ok(found.swap_remove(0)),
        0 => Err(Error::not_found(format!("there is no checkpoint or branch `{text}`")).on(session).hint(format!(
            "`rekindle sessions checkpoints {}` lists them; other moments are branch:seq, step:N and ~N",
            quoted(session.id.as_str())
        ))),
        _ => Err(several("checkpoints", text, found.iter().map(ToString::to_string))),
    }
}

async fn nth_checkpoint(engine: &Engine, session: &SessionKey, back: usize) -> Result<At> {
    let options = HistoryOptions { limit: back.saturating_add(1).min(1_000), ..HistoryOptions::default() };
    let page = operations::history(engine, session, &options).await?;
    let found = page.checkpoints.len();
    match page.checkpoints.into_iter().nth(back) {
        Some(checkpoint) => Ok(At::Checkpoint(checkpoint.checkpoint.id)),
        None => {
            let message =
                format!("the session has only {} on this line of history", time::counted(found as u64, "checkpoint"));
            let hint = format!("`rekindle sessions checkpoints {}` lists them", session.id);
            Err(Error::not_found(message).on(session).hint(hint))
        }
    }
}

/// How many sessions before the latest `text` means.
fn latest(text: &str) -> Option<usize> {
    match text.strip_prefix('@')? {
        "" => Some(0),
        "-" => Some(1),
        back => back.strip_prefix('-')?.parse().ok(),
    }
}

fn could_be_moment(text: &str) -> bool {
    text.contains('@')
}

async fn nth_latest(engine: &Engine, back: usize) -> Result<SessionKey> {
    let mut query = SessionQuery::new(engine.namespace().clone()).with_limit(back.saturating_add(1).min(MAX_PAGE));
    query.top_level = true;
    let mut sessions = operations::list(engine, &query).await?.sessions;
    if back < sessions.len() {
        return Ok(sessions.swap_remove(back).header.key);
    }
    let message = match sessions.len() {
        0 => "there are no sessions yet".to_owned(),
        1 => "there is only one session".to_owned(),
        number => format!("there are only {number} sessions"),
    };
    Err(Error::not_found(message).hint("`rekindle run FILE` starts one; `rekindle sessions` lists them"))
}

async fn by_beginning(engine: &Engine, text: &str) -> Result<SessionKey> {
    let mut query = SessionQuery::new(engine.namespace().clone()).with_limit(500);
    query.text = Some(text.to_owned());
    let all = engine.journal().store().list_all(&query).await?;
    let mut found: Vec<_> = all.into_iter().filter(|info| begins(info.header.key.id.as_str(), text)).collect();
    match found.len() {
        1 => Ok(found.swap_remove(0).header.key),
        0 => Err(Error::not_found(format!("there is no session `{text}`"))
            .hint("`rekindle sessions` lists them; @ means the latest")),
        _ => Err(several("sessions", text, found.iter().map(|info| info.header.key.id.to_string()))),
    }
}

/// Whether an id begins so, with or without its prefix.
fn begins(id: &str, text: &str) -> bool {
    let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
    !text.is_empty() && (id.starts_with(text) || bare.starts_with(text))
}

fn several(what: &str, text: &str, ids: impl Iterator<Item = String>) -> Error {
    let ids: Vec<_> = ids.collect();
    let mut told = ids.iter().take(TOLD).cloned().collect::<Vec<_>>().join(", ");
    if ids.len() > TOLD {
        told.push_str(&format!(" and {} more", ids.len() - TOLD));
    }
    Error::invalid(format!("`{text}` is the beginning of {} {what}: {told}", ids.len()))
        .hint("write more of the id you mean")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is typed for a session or a moment, it is one that is there or an error.
    #[test]
    fn fuzzed_moments() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = Engine::memory().unwrap();
        let key = runtime.block_on(async { engine.create("ses_1").await.unwrap().key().clone() });
        let seeds = ["ses_1", "@", "@-0", "ses_1@main", "ses_1@main:0", "ses"];
        rekindle_fuzz::fuzz!("cli-moment")
            .seeds(seeds)
            .words(["@", "~", "step:", ":", "@-", "main", "inbox"])
            .costly(2)
            .text(|text| {
                runtime.block_on(async {
                    for beside in [None, Some(&key)] {
                        if let Ok(moment) = moment(&engine, text, beside).await {
                            assert_eq!(moment.session, key);
                            let _ = (checkpoint_of(&engine, &moment).await, position_of(&engine, &moment).await);
                        }
                    }
                    moment(&engine, text, None).await
                })
            });
    }
}
