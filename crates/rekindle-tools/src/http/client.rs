//! The HTTP client: which redirects it follows, and how its errors read.

use std::error::Error as _;
use std::sync::Once;

use rekindle::{Error, Result};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Url};

/// How many redirects are followed.
const REDIRECTS: usize = 5;

/// A client that leaves neither the host nor what whoever composes the program has said.
pub(crate) fn client() -> Result<Client> {
    static PROVIDER: Once = Once::new();
    // Whoever has chosen a provider before keeps it.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let client = Client::builder().no_proxy().redirect(Policy::custom(|attempt| {
        let follows = attempt.previous().len() <= REDIRECTS && stays(&attempt);
        if follows { attempt.follow() } else { attempt.stop() }
    }));
    client.build().map_err(|error| Error::invalid("the HTTP client cannot be made").because(error))
}

/// Whether a redirect leads to where the request went: secrets go no further.
fn stays(attempt: &Attempt<'_>) -> bool {
    let origin = |url: &Url| url.origin();
    attempt.previous().first().is_some_and(|first| origin(first) == origin(attempt.url()))
}

/// An error of a client with its causes. URLs stay out of it: they may be long and hold anything.
pub(super) fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
