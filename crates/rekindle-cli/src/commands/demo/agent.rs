//! The agent of the demo: four people, eleven bookings, three steps and a summary.

use std::path::Path;
use std::time::Duration;

use rekindle::schemars::{self, JsonSchema};
use rekindle::tool::{Checked, FnTool, ToolError, tool};
use rekindle::{Agent, Frequency, Json, Result};
use rekindle_models::{Call, Script, ScriptedModel, Turn};
use serde_json::json;

use super::ledger::Ledger;

/// How many bookings there are.
pub const BOOKINGS: usize = 11;

/// The tools, and what each is told to book.
const STEPS: [&[(&str, &str)]; 3] = [
    &[
        ("book_flight", "Ada to Lisbon"),
        ("book_flight", "Bob to Lisbon"),
        ("book_flight", "Cleo to Lisbon"),
        ("book_flight", "Dora to Lisbon"),
    ],
    &[
        ("book_room", "Ada, three nights"),
        ("book_room", "Bob, three nights"),
        ("book_room", "Cleo, three nights"),
        ("book_room", "Dora, three nights"),
    ],
    &[("book_table", "Friday, four people"), ("book_bus", "airport, both ways"), ("book_hall", "Saturday morning")],
];

/// How long the model thinks.
const THINKING: Duration = Duration::from_millis(150);

/// Every booking the agent orders.
pub fn orders() -> Vec<(String, String)> {
    STEPS.iter().flat_map(|step| step.iter()).map(|(tool, what)| ((*tool).to_owned(), (*what).to_owned())).collect()
}

/// The agent, whose tools write to the ledger in `folder`.
pub fn build(folder: &Path) -> Result<Agent> {
    let mut agent = Agent::builder("travel-desk", ScriptedModel::new(script()))
        .system("Book everything that was asked for, each thing once. Then sum up.")
        .checkpoints(Frequency::PerIteration);
    for name in ["book_flight", "book_room", "book_table", "book_bus", "book_hall"] {
        agent = agent.tool(booking(name, Ledger::in_folder(folder)));
    }
    agent.build()
}

fn script() -> Script {
    let used =
        |input_tokens, output_tokens| rekindle::core::record::Usage { input_tokens, output_tokens, cost_micros: 0 };
    let mut script = Script::new("scripted");
    for (number, step) in STEPS.iter().enumerate() {
        let calls = step.iter().map(|(tool, what)| Call::new(*tool, json!({ "what": what })));
        let tokens = 400 + 350 * number as u64;
        script = script.turn(Turn::calls(calls).delayed(THINKING).with_usage(used(tokens, 120)));
    }
    let special = Turn::text(
        "All is booked: four flights to Lisbon, four rooms for three nights, a bus, a hall, and a table on \
         Friday with a vegetarian menu for one.",
    );
    script.turn(special.when_last_contains("vegetarian").delayed(THINKING).with_usage(used(1_490, 48))).turn(
        Turn::text(
            "All is booked: four flights to Lisbon, four rooms for three nights, a table on Friday, a bus \
                 and a hall on Saturday.",
        )
        .streamed(12)
        .delayed(THINKING)
        .with_usage(used(1_450, 40)),
    )
}

#[derive(serde::Deserialize, JsonSchema)]
struct Booking {
    /// What to book, and for whom.
    what: String,
}

/// A tool with a side effect that cannot be taken back: a line in the ledger.
fn booking(name: &'static str, ledger: Ledger) -> FnTool<Booking> {
    let past = ledger.clone();
    tool(name, "Books it. Cannot be undone.", move |call, booking: Booking| {
        let (ledger, key) = (ledger.clone(), call.idempotency_key().to_owned());
        async move {
            tokio::time::sleep(takes(&booking.what)).await;
            ledger.append(&key, name, &booking.what)?;
            // The answer is still on its way: whoever dies now has booked and does not know it.
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok::<_, ToolError>(confirmation(name, &booking.what))
        }
    })
    .writes()
    // What is done with a call that was under way: the ledger is asked whether it happened.
    .check(move |call, booking: Booking| {
        let happened = past.has(call.idempotency_key());
        async move {
            let confirmation = Json::from(confirmation(name, &booking.what).as_str());
            Ok(if happened { Checked::Happened(confirmation) } else { Checked::DidNotHappen })
        }
    })
}

fn confirmation(name: &str, what: &str) -> String {
    format!("{}: {what}: confirmed", name.trim_start_matches("book_"))
}

/// Between 120 and 420 milliseconds, the same for the same booking.
fn takes(what: &str) -> Duration {
    let sum: u64 = what.bytes().map(u64::from).sum();
    Duration::from_millis(120 + sum * 37 % 300)
}
