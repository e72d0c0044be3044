//! Damage, as a note beside what can still be read.

use rekindle::SessionKey;
use rekindle::core::{Damage, DamageKind};

use super::next;
use crate::app::App;
use crate::ui::{printable, style};

/// Number of places that are named.
const MOST: usize = 5;

/// Says what of a session cannot be read, and how to find out more. Unfinished writes that were cut off are none of it.
pub fn note(app: &App, session: &SessionKey, damage: &[Damage]) {
    tell(app, session, damage, "what it shows may not be the last there was");
}

/// Names a session of a list whose damage the store noticed.
pub fn listed(app: &App, session: &SessionKey, damage: &[Damage]) {
    if let Some(damage) = damage.iter().find(|damage| damage.kind != DamageKind::Torn) {
        let (warn, reset, id) = (style::WARN, style::RESET, printable(session.id.as_str()));
        app.ui.note(format!("{warn}damaged:{reset} {id}: {}", printable(&damage.detail)));
    }
}

/// Says what a new branch does not know of the one it was forked from.
pub fn lost(app: &App, session: &SessionKey, damage: &[Damage]) {
    tell(app, session, damage, "calls that may have been begun there are in doubt on the new branch");
}

fn tell(app: &App, session: &SessionKey, damage: &[Damage], meaning: &str) {
    let damage: Vec<&Damage> = damage.iter().filter(|damage| damage.kind != DamageKind::Torn).collect();
    let Some(_) = damage.first() else { return };
    for damage in damage.iter().take(MOST) {
        app.ui.note(format!("{}damaged:{} {}", style::WARN, style::RESET, printable(&place(damage))));
    }
    if damage.len() > MOST {
        app.ui.note(format!("and {} more", damage.len() - MOST));
    }
    let verify = next::line(app, ["verify", session.id.as_str()]);
    app.ui.note(format!("{}note:{} {meaning}; all damage: {}", style::WARN, style::RESET, printable(&verify)));
}

fn place(damage: &Damage) -> String {
    let at = damage.position();
    match damage.first == damage.last {
        true => format!("{at}: {}", damage.detail),
        false => format!("{at} to {}: {}", damage.last, damage.detail),
    }
}
