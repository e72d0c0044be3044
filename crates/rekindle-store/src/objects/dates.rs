//! The service's time as its answers tell it: every answer carries a date, so that learning the time takes no
//! request of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use rekindle_core::Timestamp;

use super::clock::Started;

/// The date of an answer, and when it was asked for and came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dated {
    pub(super) before: Started,
    pub(super) after: Started,
    pub(super) date: Timestamp,
}

/// The last date that a service told.
#[derive(Clone, Debug, Default)]
pub(super) struct Dates(Arc<Mutex<Option<Dated>>>);

impl Dates {
    pub(super) fn last(&self) -> Option<Dated> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, dated: Dated) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(dated);
    }
}

/// Connects as the client would by itself, and takes note of dates.
#[derive(Debug)]
pub(super) struct DatedConnector {
    pub(super) dates: Dates,
    /// The host of the service, or how it ends: keys may come from other hosts.
    pub(super) host: String,
}

impl HttpConnector for DatedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(DatedService { client, dates: self.dates.clone(), host: self.host.clone() }))
    }
}

#[derive(Debug)]
struct DatedService {
    client: HttpClient,
    dates: Dates,
    host: String,
}

/// Returns true if a host is the service, or a bucket of it.
fn is_service(service: &str, host: Option<&str>) -> bool {
    host.is_some_and(|host| host == service || host.strip_suffix(service).is_some_and(|rest| rest.ends_with('.')))
}

#[async_trait]
impl HttpService for DatedService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (before, asked) = (Started::now(), is_service(&self.host, request.uri().host()));
        let response = self.client.execute(request).await?;
        // A gateway that answers in place of the service has a time of its own.
        let answered = asked && !response.status().is_server_error();
        let date = response.headers().get("date").filter(|_| answered);
        if let Some(date) = date.and_then(|date| parse(date.to_str().ok()?)) {
            self.dates.note(Dated { before, after: Started::now(), date });
        }
        Ok(response)
    }
}

fn parse(date: &str) -> Option<Timestamp> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_answers_are_read() {
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:05 GMT"), Some(Timestamp(5_000_000)));
        assert_eq!(parse("Wed, 31 Dec 1969 23:59:59 GMT"), None);
        assert_eq!(parse("yesterday"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn only_the_service_tells_the_time() {
        for (host, expected) in [("h", true), ("bucket.h", true), ("xh", false), ("sts.h.org", false), ("", false)] {
            assert_eq!(is_service("h", Some(host)), expected, "{host}");
        }
        assert!(!is_service("h", None));
    }

    #[test]
    fn fuzzed_dates() {
        let seeds = ["Tue, 17 Nov 2026 04:29:19 GMT", "Tuesday, 17-Nov-26 04:29:19 GMT"];
        rekindle_fuzz::fuzz!("object-date").seeds(seeds).text(parse);
    }
}
