//! What tokens cost.

use rekindle::core::record::Usage;
use rekindle::{Error, Result};

/// What a model costs, in units of a currency for a million tokens.
///
/// ```
/// use rekindle_models::Price;
///
/// let price = Price::per_million(2.50, 10.00).cached_input(0.25).cache_write(3.125);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    input: f64,
    output: f64,
    cached_input: f64,
    cache_write: f64,
}

impl Price {
    /// The price of a million tokens sent and of a million received.
    pub fn per_million(input: f64, output: f64) -> Self {
        Self { input, output, cached_input: input, cache_write: input }
    }

    /// The price of a million tokens that the provider had in its cache. Without it, that of input.
    #[must_use]
    pub fn cached_input(mut self, price: f64) -> Self {
        self.cached_input = price;
        self
    }

    /// The price of a million tokens that the provider put into its cache. Without it, that of input.
    #[must_use]
    pub fn cache_write(mut self, price: f64) -> Self {
        self.cache_write = price;
        self
    }

    pub(crate) fn checked(self) -> Result<Self> {
        let all = [self.input, self.output, self.cached_input, self.cache_write];
        match all.into_iter().find(|price| !price.is_finite() || *price < 0.0) {
            None => Ok(self),
            Some(price) => Err(Error::invalid(format!("{price} is not a price")).hint("give a number from 0 up")),
        }
    }
}

/// What an answer used, as far as a provider tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tokens {
    /// All that was sent, with what came from the cache or went into it.
    pub(crate) input: u64,
    /// What of it came from the provider's cache.
    pub(crate) cached: u64,
    /// What of it went into the provider's cache.
    pub(crate) cache_written: u64,
    pub(crate) output: u64,
    /// What the provider itself says it cost.
    pub(crate) cost: Option<f64>,
}

impl Tokens {
    /// As the journal keeps it. Without a price the cost is what the provider says, or nothing.
    pub(crate) fn usage(self, price: Option<Price>) -> Usage {
        let cost_micros = match (price, self.cost) {
            (Some(price), _) => self.cost_micros(price),
            (None, Some(cost)) => whole(cost * 1e6),
            (None, None) => 0,
        };
        Usage { input_tokens: self.input, output_tokens: self.output, cost_micros }
    }

    fn cost_micros(self, price: Price) -> u64 {
        let fresh = self.input.saturating_sub(self.cached).saturating_sub(self.cache_written);
        // A unit for a million tokens is a millionth for one.
        let of = |tokens: u64, price: f64| tokens as f64 * price;
        let input = of(fresh, price.input) + of(self.cached, price.cached_input);
        whole(input + of(self.cache_written, price.cache_write) + of(self.output, price.output))
    }
}

fn whole(micros: f64) -> u64 {
    // The cast saturates, and takes what is not a number for 0.
    micros.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: Tokens, price: Option<Price>, expected: u64) {
        assert_eq!(tokens.usage(price).cost_micros, expected, "{tokens:?} {price:?}");
    }

    #[test]
    fn tokens_are_priced_by_where_they_came_from() {
        let tokens = Tokens { input: 1000, cached: 600, cache_written: 100, output: 50, cost: Some(0.5) };
        check(tokens, Some(Price::per_million(2.0, 10.0)), 2500);
        check(tokens, Some(Price::per_million(2.0, 10.0).cached_input(0.5).cache_write(4.0)), 600 + 300 + 400 + 500);
        check(tokens, None, 500_000);
        check(Tokens { cost: None, ..tokens }, None, 0);
        check(Tokens { cached: 5000, ..tokens }, Some(Price::per_million(2.0, 0.0).cached_input(0.0)), 200);
        check(Tokens { cost: Some(f64::NAN), ..tokens }, None, 0);
    }

    #[test]
    fn what_is_no_price_is_refused() {
        assert!(Price::per_million(0.0, 1.5).checked().is_ok());
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Price::per_million(1.0, 1.0).cached_input(wrong).checked().is_err(), "{wrong}");
        }
    }
}
