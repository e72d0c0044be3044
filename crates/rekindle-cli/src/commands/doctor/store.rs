//! The store: whether it opens, can be written, is sound, and what waits in it.

use rekindle::{Engine, Error, ErrorKind, SessionInfo, SessionQuery, Status, operations};
use rekindle_store::{Bucket, shown_url};

use super::Check;
use super::surroundings::place;
use crate::app::{Access, App};
use crate::settings::is_remote;
use crate::ui::time;
use crate::words::next;

/// How many of the latest sessions are looked into.
const LOOKED_INTO: usize = 10;
/// A store whose clock is this far from ours has another one.
const APART: std::time::Duration = std::time::Duration::from_secs(60);

pub async fn checks(app: &App, repair: bool) -> Vec<Check> {
    let (url, begun) = (app.settings.store_url(), std::time::Instant::now());
    let shown = shown_url(&url);
    let engine = match app.engine(Access::Existing) {
        Ok(engine) => engine,
        Err(error) if *error.kind() == ErrorKind::NotFound => {
            let says = format!("there is none at {shown} yet");
            return vec![Check::warning("store", says, "`rekindle init` and `rekindle run agent.yaml hello` make one")];
        }
        Err(error) => return vec![failed("store", &shown, &error)],
    };
    let mut checks = vec![store(&shown, &engine)];
    checks.extend(writable(&url));
    checks.extend(conditions(app, &url).await);
    match latest(&engine).await {
        Ok((sessions, total)) => {
            checks.extend(is_remote(&url).then(|| reached(&engine, begun.elapsed())));
            checks.push(sessions_of(&engine, &sessions, total));
            checks.push(integrity(app, &engine, &sessions).await);
            checks.extend(marks(app, &engine, &sessions).await);
            // Looks at every session, which a service bills.
            if repair || !is_remote(&url) {
                checks.push(removals(app, &engine, repair).await);
            }
            checks.push(unfinished(app, &engine).await);
            checks.push(waits(app, &engine).await);
            checks.extend(repeated(&engine));
        }
        Err(error) if is_remote(&url) => checks.push(unusable(&error)),
        Err(error) => checks.push(failed("sessions", "they cannot be listed", &error)),
    }
    checks
}

fn failed(name: &'static str, what: &str, error: &Error) -> Check {
    Check::bad(name, format!("{what}: {}", error.message()), error.next_step())
}

fn store(url: &str, engine: &Engine) -> Check {
    let can = engine.journal().store().capabilities();
    let durable = if can.durable { "survives the machine" } else { "does not survive the machine" };
    let many = if can.multi_process { "for several processes" } else { "for one process" };
    Check::good("store", format!("{url}: {durable}, {many}"))
}

/// Why a server is of no use now: it may be away, or have said why.
fn unusable(error: &Error) -> Check {
    match error.kind() {
        ErrorKind::StoreUnavailable => failed("server", "it cannot be reached", error),
        _ => failed("server", "it answers, but", error),
    }
}

/// What answered, and whether workers can share it.
fn reached(engine: &Engine, took: std::time::Duration) -> Check {
    let store = engine.journal().store();
    let queue = if store.queue().is_some() { "with a queue for workers" } else { "without a queue for workers" };
    Check::good("server", format!("{} answered in {}, {queue}", store.capabilities().name, time::span(took)))
}

/// The requests that had to be made again while all this was looked at.
fn repeated(engine: &Engine) -> Option<Check> {
    let retries = engine.journal().store().retries();
    let last = retries.last.filter(|_| retries.requests > 0)?;
    let says = format!("{} had to be made again; the last: {last}", time::counted(retries.requests, "request"));
    Some(Check::warning("requests", says, "look at the service and the network; `retry_for` says how long is tried"))
}

fn writable(url: &str) -> Option<Check> {
    let path = place(url)?;
    // SQLite writes files beside its own.
    let folder = if path.is_dir() { path.clone() } else { path.parent()?.to_owned() };
    let refused = [&path, &folder]
        .into_iter()
        .find(|path| rustix::fs::access(path.as_path(), rustix::fs::Access::WRITE_OK).is_err());
    Some(match refused {
        None => Check::good("writable", path.display().to_string()),
        Some(path) => {
            Check::bad("writable", format!("{} may not be written", path.display()), "change who may write there")
        }
    })
}

