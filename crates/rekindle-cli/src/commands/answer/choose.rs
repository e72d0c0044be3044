//! Which wait is meant, and what is said to it.

use rekindle::operations::WaitView;
use rekindle::{Error, Result, SessionKey, WaitId};

use crate::app::App;
use crate::ui::fit;
use crate::words::{ids, next};

/// A wait and what is said to it, if anything is.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The wait.
    pub wait: WaitId,
    /// The answer.
    pub value: Option<String>,
}

/// Reads `[WAIT] [VALUE]`. A single word is the answer, unless it is surely a wait: it begins with
/// `wait_`, or a flag says what is answered.
pub fn choose(app: &App, session: &SessionKey, open: &[WaitView], words: &[&str], flags: bool) -> Result<Chosen> {
    let ids: Vec<&WaitId> = open.iter().map(|open| &open.opened.wait).collect();
    match words {
        [_, value] if flags => {
            Err(Error::invalid(format!("there are two answers: a flag and `{value}`")).hint("give one of them"))
        }
        [wait, value] => Ok(Chosen { wait: named(&ids, wait)?, value: Some((*value).to_owned()) }),
        [word] if flags || is_wait(&ids, word) => Ok(Chosen { wait: named(&ids, word)?, value: None }),
        [value] => Ok(Chosen { wait: only(app, session, open)?, value: Some((*value).to_owned()) }),
        _ => Ok(Chosen { wait: only(app, session, open)?, value: None }),
    }
}

fn is_wait(open: &[&WaitId], word: &str) -> bool {
    word.starts_with(WaitId::PREFIX) || open.iter().any(|id| id.as_str() == word)
}

/// The open wait that begins so. Another id is taken as it is: it may have been answered before.
fn named(open: &[&WaitId], word: &str) -> Result<WaitId> {
    let begins = |id: &&&WaitId| id.as_str().starts_with(word) || ids::bare(id.as_str()).starts_with(word);
    let found: Vec<_> = open.iter().filter(begins).collect();
    match found.as_slice() {
        _ if word.is_empty() => WaitId::new(word),
        [only] => Ok((**only).clone()),
        [] => WaitId::new(word),
        several => {
            let names: Vec<_> = several.iter().map(|id| id.as_str()).collect();
            Err(Error::invalid(format!("`{word}` is the beginning of {} waits: {}", names.len(), names.join(", ")))
                .hint("write more of the id you mean"))
        }
    }
}

/// The only open wait.
fn only(app: &App, session: &SessionKey, open: &[WaitView]) -> Result<WaitId> {
    match open {
        [only] => Ok(only.opened.wait.clone()),
        [] => {
            let line = next::line(app, ["waits"]);
            Err(Error::not_found("the session waits for nothing")
                .on(session)
                .hint(format!("`{line}` lists what waits")))
        }
        several => {
            let told = |open: &WaitView| format!("{} ({})", open.opened.wait, fit(&open.opened.prompt, 40));
            let names: Vec<_> = several.iter().map(told).collect();
            let line = next::line(app, ["answer", session.id.as_str(), several[0].opened.wait.as_str()]);
            let message = format!("the session waits for {} answers: {}", names.len(), names.join(", "));
            Err(Error::invalid(message).on(session).hint(format!("name the one you mean: `{line}`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_of_waits_are_found() {
        let open = [WaitId::new("wait_01ab").unwrap(), WaitId::new("wait_01cd").unwrap()];
        let open: Vec<&WaitId> = open.iter().collect();
        let check = |word: &str, expected: Option<&str>| {
            assert_eq!(named(&open, word).ok().as_ref().map(WaitId::as_str), expected, "{word}");
        };
        check("wait_01a", Some("wait_01ab"));
        check("01c", Some("wait_01cd"));
        check("01", None);
        check("wait_older", Some("wait_older"));
        check("", None);
    }

    #[test]
    fn an_answer_is_not_taken_for_a_wait() {
        let open = [WaitId::new("wait_01ab").unwrap()];
        let open: Vec<&WaitId> = open.iter().collect();
        assert!(!is_wait(&open, "01"));
        assert!(!is_wait(&open, "yes"));
        assert!(is_wait(&open, "wait_0"));
    }
}
