//! The program itself, its configuration, the clock, the disk and the terminal.

use std::path::{Path, PathBuf};

use rekindle::{Clock as _, Timestamp};
use rekindle_store::SystemClock;

use super::Check;
use crate::app::App;
use crate::ui::time;

/// Below this a disk is as good as full.
const FULL: u64 = 64_000_000;
/// Below this somebody should look.
const LOW: u64 = 1_000_000_000;

pub fn version() -> Check {
    let (arch, system) = (std::env::consts::ARCH, std::env::consts::OS);
    Check::good("version", format!("rekindle {} on {arch}-{system}", env!("CARGO_PKG_VERSION")))
}

pub fn configuration(app: &App) -> Check {
    let shown = |path: &PathBuf| match app.settings.is_trusted(path) {
        true => format!("{} (trusted)", path.display()),
        false => path.display().to_string(),
    };
    let files: Vec<_> = app.settings.files().iter().map(shown).collect();
    let strange = app.settings.strange_variables();
    if !strange.is_empty() {
        let names: Vec<_> = strange.iter().map(|name| format!("${name}")).collect();
        let says = format!("{} in the environment is no key", names.join(", "));
        return Check::warning("configuration", says, "`rekindle config keys` lists the variables there are");
    }
    match files.is_empty() {
        true if !app.settings.refused().is_empty() => Check::good("configuration", "none is used"),
        true => Check::good("configuration", "no rekindle.toml; everything as usual"),
        false => Check::good("configuration", files.join(", ")),
    }
}

/// Configuration files that were found and are not used.
pub fn refused(app: &App) -> Vec<Check> {
    let refused = app.settings.refused().iter();
    refused.map(|error| Check::bad("trust", error.message(), error.next_step())).collect()
}

pub fn clock() -> Check {
    let now = SystemClock.now();
    // 2025-01-01 and 2100-01-01.
    let (from, to) = (Timestamp(1_735_689_600_000_000), Timestamp(4_102_444_800_000_000));
    match now >= from && now < to {
        true => Check::good("clock", time::short(now)),
        false => Check::bad(
            "clock",
            format!("it is hardly {}", time::short(now)),
            "set the clock: ids and leases depend on it",
        ),
    }
}

pub fn disk(app: &App) -> Option<Check> {
    let place = place(&app.settings.store_url())?;
    let folder = place.ancestors().find(|folder| folder.is_dir())?.to_owned();
    let found = match rustix::fs::statvfs(&folder) {
        Ok(found) => found,
        Err(error) => {
            let says = format!("nothing is known of the disk of {}: {error}", folder.display());
            return Some(Check::warning("disk", says, "look at it yourself: df -h ."));
        }
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let says = format!("{} free where the store is", time::bytes(free));
    Some(match free {
        ..FULL => Check::bad("disk", says, "free some space: nothing can be stored without it"),
        FULL..LOW => Check::warning("disk", says, "free some space; `rekindle prune --all` says what could go"),
        LOW.. => Check::good("disk", says),
    })
}

/// The file or directory of a store that has one.
pub fn place(url: &str) -> Option<PathBuf> {
    let (scheme, path) = url.split_once(':')?;
    let path = path.strip_prefix("//").unwrap_or(path);
    matches!(scheme, "sqlite" | "file" | "objects").then(|| std::path::absolute(Path::new(path)).ok()).flatten()
}

pub fn terminal(app: &App) -> Check {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let lower = locale.to_lowercase();
    let colour = if app.ui.has_colour() { "colour" } else { "no colour" };
    let says = match app.ui.is_watched() {
        true => format!("{} columns, {colour}", app.ui.width()),
        false => format!("not on a terminal, {colour}"),
    };
    if lower.contains("utf-8") || lower.contains("utf8") {
        return Check::good("terminal", format!("{says}, UTF-8"));
    }
    let locale = if locale.is_empty() { "no locale is set".to_owned() } else { format!("the locale is {locale}") };
    Check::warning("terminal", format!("{says}; {locale}"), "if signs look wrong: export LANG=C.UTF-8")
}
