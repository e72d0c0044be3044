//! Runs a target: what failed before, the valid encodings as they are, then random inputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

use crate::effort::Effort;
use crate::input::{Input, Material, inputs};
use crate::memory::peak;
use crate::regressions;
use crate::watch::Watch;

/// Memory any decode may use: small tables, buffers of fixed size.
const CONSTANT: u64 = 2 << 20;
/// Memory for each byte of input. A JSON object of seven bytes becomes a tree node of six hundred.
const FACTOR: u64 = 256;
/// Cases between two looks at the clock.
const BATCH: u32 = 200;

/// The answer of a target: whether the input was accepted. A valid encoding must be.
pub trait Verdict {
    /// Returns whether the input was accepted.
    fn is_accepted(&self) -> bool;
}

/// No statement.
impl Verdict for () {
    fn is_accepted(&self) -> bool {
        true
    }
}

impl Verdict for bool {
    fn is_accepted(&self) -> bool {
        *self
    }
}

impl<T> Verdict for Option<T> {
    fn is_accepted(&self) -> bool {
        self.is_some()
    }
}

impl<T, E> Verdict for Result<T, E> {
    fn is_accepted(&self) -> bool {
        self.is_ok()
    }
}

/// A fuzz target under construction.
#[must_use = "nothing happens before `bytes` or `text`"]
pub struct Fuzz {
    name: &'static str,
    folder: PathBuf,
    material: Material,
    constant: u64,
    factor: u64,
    effort: Effort,
}

impl Fuzz {
    /// A target with its regression files in `folder`, under its name.
    pub fn new(name: &'static str, folder: impl AsRef<Path>) -> Self {
        Self {
            name,
            folder: folder.as_ref().to_owned(),
            material: Material::default(),
            constant: CONSTANT,
            factor: FACTOR,
            effort: Effort::from_environment(),
        }
    }

