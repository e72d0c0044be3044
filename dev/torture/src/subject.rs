//! What the workers run: an agent whose tools have every policy for calls in doubt, and a flow that
//! waits for a signal and for a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Checked, ToolContext, ToolError, tool};
use rekindle::wait::WaitSpec;
use rekindle::worker::Worker;
use rekindle::{Agent, Engine, Flow, Json};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::ledger::Ledger;
use crate::stage::LEASE;

/// The agent.
pub const CLERK: &str = "clerk";
/// The flow.
pub const COURIER: &str = "courier";
/// What the flow waits for.
pub const SIGNAL: &str = "go";

/// What a tool of the clerk is asked to book.
#[derive(serde::Deserialize, JsonSchema)]
struct Booking {
    /// How long it takes, in milliseconds, before and after it is booked.
    takes: u64,
}

/// Works as `--as-worker URL BOOKS CONCURRENCY` says, until told to stop.
pub async fn serve(arguments: &[String]) -> Result<()> {
    let [url, books, concurrency] = arguments else { return Err("a worker needs URL BOOKS CONCURRENCY".into()) };
    let engine = Engine::open(url)?.with_lease(LEASE);
    let worker = Worker::builder(engine)
        .work(clerk(Path::new(books))?)
        .work(courier(Path::new(books)))
        .concurrency(concurrency.parse()?)
        .attempts(1_000)
        .build()?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok()?;
        term.recv().await;
        stopped.cancel();
        Some(())
    });
    worker.run(stop).await?;
    Ok(())
}

fn clerk(books: &Path) -> Result<Agent> {
    let script = Script::new("scripted")
        .turn(Turn::calls([
            Call::new("pay", json!({"takes": 20})),
            Call::new("mail", json!({"takes": 15})),
            Call::new("stamp", json!({"takes": 10})),
            Call::new("look", json!({"takes": 5})),
        ]))
        .turn(Turn::call("pay", json!({"takes": 5})))
        .turn(Turn::call("stamp", json!({"takes": 5})))
        .turn(Turn::text("done"));
    let (paid, asked) = (books.to_owned(), books.to_owned());
    let pay = tool("pay", "Books once, and can tell whether it did.", move |call, booking: Booking| {
        let books = paid.clone();
        async move { book(&books, "pay", &call, booking, true).await }
    })
    .writes()
    .check(move |call, _: Booking| {
        let books = asked.clone();
        async move { ask(&books, &call) }
    });
    let plain = |name: &'static str| {
        let books = books.to_owned();
        tool(name, "Books.", move |call, booking: Booking| {
            let books = books.clone();
            async move { book(&books, name, &call, booking, false).await }
        })
    };
    let agent = Agent::builder(CLERK, ScriptedModel::new(script))
        .tool(pay)
        .tool(plain("mail").writes().idempotent())
        .tool(plain("stamp").writes().never_again())
        .tool(plain("look").replay_safe())
        .build()?;
    Ok(agent)
}

async fn book(
    books: &Path,
    what: &str,
    call: &ToolContext,
    booking: Booking,
    fenced: bool,
) -> Result<String, ToolError> {
    let ledger = Ledger::of(books, call.session().id.as_str());
    let (key, fence) = (call.idempotency_key(), call.fence().0);
    tokio::time::sleep(Duration::from_millis(booking.takes)).await;
    let booked = match fenced {
        true => ledger.book_fenced(what, key, fence),
        false => ledger.book(what, key, fence).map(|()| true),
    };
    tokio::time::sleep(Duration::from_millis(booking.takes)).await;
    match booked {
        Ok(true) => Ok("booked".to_owned()),
        Ok(false) => Err(ToolError::failed("a newer owner has asked about it")),
        Err(error) => Err(ToolError::failed(format!("the books cannot be written: {error}"))),
    }
}

fn ask(books: &Path, call: &ToolContext) -> Result<Checked, ToolError> {
    let ledger = Ledger::of(books, call.session().id.as_str());
    match ledger.ask(call.idempotency_key(), call.fence().0) {
        Ok(true) => Ok(Checked::Happened(Json::from("booked before"))),
        Ok(false) => Ok(Checked::DidNotHappen),
        Err(error) => Err(ToolError::failed(format!("the books cannot be read: {error}"))),
    }
}

fn courier(books: &Path) -> Flow {
    let books: PathBuf = books.to_owned();
    Flow::new(COURIER, move |flow, session: String| {
        let ledger = Ledger::of(&books, &session);
        async move {
            step(&flow, "fetch", &ledger).await?;
            flow.wait("wait", &WaitSpec::signal(SIGNAL)).await?;
            flow.sleep("rest", Duration::from_millis(300)).await?;
            step(&flow, "deliver", &ledger).await?;
            Ok("delivered".to_owned())
        }
    })
}

async fn step(flow: &rekindle::FlowContext, name: &'static str, ledger: &Ledger) -> rekindle::Result<()> {
    flow.step(name, &(), async |call| {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let booked = ledger.book(name, &call.idempotency_key, call.fence.0);
        booked.map_err(|error| ToolError::failed(error.to_string()))
    })
    .await
}
