//! `rekindle verify --receipt`: receipts of erased sessions, and what is left of those sessions.

use std::path::Path;

use rekindle::core::{DamageKind, Receipt, VerifyReport};
use rekindle::{Engine, Error, ErrorKind};
use serde_json::json;

use crate::app::{Access, App};
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::{printable, style};

/// The most of a file of receipts that is read.
const MAX_BYTES: u64 = 64 << 20;

/// Checks every receipt of a file: its signature and, if the session is still in the store, that it is the one
/// the receipt tells of, whole and in order.
pub async fn run(app: &App, file: &Path) -> Outcome {
    let receipts = read(file)?;
    let engine = app.engine(Access::Existing)?;
    let (mut told, mut all_right) = (Vec::new(), true);
    for receipt in &receipts {
        let checked = check(&engine, receipt).await?;
        all_right &= checked.is_right();
        if app.ui.is_json() {
            told.push(json!({
                "session": receipt.session, "signed": checked.signed, "left": checked.left.is_some(),
                "differences": checked.left.as_deref().unwrap_or_default(),
            }));
        } else {
            checked.tell(app, receipt)?;
        }
    }
    if app.ui.is_json() {
        app.ui.json(&json!({"sound": all_right, "receipts": told}))?;
    }
    Ok(if all_right { Exit::Ok } else { Exit::Integrity })
}

struct Checked {
    /// Whether the signature fits; an unsigned receipt proves nothing.
    signed: bool,
    /// What is different about what is left of the session, if anything is left.
    left: Option<Vec<String>>,
}

impl Checked {
    fn is_right(&self) -> bool {
        self.signed && self.left.as_ref().is_none_or(Vec::is_empty)
    }

    fn tell(&self, app: &App, receipt: &Receipt) -> std::io::Result<()> {
        let (sign, colour) = if self.is_right() { ("✓", style::GOOD) } else { ("✗", style::BAD) };
        let (id, reset) = (printable(receipt.session.id.as_str()), style::RESET);
        let signed = if self.signed { "the signature fits" } else { "the signature does not fit" };
        let left = match &self.left {
            None => "nothing of it is in the store",
            Some(differences) if differences.is_empty() => "what is left in the store is whole and in order",
            Some(_) => "what is left in the store is not what was erased",
        };
        app.ui.line(format!("{colour}{sign}{reset} {id}, erased at {}: {signed}; {left}", receipt.erased_at))?;
        self.left.iter().flatten().try_for_each(|difference| app.ui.line(format!("  {}", printable(difference))))
    }
}

async fn check(engine: &Engine, receipt: &Receipt) -> Result<Checked, Error> {
    let journal = engine.journal();
    let signed = match journal.check_receipt(receipt) {
        Err(error) if *error.kind() == ErrorKind::Unverified => false,
        other => other?,
    };
    let info = match journal.open(&receipt.session).await {
        Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(Checked { signed, left: None }),
        other => other?,
    };
    let mut differences = journal.compare_with_receipt(&info, receipt).await;
    let seen = receipt.branches.iter().map(|told| (told.branch.clone(), told.head)).collect();
    differences.extend(broken(&journal.verify(&receipt.session, &seen).await?));
    Ok(Checked { signed, left: Some(differences) })
}

/// What is wrong besides that the key is gone.
fn broken(report: &VerifyReport) -> impl Iterator<Item = String> {
    let is_about_content = |kind| matches!(kind, DamageKind::Key | DamageKind::Torn);
    let found = report.damage.iter().filter(move |damage| !is_about_content(damage.kind));
    found.map(|damage| format!("{}: {}", damage.position(), damage.detail)).collect::<Vec<_>>().into_iter()
}

fn read(file: &Path) -> Result<Vec<Receipt>, Error> {
    let unreadable = |why: String| Error::invalid(format!("{} is no file of receipts: {why}", file.display()));
    let length = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?.len();
    if length > MAX_BYTES {
        return Err(Error::limit("bytes of a file of receipts", length, MAX_BYTES));
    }
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let receipts: Result<Vec<Receipt>, _> = lines.map(serde_json::from_str).collect();
    match receipts.map_err(|error| unreadable(error.to_string()))? {
        receipts if receipts.is_empty() => Err(unreadable("it is empty".to_owned())),
        receipts => Ok(receipts),
    }
}
