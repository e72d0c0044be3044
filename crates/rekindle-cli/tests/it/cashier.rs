//! An agent that charges and asks, as a file, and the ledger that its charges leave.

use crate::processes::lines;
use crate::support::Place;

/// An agent that makes these calls one after the other, `ask` or `charge`, and is done.
pub fn cashier(calls: &[&str]) -> String {
    let turns: String = calls.iter().map(|call| format!("      - calls: [{{name: {call}}}]\n")).collect();
    format!(
        "name: cashier
model:
  provider: scripted
  script:
    name: scripted
    turns:
{turns}      - text: done
tools:
  - {{name: ask, description: Asks., question: {{prompt: May I?, schema: {{type: boolean}}}}}}
  - {{name: charge, description: Charges., shell: echo charged >> ledger.txt, in_doubt: never}}
"
    )
}

/// Number of times it charged.
pub fn ledger(place: &Place) -> usize {
    lines(&place.path("ledger.txt")).len()
}