/// Tries out the conditional writes of an object service: without them two processes could own one session.
async fn conditions(app: &App, url: &str) -> Option<Check> {
    if !matches!(url.split_once(':'), Some(("s3" | "gs" | "az", _))) {
        return None;
    }
    let tried = async { Bucket::open(url, &app.settings.bucket_options(url, false))?.try_conditions().await };
    Some(match tried.await {
        Ok(()) => Check::good("conditions", "the service keeps the conditions of writes"),
        Err(error) => failed("conditions", "this service cannot be used", &error),
    })
}

async fn latest(engine: &Engine) -> Result<(Vec<SessionInfo>, u64), Error> {
    let query = SessionQuery::new(engine.namespace().clone()).with_limit(LOOKED_INTO).with_total();
    let page = operations::list(engine, &query).await?;
    Ok((page.sessions, page.total.unwrap_or_default()))
}

/// How many there are, and whether the clock of the store is that of this machine.
fn sessions_of(engine: &Engine, sessions: &[SessionInfo], total: u64) -> Check {
    let now = engine.journal().clock().now();
    let ahead = sessions.iter().map(|info| info.updated_at().max(info.observed_at)).max();
    let seen = sessions.iter().map(|info| info.observed_at).max();
    let compare = "compare the clocks of the machines that use it";
    match (ahead.filter(|at| at.since(now) > APART), seen.filter(|at| now.since(*at) > APART)) {
        (Some(at), _) => {
            let says = format!("the store is ahead of this clock: its last change was at {}", time::short(at));
            Check::warning("sessions", says, compare)
        }
        (None, Some(at)) => {
            let says = format!("this clock is ahead of the store's, where it is {}", time::short(at));
            Check::warning("sessions", says, compare)
        }
        _ if total == 1 => Check::good("sessions", format!("1 in namespace {}", engine.namespace())),
        _ => Check::good("sessions", format!("{} in namespace {}", time::count(total), engine.namespace())),
    }
}

async fn integrity(app: &App, engine: &Engine, sessions: &[SessionInfo]) -> Check {
    let to_do = || next::line(app, ["verify", "--all"]);
    match operations::check(engine).await.map(|defects| defects.into_iter().next()) {
        Ok(None) => {}
        Ok(Some(defect)) => {
            return Check::bad("integrity", format!("{} is damaged: {}", defect.place, defect.detail), defect.hint);
        }
        Err(error) => return failed("integrity", "the store cannot be checked", &error),
    }
    for info in sessions {
        let key = &info.header.key;
        let shown = match operations::show(engine, key).await {
            Ok(shown) => shown,
            Err(error) if *error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                return Check::bad("integrity", format!("{} cannot be read: {}", key.id, error.message()), to_do());
            }
        };
        let torn = rekindle::core::DamageKind::Torn;
        let damage = shown.damage.iter().find(|damage| damage.kind != torn).map(|damage| damage.detail.clone());
        if let Some(why) = shown.unreadable.or(damage) {
            return Check::bad("integrity", format!("{} is damaged: {why}", key.id), to_do());
        }
    }
    match sessions.len() {
        0 => Check::good("integrity", "nothing to check"),
        1 => Check::good("integrity", "the latest session is readable"),
        number => Check::good("integrity", format!("the latest {number} sessions are readable")),
    }
}