    /// Adds valid encodings to mutate.
    pub fn seeds<B: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = B>) -> Self {
        self.material.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Adds pieces that mean something to the decoder, such as names of fields.
    pub fn words<B: Into<Vec<u8>>>(mut self, words: impl IntoIterator<Item = B>) -> Self {
        self.material.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets a function that makes mutated inputs pass the first checks, such as a checksum. A part of the inputs
    /// stays unrepaired.
    pub fn repair(mut self, repair: fn(&mut Vec<u8>)) -> Self {
        self.material.repair = Some(repair);
        self
    }

    /// Sets the limit of memory: `constant` bytes and `factor` for each byte of the input.
    pub fn memory(mut self, constant: u64, factor: u64) -> Self {
        (self.constant, self.factor) = (constant, factor);
        self
    }

    /// Divides the number of cases: each costs as much as `times` cases of other targets.
    pub fn costly(mut self, times: u32) -> Self {
        self.effort.cases = self.effort.cases.div_ceil(times.max(1));
        self
    }

    /// Sets how much is done, in place of what the environment says.
    pub fn effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Runs `target` on text; bytes that are not UTF-8 are replaced.
    ///
    /// # Panics
    ///
    /// As [`Fuzz::bytes`].
    #[track_caller]
    pub fn text<V: Verdict>(self, target: impl Fn(&str) -> V) {
        self.bytes(|bytes| target(&String::from_utf8_lossy(bytes)).is_accepted());
    }

    /// Runs `target`, which panics on what must not be and says what it accepts.
    ///
    /// # Panics
    ///
    /// If the target panics or uses too much memory, after the input was shrunk and kept; if a valid encoding is
    /// not accepted.
    #[track_caller]
    pub fn bytes<V: Verdict>(mut self, target: impl Fn(&[u8]) -> V) {
        if self.effort.target.as_ref().is_some_and(|wanted| !self.name.contains(wanted.as_str())) {
            return;
        }
        let known = regressions::all(&self.folder, self.name);
        let material = Arc::new(std::mem::take(&mut self.material));
        let watch = Watch::start(self.name, &self.folder);
        let once = |input: &[u8]| {
            watch.begin(input);
            let result = self.once(input, &target);
            watch.end();
            result
        };
        for (path, input) in known {
            if let Err(reason) = once(&input) {
                panic!("fuzz target `{}` fails again on {}: {reason}", self.name, path.display());
            }
        }
        for seed in &material.seeds {
            let refused = |accepted| if accepted { Ok(()) } else { Err("it is not accepted".to_owned()) };
            if let Err(reason) = once(seed).and_then(refused) {
                panic!("fuzz target `{}` fails on a valid encoding {:?}: {reason}", self.name, Input(seed.clone()));
            }
        }
        self.random(material, once);
    }

    fn once<V: Verdict>(&self, input: &[u8], target: &impl Fn(&[u8]) -> V) -> Result<bool, String> {
        if let Some(trace) = &self.effort.trace {
            std::fs::write(trace, input).map_err(|error| format!("{}: {error}", trace.display()))?;
        }
        let (result, peak) = peak(|| catch_unwind(AssertUnwindSafe(|| target(input).is_accepted())));
        let accepted = result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
        })?;
        let limit = self.constant + self.factor * input.len() as u64;
        match peak {
            Some(peak) if peak > limit => {
                Err(format!("used {peak} bytes of memory for an input of {}; the limit is {limit}", input.len()))
            }
            _ => Ok(accepted),
        }
    }

    #[track_caller]
    fn random(&self, material: Arc<Material>, once: impl Fn(&[u8]) -> Result<bool, String>) {
        let begun = Instant::now();
        let mut left = self.effort.cases;
        let strategy = inputs(material);
        let config = |cases: u32| Config {
            cases,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(self.effort.seed),
            max_shrink_iters: 4_000,
            ..Config::default()
        };
        let mut numbers = TestRunner::new(config(0));
        loop {
            let more = match self.effort.time {
                Some(time) => begun.elapsed() < time,
                None => left > 0,
            };
            if !more {
                return;
            }
            // A runner is done after its cases; the next one goes on with other random numbers.
            let cases = if self.effort.time.is_some() { BATCH } else { BATCH.min(left) };
            left = left.saturating_sub(BATCH);
            let mut runner = TestRunner::new_with_rng(config(cases), numbers.new_rng());
            let tried = runner.run(&strategy, |input| once(&input.0).map(drop).map_err(TestCaseError::fail));
            match tried {
                Ok(()) => {}
                Err(TestError::Fail(reason, input)) => self.fail(reason.message(), &input),
                Err(TestError::Abort(reason)) => panic!("fuzz target `{}`: {reason}", self.name),
            }
        }
    }

    #[track_caller]
    fn fail(&self, reason: &str, input: &Input) -> ! {
        let path = regressions::keep(&self.folder, self.name, &input.0);
        panic!(
            "fuzz target `{}`: {reason}\n  input: {input:?}\n  kept in {} and tried first from now on\n  found with REKINDLE_FUZZ_SEED={}",
            self.name,
            path.display(),
            self.effort.seed
        );
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    use super::*;

    #[global_allocator]
    static ALLOCATOR: crate::Counting = crate::Counting;

    fn failure(work: impl FnOnce()) -> String {
        let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    fn target(folder: &tempfile::TempDir) -> Fuzz {
        Fuzz::new("example", folder.path()).effort(Effort { cases: 1_000, ..Effort::default() })
    }

    #[test]
    fn what_fails_is_shrunk_kept_and_tried_first() {
        let folder = tempfile::tempdir().unwrap();
        let sick = |text: &str| assert!(!text.contains("18446744073709551616"), "too large");
        let run = || target(&folder).seeds([r#"{"n":17,"list":[1,2,3]}"#]);
        let found = failure(|| run().text(sick));
        assert!(found.contains("too large") && found.contains("REKINDLE_FUZZ_SEED=24301"), "{found}");
        let kept = regressions::all(folder.path(), "example");
        assert_eq!(kept.len(), 1);
        assert!(kept[0].1.len() < 60, "{found}");
        let again = failure(|| run().effort(Effort { cases: 0, ..Effort::default() }).text(sick));
        assert!(again.contains("fails again") && again.contains("too large"), "{again}");
        run().text(|_| ());
    }

    #[test]
    fn memory_out_of_proportion_fails() {
        let folder = tempfile::tempdir().unwrap();
        let trusting = |bytes: &[u8]| {
            let len = bytes.first_chunk().map_or(0, |len| u32::from_le_bytes(*len) as usize);
            drop(std::hint::black_box(Vec::<u8>::with_capacity(len)));
        };
        let found = failure(|| target(&folder).seeds([[4, 0, 0, 0, 1, 2, 3, 4]]).bytes(trusting));
        assert!(found.contains("bytes of memory for an input of"), "{found}");
        let folder = tempfile::tempdir().unwrap();
        target(&folder).seeds([[4, 0, 0, 0, 1, 2, 3, 4]]).memory(5 << 30, 0).bytes(trusting);
    }

    #[test]
    fn a_valid_encoding_that_is_refused_fails() {
        let folder = tempfile::tempdir().unwrap();
        let found = failure(|| target(&folder).seeds(["x"]).bytes(|bytes| assert_ne!(bytes, b"x")));
        assert!(found.contains("valid encoding b\"x\""), "{found}");
        let found = failure(|| target(&folder).seeds(["x"]).text(|text| text.parse::<u8>()));
        assert!(found.contains("it is not accepted"), "{found}");
        target(&folder).seeds(["1"]).text(|text| text.parse::<u8>());
    }

    #[test]
    fn a_seed_gives_the_same_inputs_and_batches_give_others() {
        let folder = tempfile::tempdir().unwrap();
        let inputs = |seed: u64| {
            let seen = RefCell::new(Vec::new());
            let effort = Effort { cases: BATCH * 2, seed, ..Effort::default() };
            target(&folder).seeds(["[1,2,3]"]).effort(effort).bytes(|bytes| seen.borrow_mut().push(bytes.to_vec()));
            seen.into_inner()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        let (all, distinct) = (inputs(1), inputs(1).into_iter().collect::<BTreeSet<_>>());
        assert_eq!(all.len(), BATCH as usize * 2 + 1);
        assert!(distinct.len() > all.len() * 3 / 4, "{} of {}", distinct.len(), all.len());
    }

    #[test]
    fn only_the_wanted_targets_run() {
        let folder = tempfile::tempdir().unwrap();
        let runs = |wanted: &str| {
            let effort = Effort { cases: 1, target: Some(wanted.to_owned()), ..Effort::default() };
            let ran = Cell::new(false);
            target(&folder).effort(effort).bytes(|_| ran.set(true));
            ran.get()
        };
        assert_eq!((runs("exam"), runs("other")), (true, false));
    }

    #[test]
    fn repaired_inputs_get_past_a_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
        let passed = |fuzz: Fuzz| {
            let passed = Cell::new(0);
            fuzz.seeds(["?abcdef"]).bytes(|bytes| {
                passed.set(
                    passed.get() + usize::from(bytes.split_first().is_some_and(|(first, rest)| *first == sum(rest))),
                );
            });
            passed.get()
        };
        let repaired = target(&folder).repair(|bytes| {
            if let Some((first, rest)) = bytes.split_first_mut() {
                *first = rest.iter().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
            }
        });
        assert!(passed(target(&folder)) < 30);
        let passed = passed(repaired);
        assert!(passed > 300, "{passed}");
    }
}
