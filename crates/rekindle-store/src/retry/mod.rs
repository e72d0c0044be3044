//! Repeating requests: one policy, whichever store makes them. Object storage repeats each request; stores on a server
//! repeat calls ([`RetryStore`]).

#[cfg(any(feature = "postgres", feature = "redis"))]
mod store;

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rekindle_core::{Error, ErrorKind, Result, Retries};
use tokio::time::Instant;

#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use self::store::RetryStore;
#[cfg(any(feature = "postgres", feature = "redis"))]
use crate::options::StoreOptions;

/// When a request that failed is made again: with growing pauses, at most so often, and for so long. The time is well
/// within the default lease of an engine, so that an owner that repeats a request still is the owner afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    attempts: u32,
    first_pause: Duration,
    longest_pause: Duration,
    /// From the first attempt to the beginning of the last.
    total: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 20,
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(1),
            total: Duration::from_secs(6),
        }
    }
}

/// The settings of a policy, in URLs and in [`StoreOptions`](crate::StoreOptions).
pub(crate) const SETTINGS: [&str; 2] = ["retry_attempts", "retry_for"];

impl RetryPolicy {
    /// Applies what `setting` says under the names in `SETTINGS`.
    pub(crate) fn configured(mut self, setting: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let wrong = |name: &str, text: &str, like: &str| {
            Error::invalid(format!("`{}` cannot be `{name}`", text.escape_debug())).hint(format!("write e.g. {like}"))
        };
        if let Some(text) = setting("retry_for") {
            self.total = duration(&text).ok_or_else(|| wrong("retry_for", &text, "retry_for=6s"))?;
        }
        if let Some(text) = setting("retry_attempts") {
            let attempts = text.parse().ok().filter(|attempts| *attempts > 0);
            self.attempts = attempts.ok_or_else(|| wrong("retry_attempts", &text, "retry_attempts=20"))?;
        }
        Ok(self)
    }

    /// Takes what a URL and its options say; returns the URL without it. Options win.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn take(url: &str, options: &mut StoreOptions) -> Result<(String, Self)> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let ours = |part: &&str| SETTINGS.iter().find(|name| part.split('=').next() == Some(**name)).copied();
        let (mine, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(|part| ours(part).is_some());
        let in_url = |name: &str| {
            let value = mine.iter().rev().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
            value.map(str::to_owned)
        };
        let policy = Self::default().configured(|name| options.settings.get(name).cloned().or_else(|| in_url(name)))?;
        options.settings.retain(|name, _| !SETTINGS.contains(&name.as_str()));
        let others = others.join("&");
        Ok((if others.is_empty() { address.to_owned() } else { format!("{address}?{others}") }, policy))
    }

    /// The pause before the attempt behind `attempts`, at `elapsed`; nothing if there is to be none.
    fn pause(&self, attempts: u32, elapsed: Duration, random: u64) -> Option<Duration> {
        if attempts >= self.attempts {
            return None;
        }
        let grown = self.first_pause.saturating_mul(1 << (attempts - 1).min(16)).min(self.longest_pause);
        // Spread, so that clients that failed together do not come back together.
        let pause = grown.mul_f64(0.75 + (random % 512) as f64 / 1024.0);
        (elapsed + pause <= self.total).then_some(pause)
    }
}

/// A policy at work: makes requests again, and counts them.
#[derive(Debug)]
pub(crate) struct Retrying {
    policy: RetryPolicy,
    random: RandomState,
    seen: Mutex<Retries>,
}

impl Retrying {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, random: RandomState::new(), seen: Mutex::default() }
    }

    /// Makes a request until it succeeds, fails for a reason that does not pass, or was tried for long enough; the error
    /// then says how often and how long.
    pub(crate) async fn run<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (began, mut attempts) = (Instant::now(), 1);
        loop {
            let error = match request().await {
                Err(error) if *error.kind() == ErrorKind::StoreUnavailable => error,
                other => return other,
            };
            let random = self.random.hash_one((attempts, began.elapsed()));
            let Some(pause) = self.policy.pause(attempts, began.elapsed(), random) else {
                return Err(tried(error, attempts, began.elapsed()));
            };
            self.note(&error);
            tokio::time::sleep(pause).await;
            attempts += 1;
        }
    }

    /// The requests that were made again so far.
    pub(crate) fn seen(&self) -> Retries {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, error: &Error) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests += 1;
        seen.last = Some(format!("{error:#}"));
    }
}

fn tried(error: Error, attempts: u32, elapsed: Duration) -> Error {
    match attempts {
        1 => error,
        _ => error.adding(format!("tried {attempts} times in {:.1} s", elapsed.as_secs_f64())),
    }
}

