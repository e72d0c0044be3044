//! Which wait is meant, and what is said to it.

use rekindle::operations::OpenWait;
use rekindle::{BranchId, Error, Result, SessionKey, WaitId};

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
    /// The branch it stands on, if no id says which wait is meant.
    pub branch: Option<BranchId>,
}

/// Reads `[WAIT] [VALUE]`. A single word is the answer, unless it is surely a wait: it begins with
/// `wait_`, or a flag says what is answered.
pub fn choose(app: &App, session: &SessionKey, open: &[OpenWait], words: &[&str], flags: bool) -> Result<Chosen> {
    let mut ids: Vec<&WaitId> = open.iter().map(|open| &open.wait.opened.wait).collect();
    // A branch and a fork of it may wait for the same.
    ids.sort();
    ids.dedup();
    let by_id = |wait, value| Chosen { wait, value, branch: None };
    let only = |value| {
        let open = only(app, session, open)?;
        Ok(Chosen { wait: open.wait.opened.wait.clone(), value, branch: Some(open.branch.clone()) })
    };
    match words {
        [_, value] if flags => {
            Err(Error::invalid(format!("there are two answers: a flag and `{value}`")).hint("give one of them"))
        }
        [wait, value] => Ok(by_id(named(&ids, wait)?, Some((*value).to_owned()))),
        [word] if flags || is_wait(&ids, word) => Ok(by_id(named(&ids, word)?, None)),
        [value] => only(Some((*value).to_owned())),
        _ => only(None),
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
fn only<'a>(app: &App, session: &SessionKey, open: &'a [OpenWait]) -> Result<&'a OpenWait> {
    match open {
        [only] => Ok(only),
        [] => {
            let line = next::line(app, ["waits"]);
            Err(Error::not_found("the session waits for nothing")
                .on(session)
                .hint(format!("`{line}` lists what waits")))
        }
        several => {
            let told = |open: &OpenWait| {
                let on = if open.current { String::new() } else { format!(" on branch {}", open.branch) };
                format!("{}{on} ({})", open.wait.opened.wait, fit(&open.wait.opened.prompt, 40))
            };
            let names: Vec<_> = several.iter().map(told).collect();
            let mut words = vec!["answer", session.id.as_str(), several[0].wait.opened.wait.as_str()];
            if several.iter().any(|open| !open.current) {
                words.extend(["--branch", several[0].branch.as_str()]);
            }
            let line = next::line(app, words);
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
