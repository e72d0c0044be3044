//! Listing sessions of a large store, against the `sqlite3` program with the same query.

use std::path::Path;
use std::process::Command;

use rekindle::{Engine, SessionHeader};

use super::start::timed;
use crate::Result;
use crate::bench::Bench;
use crate::figure::Bar;
use crate::measure::Rounds;

/// The sessions of the store.
const SESSIONS: usize = 10_000;

/// What the store asks for a page, with the branches of each session, as one query.
const QUERY: &str = "SELECT s.id, s.namespace, s.session, s.created_at, s.current_branch, s.header, b.* \
    FROM (SELECT * FROM sessions WHERE namespace = 'default' ORDER BY created_at DESC, session DESC LIMIT %) s \
    JOIN branches b ON b.session = s.id";

/// Measures `rekindle sessions list`: a page, and everything.
pub async fn measure(bench: &Bench, rekindle: &Path) -> Result<()> {
    bench.progress(&format!("writing {SESSIONS} sessions"));
    let directory = bench.directory()?;
    write(directory.path()).await?;
    for (name, limit, arguments) in [("a page", 20, vec!["--limit", "20"]), ("all of them", SESSIONS, vec!["--all"])] {
        bench.progress(&format!("listing {name}"));
        let query = QUERY.replace('%', &limit.to_string());
        let rounds = Rounds { rounds: bench.size(5, 20), each: 3 };
        let floor = async || {
            let mut command = Command::new("sqlite3");
            command.arg("-readonly").arg(directory.path().join("rekindle.db")).arg(&query);
            timed(command)
        };
        let figure = async || {
            let mut command = Command::new(rekindle);
            command.args(["sessions", "list"]).args(&arguments).current_dir(directory.path());
            timed(command)
        };
        let compared = rounds.compare(floor, figure).await?;
        let name = format!("sessions list, {name} of {SESSIONS}");
        bench.record(name, (compared.figure, compared.floor), "us", Bar::AtMost(3.0))?;
    }
    Ok(())
}

async fn write(directory: &Path) -> Result<()> {
    let engine = Engine::open(&format!("sqlite:{}/rekindle.db", directory.display()))?;
    for number in 0..SESSIONS {
        let mut header = SessionHeader::new(engine.key(&format!("session-{number:05}"))?);
        header.agent = Some(format!("agent-{}", number % 7));
        header.title = Some(format!("the {number}th piece of work"));
        engine.create_with(header).await?;
    }
    Ok(())
}