/// A duration of a setting: a number with `ms`, `s` or `m`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn pauses_grow_within_limits() {
        let policy = RetryPolicy::default();
        let check = |attempts, elapsed, random, expected: Option<u64>| {
            let pause = policy.pause(attempts, Duration::from_millis(elapsed), random);
            assert_eq!(pause.map(|pause| pause.as_millis() as u64), expected, "{attempts} {elapsed} {random}");
        };
        check(1, 0, 256, Some(50));
        check(1, 0, 0, Some(37));
        check(1, 0, 511, Some(62));
        check(3, 0, 256, Some(200));
        check(19, 0, 256, Some(1_000));
        check(20, 0, 256, None);
        check(6, 5_000, 256, Some(1_000));
        check(6, 5_001, 256, None);
    }

    #[test]
    fn durations_of_settings() {
        for (text, expected) in [
            ("6s", Some(6_000)),
            ("250ms", Some(250)),
            ("2 m", Some(120_000)),
            ("0s", Some(0)),
            ("6", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("6 hours", None),
        ] {
            assert_eq!(duration(text), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn settings_of_a_policy() {
        let with = |name: &'static str, value: &str| {
            RetryPolicy::default().configured(|wanted| (wanted == name).then(|| value.to_owned()))
        };
        assert_eq!(with("retry_for", "9s").unwrap().total, Duration::from_secs(9));
        assert_eq!(with("retry_attempts", "3").unwrap(), RetryPolicy { attempts: 3, ..RetryPolicy::default() });
        for (name, value) in [("retry_for", "soon"), ("retry_attempts", "0"), ("retry_attempts", "x")] {
            assert_eq!(*with(name, value).unwrap_err().kind(), ErrorKind::Invalid, "{name} {value}");
        }
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    #[test]
    fn what_a_url_says_of_repetitions_is_taken_out_of_it() {
        let check = |url: &str, without: &str, seconds, attempts| {
            let (rest, policy) = RetryPolicy::take(url, &mut StoreOptions::new()).unwrap();
            assert_eq!((rest.as_str(), policy.total.as_secs(), policy.attempts), (without, seconds, attempts), "{url}");
        };
        check("redis://h", "redis://h", 6, 20);
        check("redis://h?retry_for=9s", "redis://h", 9, 20);
        check("redis://h?a=b&retry_attempts=3&retry_for=1m&retry_form=x", "redis://h?a=b&retry_form=x", 60, 3);
        let mut options = StoreOptions::new().with_setting("retry_for", "2s").with_setting("password", "p");
        let (_, policy) = RetryPolicy::take("redis://h?retry_for=9s", &mut options).unwrap();
        assert_eq!((policy.total.as_secs(), options.settings.len()), (2, 1));
        assert!(RetryPolicy::take("redis://h?retry_for=soon", &mut StoreOptions::new()).is_err());
    }

    /// Fails so often with an error of that kind; the result, the attempts, and what is told of them.
    async fn after(failures: u32, kind: ErrorKind) -> (Result<u32>, u32, Retries) {
        let (retrying, calls) = (Retrying::new(RetryPolicy::default()), AtomicU32::new(0));
        let result = retrying
            .run(|| async {
                match calls.fetch_add(1, Ordering::SeqCst) {
                    call if call < failures => Err(Error::new(kind.clone(), "no")),
                    call => Ok(call),
                }
            })
            .await;
        (result, calls.into_inner(), retrying.seen())
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_repeated_and_counted() {
        let (result, calls, seen) = after(4, ErrorKind::StoreUnavailable).await;
        assert_eq!((result.unwrap(), calls, seen.requests), (4, 5, 4));
        assert!(seen.last.is_some_and(|last| last.contains("no")));
        let (result, calls, seen) = after(1, ErrorKind::NotFound).await;
        assert_eq!((result.unwrap_err().kind(), calls, seen), (&ErrorKind::NotFound, 1, Retries::default()));
        // May pass later, but not within seconds, and is no fault of the way there.
        let (result, calls, _) = after(1, ErrorKind::PersistFailed).await;
        assert_eq!((result.unwrap_err().kind(), calls), (&ErrorKind::PersistFailed, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_says_how_often_and_how_long_it_was_tried() {
        let began = Instant::now();
        let (result, calls, _) = after(u32::MAX, ErrorKind::StoreUnavailable).await;
        assert!(began.elapsed() <= RetryPolicy::default().total);
        let message = result.unwrap_err().to_string();
        assert!(calls > 5 && message.contains(&format!("tried {calls} times in ")), "{message}");
    }
}
