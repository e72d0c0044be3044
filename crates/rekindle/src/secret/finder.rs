//! Finds secrets in texts, in every form and in one pass.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::forms;

/// The shortest match inside a longer number that counts: a shorter one is chance.
const IN_NUMBER: usize = 8;

/// The longest secret that stands in one line in hex: `xxd -p` writes 60 digits to a line.
const LONGEST_IN_LINE: usize = 29;

/// Finds a set of secrets.
pub(crate) struct Finder {
    automaton: AhoCorasick,
    patterns: Vec<Pattern>,
    /// The texts that are looked for, in order.
    sorted: Vec<String>,
    longest: usize,
    /// True if a secret is so long that programs break it into lines when they encode it.
    wraps: bool,
}

struct Pattern {
    name: Arc<str>,
    /// True if it is the secret as it is.
    plain: bool,
}

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) name: &'a str,
    /// True if it stands there as it is, not encoded.
    pub(crate) plain: bool,
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finder").field("patterns", &self.patterns.len()).finish_non_exhaustive()
    }
}

impl Finder {
    /// Finds these secrets, named; nothing if there are none.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (&'a Arc<str>, &'a str)>) -> Option<Self> {
        let (mut patterns, mut texts, mut wraps) = (Vec::new(), Vec::new(), false);
        for (name, secret) in secrets {
            wraps |= secret.len() > LONGEST_IN_LINE;
            for (number, form) in forms::of(secret).into_iter().enumerate() {
                patterns.push(Pattern { name: Arc::clone(name), plain: number == 0 });
                texts.push(form);
            }
        }
        // Memory grows with what is looked for, not with the alphabet.
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&texts);
        let longest = texts.iter().map(String::len).max()?;
        texts.sort_unstable();
        Some(Self { automaton: built.ok()?, patterns, sorted: texts, longest, wraps })
    }

    /// Returns the place from which the end of a text may be the beginning of a secret; its length if none is.
    pub(crate) fn held_from(&self, text: &str) -> usize {
        let is_beginning = |end: &str| {
            let next = self.sorted.partition_point(|form| form.as_str() <= end);
            self.sorted.get(next).is_some_and(|form| form.starts_with(end))
        };
        let first = (text.len() + 1).saturating_sub(self.longest);
        let mut starts = (first..text.len()).filter(|at| text.is_char_boundary(*at));
        starts.find(|at| is_beginning(&text[*at..])).unwrap_or(text.len())
    }

    /// Returns whether a secret stands in it.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.automaton.is_match(text) || !self.wrapped(text).is_empty()
    }

    /// The places of encoded secrets that were broken into lines, as programs do with base64 and hex. Line ends may
    /// be escaped, as inside of JSON.
    fn wrapped(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        if !self.wraps || !text.contains(['\n', '\\']) {
            return Vec::new();
        }
        let (mut joined, mut places, mut at) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len()), 0);
        let bytes = text.as_bytes();
        while let Some(byte) = bytes.get(at) {
            match (byte, bytes.get(at + 1)) {
                (b'\n' | b'\r', _) => at += 1,
                (b'\\', Some(b'n' | b'r')) => at += 2,
                _ => {
                    joined.push(*byte);
                    places.push(at);
                    at += 1;
                }
            }
        }
        let found = self.automaton.find_iter(&joined).filter_map(|found| {
            let (start, last) = (places[found.start()], places[found.end() - 1]);
            let pattern = &self.patterns[found.pattern().as_usize()];
            let broken = last - start != found.len() - 1;
            (broken && !pattern.plain).then(|| (start..last + 1, &*pattern.name))
        });
        found.collect()
    }

    /// The secrets in a text, from its beginning.
    pub(crate) fn matches<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Match<'a>> {
        self.automaton.find_iter(text).map(|found| {
            let Pattern { name, plain } = &self.patterns[found.pattern().as_usize()];
            Match { start: found.start(), end: found.end(), name, plain: *plain }
        })
    }

    /// The text with the names of secrets in place of their values, if there is any in it.
    pub(crate) fn replaced(&self, text: &str) -> Option<String> {
        let mut cleaned = String::new();
        let mut behind = 0;
        for found in self.matches(text) {
            cleaned.push_str(&text[behind..found.start]);
            cleaned.push_str(&mask(found.name));
            behind = found.end;
        }
        let cleaned = (behind > 0).then(|| cleaned + &text[behind..]);
        let wrapped = self.wrapped(cleaned.as_deref().unwrap_or(text));
        if wrapped.is_empty() {
            return cleaned;
        }
        let text = cleaned.as_deref().unwrap_or(text);
        let (mut unwrapped, mut behind) = (String::new(), 0);
        for (range, name) in wrapped {
            unwrapped.push_str(&text[behind..range.start]);
            unwrapped.push_str(&mask(name));
            behind = range.end;
        }
        Some(unwrapped + &text[behind..])
    }

    /// The same for a number, as it is written.
    pub(crate) fn replaced_number(&self, number: &str) -> Option<String> {
        let counts = |found: Match<'_>| {
            let digits = found.end - found.start;
            digits >= IN_NUMBER || digits == number.trim_start_matches('-').len()
        };
        self.matches(number).any(counts).then(|| self.replaced(number)).flatten()
    }
}

/// Returns the text that stands for a secret.
pub(crate) fn mask(name: &str) -> String {
    format!("[secret {name}]")
}

/// A name that may stand in a mask.
pub(crate) fn plain_name(name: &str) -> Arc<str> {
    let plain: String = name.chars().filter(|c| !c.is_control() && !"\"\\[]".contains(*c)).take(128).collect();
    Arc::from(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_secrets_are_found_across_lines() {
        let secret: String = (0..100).map(|n| char::from(b'a' + n % 26)).collect();
        let finder = Finder::new([(&plain_name("key"), secret.as_str())]).unwrap();
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let lines = |width: usize, end: &str| {
            let lines: Vec<&str> =
                hex.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
            format!("before\n{}{end}behind", lines.join(end))
        };
        for (width, end) in [(60, "\n"), (76, "\r\n"), (60, "\\n")] {
            let text = lines(width, end);
            assert!(finder.is_in(&text), "{text}");
            assert_eq!(finder.replaced(&text).unwrap(), format!("before\n[secret key]{end}behind"));
        }
        let twice = lines(60, "\n").repeat(2);
        assert_eq!(finder.replaced(&twice).unwrap().matches("[secret key]").count(), 2);
        assert_eq!(finder.replaced("before\nbehind"), None);
    }

    #[test]
    fn secrets_are_replaced_by_their_names() {
        let (api, pin) = (plain_name("api"), plain_name("pin"));
        let finder = Finder::new([(&api, "hunter2hunter2"), (&pin, "1234"), (&pin, "hunter2")]).unwrap();
        let check = |text: &str, expected: Option<&str>| assert_eq!(finder.replaced(text).as_deref(), expected);
        check("nothing", None);
        check("a hunter2hunter2 b hunter2", Some("a [secret api] b [secret pin]"));
        check("Basic YTpodW50ZXIyaHVudGVyMg==", Some("Basic YTp[secret api]g=="));
        check("", None);
        let number = |text: &str, expected: Option<&str>| {
            assert_eq!(finder.replaced_number(text).as_deref(), expected, "{text}");
        };
        number("1234", Some("[secret pin]"));
        number("-1234", Some("-[secret pin]"));
        number("91234.5", None);
        assert!(Finder::new([]).is_none());
    }
}
