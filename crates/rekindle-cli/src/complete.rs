//! What a shell is offered when somebody presses Tab. It looks quickly, changes nothing, and says
//! nothing if it fails.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use rekindle::core::codec::Codec;
use rekindle::{Journal, Namespace, SessionInfo, SessionQuery};
use rekindle_store::{SystemClock, system_ids};

use crate::cli::{Colour, Global};
use crate::settings::{Refused, Settings};
use crate::ui;

/// How many sessions are offered.
const OFFERED: usize = 50;
/// How long a person waits for them.
const PATIENCE: Duration = Duration::from_millis(800);
/// How many columns of a title are shown.
const TITLE: usize = 40;

/// The command line with sessions offered wherever one is meant.
pub fn offering(command: clap::Command) -> clap::Command {
    let means_session = |argument: &clap::Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().any(|name| *name == "SESSION" || *name == "MOMENT")
    };
    let command = command.mut_args(|argument| match means_session(&argument) {
        true => argument.add(ArgValueCandidates::new(sessions)),
        false => argument,
    });
    command.mut_subcommands(offering)
}

/// The latest sessions, with what each is doing.
fn sessions() -> Vec<CompletionCandidate> {
    let (sender, found) = mpsc::channel();
    // A store that does not answer keeps its thread, not the shell.
    std::thread::spawn(move || sender.send(look(&words()).unwrap_or_default()));
    let found = found.recv_timeout(PATIENCE).unwrap_or_default();
    let found = found.iter().filter(|info| is_plain(info.header.key.id.as_str()));
    found.enumerate().map(|(order, info)| candidate(order, info)).collect()
}

/// Returns whether a shell takes an id for nothing but text: it is put on the line as it is.
fn is_plain(id: &str) -> bool {
    !id.starts_with('-') && id.chars().all(|c| c.is_alphanumeric() || "_.:@%+,/-".contains(c))
}

fn candidate(order: usize, info: &SessionInfo) -> CompletionCandidate {
    let mut help = info.status().to_string();
    if let Some(title) = &info.header.title {
        help = format!("{help}: {}", ui::fit(title, TITLE));
    }
    let candidate = CompletionCandidate::new(info.header.key.id.as_str());
    candidate.help(Some(help.into())).display_order(Some(order))
}

fn look(words: &[String]) -> Option<Vec<SessionInfo>> {
    let settings = Settings::load(&global(words), Refused::Fail).ok()?;
    let url = settings.store_url();
    // Nobody has a secret looked up, or a server that needs one asked, because of a Tab.
    let store = rekindle_store::open(&url, settings.options_without_secrets(&url)?).ok()?;
    // Without keys, titles that are encrypted are missing.
    let journal = Journal::new(store, Codec::new(), Arc::new(SystemClock), system_ids().ok()?);
    let namespace =
        settings.namespace().map_or_else(|| Some(Namespace::default()), |name| Namespace::new(name).ok())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let query = SessionQuery::new(namespace).with_limit(OFFERED);
    Some(runtime.block_on(journal.list(&query)).ok()?.sessions)
}

/// The words on the line so far, behind the name of the program.
fn words() -> Vec<String> {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.by_ref().find(|word| word == "--");
    words.skip(1).collect()
}

/// The flags on the line that say where sessions are.
fn global(words: &[String]) -> Global {
    let value = |flag: &str| {
        let joined = format!("{flag}=");
        let place = words.iter().position(|word| word == flag || word.starts_with(&joined))?;
        match words[place].strip_prefix(&joined) {
            Some(value) => Some(value.to_owned()),
            None => words.get(place + 1).cloned(),
        }
    };
    Global {
        store: value("--store"),
        namespace: value("--namespace"),
        config: value("--config").or_else(|| std::env::var("REKINDLE_CONFIG").ok()).map(Into::into),
        configure: Vec::new(),
        json: false,
        color: Colour::Never,
        quiet: true,
        no_input: true,
        trust: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_a_shell_would_carry_out_are_not_offered() {
        for id in ["trip-42", "ses_01", "a.b:c@d", "größe"] {
            assert!(is_plain(id), "{id}");
        }
        for id in [
            "$(id)", "`id`", "a b", "a;b", "a|b", "a&b", "a>b", "'a", "\"a", "a\\b", "-x", "a*", "~a", "!x", "#x",
            "a{b}", "a?",
        ] {
            assert!(!is_plain(id), "{id}");
        }
    }

    #[test]
    fn flags_on_the_line_count() {
        let words = ["resume", "--store", "sqlite:a.db", "--namespace=team", "tr"].map(str::to_owned);
        let global = global(&words);
        assert_eq!((global.store.as_deref(), global.namespace.as_deref()), (Some("sqlite:a.db"), Some("team")));
        assert!(super::global(&["--store".to_owned()]).store.is_none());
    }
}
