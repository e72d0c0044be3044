//! From a URL and settings to an object service.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::{Error as ServiceError, ObjectStore, RetryConfig};
use rekindle_core::{Error, ErrorKind, Result};

use super::backend::Objects;
use super::dates::{DatedConnector, Dates};
use super::failure::detail;
use super::local::LocalTurn;
use super::remote::Remote;
use super::retried::Retried;
use crate::options::StoreOptions;
use crate::private::Modes;
use crate::retry::{RetryPolicy, SETTINGS, duration};
use crate::url::shown_url;

/// The schemes of object storage.
pub(crate) const SCHEMES: &[&str] = &["objects", "s3", "gs", "az"];

/// An object service that a URL names.
pub(super) struct Connected {
    pub(super) objects: Arc<dyn Objects>,
    /// It is a directory of this machine.
    pub(super) is_local: bool,
    /// The dates of its answers.
    pub(super) dates: Dates,
}

/// The service a URL names.
pub(super) fn connect(url: &str, options: &StoreOptions) -> Result<Connected> {
    let shown = shown_url(url);
    let during = |error: Error| error.during("open bucket");
    match url.split_once(':') {
        Some(("objects", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let service = Arc::new(directory(path, options).map_err(during)?);
            let local = Some(LocalTurn::new(path.into(), service.clone()));
            let (prefix, patience) = (String::new(), None);
            let objects = Arc::new(Remote { service, prefix, shown, sorted: false, local, host: None, patience });
            Ok(Connected { objects, is_local: true, dates: Dates::default() })
        }
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
            let address = Address::parse(rest, options).ok_or_else(|| {
                let hint = format!("write {scheme}://bucket/prefix");
                during(Error::invalid(format!("`{shown}` does not name a bucket")).hint(hint))
            })?;
            let policy = address.policy().map_err(during)?;
            let patience = address.patience().map_err(during)?;
            let dates = Dates::default();
            let service = address.service(scheme, &dates).map_err(|error| during(wrong_setting(&shown, &error)))?;
            let host = Some(address.host(scheme));
            let remote = Remote { service, prefix: address.prefix, shown, sorted: true, local: None, host, patience };
            Ok(Connected { objects: Arc::new(Retried::new(remote, policy)), is_local: false, dates })
        }
        _ => {
            let hint = "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or objects:./dir";
            Err(during(Error::invalid(format!("`{shown}` is not the URL of a bucket")).hint(hint)))
        }
    }
}

fn wrong_setting(shown: &str, error: &ServiceError) -> Error {
    Error::invalid(format!("the settings of {shown} cannot be used")).because(detail(error))
}

fn directory(path: &str, options: &StoreOptions) -> Result<LocalFileSystem> {
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid("the URL names no directory").hint("write objects:./dir"));
    }
    let made = match options.create && !options.read_only {
        true => Modes::PRIVATE.create_dir_all(path.as_ref()),
        false => std::fs::metadata(path).map(drop),
    };
    let failed = |error: String| {
        let kind = if options.create { ErrorKind::StoreUnavailable } else { ErrorKind::NotFound };
        Error::new(kind, format!("the directory {path} cannot be used")).because(error)
    };
    made.map_err(|error| failed(error.to_string()))?;
    let service = LocalFileSystem::new_with_prefix(path).map_err(|error| failed(detail(&error)))?;
    Ok(service.with_fsync(true))
}

/// What a URL and the options say about a bucket.
struct Address {
    bucket: String,
    prefix: String,
    settings: BTreeMap<String, String>,
}

impl Address {
    fn parse(rest: &str, options: &StoreOptions) -> Option<Self> {
        let rest = rest.strip_prefix("//")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let parts: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let whole = |part: &&str| !part.starts_with('.') && part.bytes().all(legal);
        if bucket.is_empty() || !bucket.bytes().all(legal) || !parts.iter().all(whole) || rest.contains('#') {
            return None;
        }
        let mut settings = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=')?;
            settings.insert(name.to_ascii_lowercase(), decoded(value)?);
        }
        settings.extend(options.settings.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        let prefix = parts.iter().map(|part| format!("{part}/")).collect();
        Some(Self { bucket: bucket.to_owned(), prefix, settings })
    }

    /// When a request that failed is made again.
    fn policy(&self) -> Result<RetryPolicy> {
        RetryPolicy::default().configured(|name| self.settings.get(name).cloned())
    }

