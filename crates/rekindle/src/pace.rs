//! The pace of looks at a store: frequent after something was found, seldom while nothing is.

use std::time::Duration;

/// Intervals between looks: the first is `least`, and each fruitless look doubles it up to `most`.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least, most: most.max(least), next: least }
    }

    /// The time until the next look.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Nothing was found: the look after the next comes later.
    pub(crate) fn slow_down(&mut self) {
        self.next = self.next.saturating_mul(2).min(self.most);
    }

    /// Something was found, and more may follow soon.
    pub(crate) fn quicken(&mut self) {
        self.next = self.least;
    }

    /// Waits until the next look, which is taken to be fruitless unless [`Pace::quicken`] says otherwise.
    pub(crate) async fn pause(&mut self) {
        tokio::time::sleep(self.next).await;
        self.slow_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fruitless_looks_become_seldom() {
        let check = |least: u64, most: u64, expected: &[u64]| {
            let mut pace = Pace::new(Duration::from_millis(least), Duration::from_millis(most));
            for expected in expected {
                assert_eq!(pace.next(), Duration::from_millis(*expected));
                pace.slow_down();
            }
            pace.quicken();
            assert_eq!(pace.next(), Duration::from_millis(least));
        };
        check(250, 4_000, &[250, 500, 1_000, 2_000, 4_000, 4_000]);
        check(300, 1_000, &[300, 600, 1_000, 1_000]);
        check(250, 0, &[250, 250]);
    }
}