/// Returns whether a store that was set back would be noticed, and how far its marks lie behind.
async fn marks(app: &App, engine: &Engine, sessions: &[SessionInfo]) -> Vec<Check> {
    let store = engine.journal().store();
    let Some(marks) = store.high_water() else {
        return vec![Check::good("marks", "none are kept: an older state of this store would not be noticed")];
    };
    let mut behind = vec![0; marks.places().len()];
    for info in sessions {
        let marked = marks.marked(&info.header.key).await.unwrap_or_default();
        for (behind, heads) in behind.iter_mut().zip(marked) {
            let marked = |branch| heads.get(branch).map_or(0, |head| head.seq.0);
            *behind += info.branches.iter().map(|b| b.head.seq.0.saturating_sub(marked(&b.branch))).sum::<u64>();
        }
    }
    let mut checks = Vec::new();
    for (place, behind) in marks.places().into_iter().zip(behind) {
        let kind = if place.anchor { "anchor" } else { "marks" };
        checks.push(match (place.trouble, behind) {
            (Some(trouble), _) => {
                Check::bad(kind, format!("{}: {trouble}", place.place), "an older state is not noticed")
            }
            (None, 0) => Check::good(kind, format!("{} is up to date", place.place)),
            (None, behind) => {
                Check::good(kind, format!("{} lies {} behind", place.place, time::counted(behind, "record")))
            }
        });
    }
    // Only where it is quick: `verify --all` looks at every session.
    if sessions.is_empty()
        && let Ok(gone) = marks.gone(engine.namespace()).await
        && let Some(first) = gone.first()
    {
        let says = format!("{} gone, {} among them", time::counted(gone.len() as u64, "session"), first.session.id);
        checks.push(Check::bad("rollback", says, next::line(app, ["verify", "--all"])));
    }
    checks
}

async fn count(engine: &Engine, statuses: &[Status]) -> Result<(u64, Option<SessionInfo>), Error> {
    let mut query = SessionQuery::new(engine.namespace().clone()).with_limit(1).with_total();
    query.statuses = statuses.to_vec();
    let page = operations::list(engine, &query).await?;
    Ok((page.total.unwrap_or_default(), page.sessions.into_iter().next()))
}

/// Removals that were begun and stopped; finishes them if that was asked for.
async fn removals(app: &App, engine: &Engine, repair: bool) -> Check {
    let repaired = match operations::repair(engine, engine.namespace(), !repair).await {
        Ok(repaired) => repaired,
        Err(error) => return failed("removals", "those that stopped cannot be told", &error),
    };
    let (kept, found): (Vec<_>, Vec<_>) = repaired.found.iter().partition(|orphan| orphan.kept.is_some());
    let is_empty = found.is_empty();
    let found = time::counted(found.len() as u64, "removal");
    match (is_empty, repaired.cleared.elsewhere.first()) {
        (true, _) if !kept.is_empty() => {
            let orphan = kept[0];
            let says = format!("large values of removed sessions stay in {}", orphan.place);
            Check::warning("removals", says, orphan.kept.clone().unwrap_or_default())
        }
        (true, _) => Check::good("removals", "none was left unfinished"),
        (false, Some(place)) => {
            let says = format!("large values of removed sessions are in {place}");
            Check::warning("removals", says, "set the key `large_values` to that bucket, and repair again")
        }
        (false, None) if repair => {
            Check::good("removals", format!("{found} finished, {} freed", time::bytes(repaired.cleared.bytes)))
        }
        (false, None) => {
            Check::warning("removals", format!("{found} stopped halfway"), next::line(app, ["doctor", "--repair"]))
        }
    }
}

async fn unfinished(app: &App, engine: &Engine) -> Check {
    match count(engine, &[Status::Interrupted, Status::Paused]).await {
        Err(error) => failed("unfinished", "they cannot be listed", &error),
        Ok((1, Some(info))) => {
            let to_do = next::line(app, ["resume", info.header.key.id.as_str()]);
            Check::warning("unfinished", format!("1 session is {}", info.status()), to_do)
        }
        Ok((0, _)) => Check::good("unfinished", "no session was left interrupted or paused"),
        Ok((number, _)) => {
            let to_do = next::line(app, ["sessions", "--status", "interrupted", "--status", "paused"]);
            Check::warning("unfinished", format!("{} sessions are interrupted or paused", time::count(number)), to_do)
        }
    }
}

async fn waits(app: &App, engine: &Engine) -> Check {
    match count(engine, &[Status::Waiting]).await {
        Err(error) => failed("waits", "they cannot be listed", &error),
        Ok((0, _)) => Check::good("waits", "no session waits for somebody"),
        Ok((number, _)) => {
            let says = if number == 1 {
                "1 session waits for somebody".into()
            } else {
                format!("{} sessions wait for somebody", time::count(number))
            };
            Check::warning("waits", says, next::line(app, ["waits"]))
        }
    }
}