    /// The time a service has to answer a small request.
    fn patience(&self) -> Result<Option<Duration>> {
        let Some(text) = self.settings.get(PATIENCE) else { return Ok(Some(ANSWER_WITHIN)) };
        let wrong = || {
            let message = format!("`{}` cannot be `{PATIENCE}`", text.escape_debug());
            Error::invalid(message).hint(format!("write e.g. {PATIENCE}=5s"))
        };
        duration(text).map(Some).ok_or_else(wrong)
    }

    /// The host that answers, or how the hosts of all buckets end.
    fn service_host(&self, scheme: &str) -> String {
        let said = ENDPOINTS.iter().find_map(|name| self.settings.get(*name));
        let said = said.and_then(|said| Some(said.parse::<reqwest::Url>().ok()?.host_str()?.to_owned()));
        said.unwrap_or_else(|| match scheme {
            "s3" => "amazonaws.com".to_owned(),
            "gs" => "storage.googleapis.com".to_owned(),
            _ => "blob.core.windows.net".to_owned(),
        })
    }

    /// The service as people know it: where it was said to be, or the one the scheme stands for.
    fn host(&self, scheme: &str) -> String {
        let said = ENDPOINTS.iter().find_map(|name| self.settings.get(*name));
        match (said, scheme) {
            (Some(endpoint), _) => format!("the object service at {}", shown_url(endpoint)),
            (None, "s3") => "Amazon S3".to_owned(),
            (None, "gs") => "Google Cloud Storage".to_owned(),
            (None, _) => "Azure Blob Storage".to_owned(),
        }
    }

    fn service(&self, scheme: &str, dates: &Dates) -> Result<Arc<dyn ObjectStore>, ServiceError> {
        install_tls();
        let host = self.service_host(scheme);
        let connector = || DatedConnector { dates: dates.clone(), host: host.clone() };
        Ok(match scheme {
            "s3" => {
                let mut builder = AmazonS3Builder::new().with_retry(once()).with_http_connector(connector());
                for (key, value) in self.configuration::<AmazonS3ConfigKey>()? {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build()?)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::new().with_retry(once()).with_http_connector(connector());
                for (key, value) in self.configuration::<GoogleConfigKey>()? {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build()?)
            }
            _ => {
                let mut builder = MicrosoftAzureBuilder::new().with_retry(once()).with_http_connector(connector());
                for (key, value) in self.configuration::<AzureConfigKey>()? {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_container_name(&self.bucket).build()?)
            }
        })
    }

    fn configuration<K: FromStr<Err = ServiceError>>(&self) -> Result<Vec<(K, &str)>, ServiceError> {
        // A proxy that is used for no host at all: without one, the client would look for a proxy in the environment.
        let standing = match self.settings.contains_key("proxy_url") {
            true => &STANDING[..2],
            false => STANDING,
        };
        let standing = standing.iter().filter(|(name, _)| !self.settings.contains_key(*name)).copied();
        let ours = |name: &str| name == PATIENCE || SETTINGS.contains(&name);
        let given = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let given = given.filter(|(name, _)| !ours(name));
        standing.chain(given).map(|(name, value)| Ok((name.parse()?, value))).collect()
    }
}

/// The settings that say where a service is, by any of their names.
const ENDPOINTS: &[&str] = &[
    "endpoint",
    "endpoint_url",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_endpoint_url_s3",
    "azure_endpoint",
    "azure_storage_endpoint",
    "base_url",
    "google_base_url",
];

const STANDING: &[(&str, &str)] = &[
    ("connect_timeout", "5 seconds"),
    ("timeout", "60 seconds"),
    ("proxy_url", "http://127.0.0.1:1"),
    ("proxy_excludes", "*,0.0.0.0/0,::/0"),
];

/// The setting that says how long a service has to answer a small request, and its default.
const PATIENCE: &str = "answer_within";
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// None of its own: requests are made again in one place, see [`Retried`].
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// If a provider is installed already, that one is as good.
fn install_tls() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

/// A value of a query without its percent signs; nothing if they are wrong.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            other => *other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzzed_urls() {
        let seeds = ["//bucket/prefix?region=eu&endpoint=http%3A%2F%2Fh%3A9000", "//b"];
        rekindle_fuzz::fuzz!("object-url").seeds(seeds).words(["%2", "?", "&", "=", "/../"]).text(|text| {
            let _ = decoded(text);
            Address::parse(text, &StoreOptions::new()).map(drop)
        });
    }
}
