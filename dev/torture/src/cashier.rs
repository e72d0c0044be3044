//! What the commands run: an agent in a file. It pays once a person agrees or time is up, and ships
//! with a program that books only after a while, when the process that started it may be gone.

use std::path::{Path, PathBuf};

use rekindle::{Json, SessionKey};

use crate::Result;

/// The agent.
pub const CASHIER: &str = "cashier";
/// The queue of its jobs: other workers do not know it.
pub const QUEUE: &str = "cashiers";
/// The tool that needs consent.
pub const PAY: &str = "pay";

/// The books are a file for each session, as those of the other subjects; the fence is not known here.
const FILE: &str = r#"
name: cashier
model:
  provider: scripted
  name: script
  script:
    turns:
      - calls: [{name: pay, arguments: {what: rent}}]
      - calls: [{name: ship, arguments: {what: goods}}]
      - text: done
tools:
  - name: pay
    description: Pays, if a person agrees or says nothing in time.
    parameters: {what: string}
    shell: echo "pay 0 $REKINDLE_IDEMPOTENCY_KEY" >> "BOOKS/$(basename "$REKINDLE_SESSION")"; sleep 0.05; echo paid
    output: text
    approval: {prompt: Pay?, expires_after: 3s, approve_on_expiry: ON_EXPIRY}
    check_command: [sh, -c, 'grep -q "$0" "BOOKS/$(basename "$1")" || exit 3', "${idempotency_key}", "${session}"]
  - name: ship
    description: Ships, and books it late.
    parameters: {what: string}
    shell: sleep 0.4; echo "ship 0 $REKINDLE_IDEMPOTENCY_KEY" >> "BOOKS/$(basename "$REKINDLE_SESSION")"; echo shipped
    output: text
    check_command: [sh, -c, 'grep -q "$0" "BOOKS/$(basename "$1")" || exit 3', "${idempotency_key}", "${session}"]
on_wait: suspend
"#;

/// The files of the agent: one pays if nobody answers in time, the other does not.
#[derive(Clone, Debug)]
pub struct Files([PathBuf; 2]);

impl Files {
    /// Writes them.
    pub fn write(directory: &Path, books: &Path) -> Result<Self> {
        let books = books.to_str().ok_or("the path of the books is not UTF-8")?;
        let write = |on_expiry: &str| -> Result<PathBuf> {
            let path = directory.join(format!("cashier-{on_expiry}.yaml"));
            std::fs::write(&path, FILE.replace("BOOKS", books).replace("ON_EXPIRY", on_expiry))?;
            Ok(path)
        };
        Ok(Self([write("true")?, write("false")?]))
    }

    /// What the session of that number remembers of its file.
    pub fn definition(&self, number: usize) -> Result<Json> {
        Ok(Json::of(&serde_json::json!({"file": self.0[number % 2]}))?)
    }
}

/// Whether a session belongs to it.
pub fn is_cashier(session: &SessionKey) -> bool {
    session.id.as_str().starts_with(CASHIER)
}
