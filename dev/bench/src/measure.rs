//! Medians, and how two things are measured fairly on a machine that is never quiet.

use std::time::Duration;

use crate::Result;

/// How many samples to take: `each` of the floor, then `each` of the figure, `rounds` times.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// How often both take turns.
    pub rounds: usize,
    /// How many samples one turn takes.
    pub each: usize,
}

/// The medians of a figure and of its floor, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Of the floor.
    pub floor: f64,
    /// Of the figure.
    pub figure: f64,
}

impl Rounds {
    /// Samples both in turns, so that whatever disturbs the machine disturbs both. The first
    /// turn of each warms up and does not count.
    pub async fn compare(
        self,
        mut floor: impl AsyncFnMut() -> Result<Duration>,
        mut figure: impl AsyncFnMut() -> Result<Duration>,
    ) -> Result<Compared> {
        let (mut floors, mut figures) = (Vec::new(), Vec::new());
        for round in 0..=self.rounds {
            for _ in 0..self.each {
                floors.push(microseconds(floor().await?));
            }
            for _ in 0..self.each {
                figures.push(microseconds(figure().await?));
            }
            if round == 0 {
                floors.clear();
                figures.clear();
            }
        }
        Ok(Compared { floor: median(&floors), figure: median(&figures) })
    }
}

/// A duration in microseconds.
pub fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The middle value; the mean of both if there are two; not a number if there is none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(upper) if sorted.len().is_multiple_of(2) => (sorted[middle - 1] + upper) / 2.0,
        Some(value) => *value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], expected: f64) {
        assert_eq!(median(values).to_bits(), expected.to_bits(), "{values:?}");
    }

    #[test]
    fn medians_ignore_outliers() {
        check(&[], f64::NAN);
        check(&[3.0], 3.0);
        check(&[1.0, 2.0], 1.5);
        check(&[9_000.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 3.0, 2.0], 2.5);
    }

    #[test]
    fn both_take_turns_and_the_first_turn_does_not_count() {
        let order = std::cell::RefCell::new(String::new());
        let sample = |name, micros| {
            order.borrow_mut().push(name);
            Ok(Duration::from_micros(micros))
        };
        let compare = Rounds { rounds: 1, each: 2 }.compare(async || sample('a', 10), async || sample('b', 20));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let compared = runtime.block_on(compare).unwrap();
        assert_eq!(order.into_inner(), "aabbaabb");
        assert_eq!((compared.floor.round(), compared.figure.round()), (10.0, 20.0));
    }
}
