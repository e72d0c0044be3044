//! What can be set of a connection, and what is wrong with a setting.

use std::sync::Once;
use std::time::Duration;

use rekindle::{Error, Result, Secret};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Proxy, Url};

use super::Connection;
use crate::ApiKey;

/// What a builder gathers.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) base_url: String,
    pub(crate) key: Option<ApiKey>,
    /// What a provider wants with every request.
    pub(crate) standing: Vec<(&'static str, &'static str)>,
    /// Values may be secret, so they are treated as such.
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) query: Vec<(String, Secret)>,
    pub(crate) connect_timeout: Duration,
    pub(crate) silence: Duration,
    pub(crate) max_response_bytes: usize,
    /// It may hold a password.
    pub(crate) proxy: Option<Secret>,
}

impl Settings {
    pub(crate) fn new(base_url: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: None,
            standing: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(300),
            max_response_bytes: 32 << 20,
            proxy: None,
        }
    }

    /// A connection that sends the key in `key_header`, behind `key_prefix`.
    pub(crate) fn connect(self, key_header: &str, key_prefix: &str) -> Result<Connection> {
        let base = base_url(&self.base_url)?;
        let standing = self.standing.iter();
        let standing = standing.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers: HeaderMap = standing.collect();
        if let Some(key) = &self.key {
            let text = format!("{key_prefix}{}", key.secret().expose());
            let value = secret_value(&text, || format!("the key {}", key.label()))?;
            headers.insert(header_name(key_header)?, value);
        }
        for (name, value) in &self.headers {
            let value = secret_value(value.expose(), || format!("the value of the header `{name}`"))?;
            headers.insert(header_name(name)?, value);
        }
        let client = self.client()?;
        Ok(Connection::new(client, base, headers, self))
    }

    fn client(&self) -> Result<Client> {
        static PROVIDER: Once = Once::new();
        // If one is installed already, that one is as good.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let agent = concat!("rekindle/", env!("CARGO_PKG_VERSION"));
        // Never on to another place: the request carries the key. And no proxy from the environment.
        let mut builder = Client::builder().redirect(Policy::none()).no_proxy().user_agent(agent);
        if let Some(proxy) = &self.proxy {
            // The URL is not repeated: it may hold a password.
            let wrong = |_| Error::invalid("the URL of the proxy cannot be used").hint("write http://host:port");
            builder = builder.proxy(Proxy::all(proxy.expose()).map_err(wrong)?);
        }
        let client = builder.connect_timeout(self.connect_timeout).build();
        client.map_err(|error| Error::invalid(format!("no HTTP client can be made: {error}")))
    }
}

fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::try_from(name).map_err(|_| Error::invalid(format!("`{name}` is not the name of a header")))
}

fn secret_value(value: &str, what: impl Fn() -> String) -> Result<HeaderValue> {
    let mut header = HeaderValue::from_str(value).map_err(|_| {
        Error::invalid(format!("{} holds characters a header cannot have", what()))
            .hint("look for a line break at its end")
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// Checks a base URL and says what is wrong with it.
fn base_url(text: &str) -> Result<Url> {
    let hint = "write the URL of the server, e.g. https://api.openai.com/v1";
    let wrong = |what: String| Err(Error::invalid(format!("the base URL cannot be used: {what}")).hint(hint));
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return wrong(format!("{error}")),
    };
    if !matches!(url.scheme(), "http" | "https") {
        return wrong(format!("its scheme is `{}`, not http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("it holds a user or a password; give a key or a header instead".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("it holds a query or a fragment; give the query on its own".to_owned());
    }
    Ok(url)
}

/// The setters that builders of models share; a builder has a field `settings`, `price`, `extra` and
/// `files`.
macro_rules! shared_setters {
    () => {
        /// The server.
        #[must_use]
        pub fn base_url(mut self, url: impl Into<String>) -> Self {
            self.settings.base_url = url.into();
            self
        }

        /// The key. Without one none is sent.
        #[must_use]
        pub fn api_key(mut self, key: impl Into<$crate::ApiKey>) -> Self {
            self.settings.key = Some(key.into());
            self
        }

        /// One more header of every request. Its value is never shown.
        #[must_use]
        pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.settings.headers.push((name.into(), rekindle::Secret::new(value)));
            self
        }

        /// One more parameter in the query of every request.
        #[must_use]
        pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.settings.query.push((name.into(), rekindle::Secret::new(value)));
            self
        }

        /// One more field of the body of every request, or another value for one that is there; `null`
        /// takes the field out.
        #[must_use]
        pub fn extra(mut self, field: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
            self.extra.insert(field.into(), value.into());
            self
        }

        /// What it costs. Without a price the cost is what the server says, or 0.
        #[must_use]
        pub fn price(mut self, price: $crate::Price) -> Self {
            self.price = Some(price);
            self
        }

        /// How long to wait for a connection: 10 seconds unless set.
        #[must_use]
        pub fn connect_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.settings.connect_timeout = timeout;
            self
        }

        /// How long the server may be silent, before its answer and within it: 5 minutes unless set.
        #[must_use]
        pub fn silence_timeout(mut self, timeout: std::time::Duration) -> Self {
            self.settings.silence = timeout;
            self
        }

        /// The largest answer, in bytes: 32 MiB unless set.
        #[must_use]
        pub fn max_response_bytes(mut self, bytes: usize) -> Self {
            self.settings.max_response_bytes = bytes;
            self
        }

        /// The proxy to go through, e.g. `http://host:3128`. The environment is not asked for one.
        #[must_use]
        pub fn proxy(mut self, url: impl Into<String>) -> Self {
            self.settings.proxy = Some(rekindle::Secret::new(url));
            self
        }

        /// Lets messages show `file:` images and files that stand under `root`: they are read when a
        /// request is made, and sent with it. Without this such a message is an error.
        #[must_use]
        pub fn allow_files_under(mut self, root: impl Into<std::path::PathBuf>) -> Self {
            self.files = $crate::files::Files::under(root);
            self
        }
    };
}
pub(crate) use shared_setters;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let message = base_url(url).unwrap_err().to_string();
        assert!(message.contains(expected), "{url}: {message}");
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        check("", "relative URL");
        check("api.openai.com/v1", "relative URL");
        check("localhost:11434/v1", "scheme is `localhost`");
        check("ftp://example.com", "scheme is `ftp`");
        check("https://", "empty host");
        check("https://me:pw@example.com", "password");
        check("https://example.com?x=1", "query");
        assert!(base_url("http://localhost:11434/v1/").is_ok());
    }

    #[test]
    fn a_wrong_url_with_a_password_does_not_repeat_it() {
        assert!(!format!("{:?}", base_url("https://me:hunter2@example.com")).contains("hunter2"));
    }

    #[test]
    fn nothing_secret_is_shown_or_accepted_broken() {
        let mut settings = Settings::new("http://localhost");
        settings.key = Some(ApiKey::new(Secret::new("sk-123\n")).labelled("@file:key"));
        assert!(!format!("{settings:?}").contains("sk-123"));
        let error = settings.connect("authorization", "Bearer ").unwrap_err();
        assert_eq!(error.to_string(), "the key @file:key holds characters a header cannot have");
        let mut settings = Settings::new("http://localhost");
        settings.headers.push(("bad name".to_owned(), Secret::new("x")));
        assert!(settings.connect("authorization", "").unwrap_err().to_string().contains("bad name"));
    }
}
