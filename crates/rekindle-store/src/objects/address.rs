//! From a URL and settings to an object service.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Once};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::{BackoffConfig, Error as ServiceError, ObjectStore, RetryConfig};
use rekindle_core::{Error, ErrorKind, Result};

use super::backend::Objects;
use super::failure::detail;
use super::local::LocalTurn;
use super::remote::Remote;
use crate::options::StoreOptions;
use crate::url::shown_url;

/// The schemes of object storage.
pub(crate) const SCHEMES: &[&str] = &["objects", "s3", "gs", "az"];

/// The service a URL names, and whether it is a directory of this machine.
pub(super) fn connect(url: &str, options: &StoreOptions) -> Result<(Arc<dyn Objects>, bool)> {
    let shown = shown_url(url);
    let during = |error: Error| error.during("open bucket");
    match url.split_once(':') {
        Some(("objects", path)) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            let service = directory(path, options).map_err(during)?;
            let local = Some(LocalTurn::new(path.into()));
            Ok((Arc::new(Remote { service, prefix: String::new(), shown, sorted: false, local }), true))
        }
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
            let address = Address::parse(rest, options).ok_or_else(|| {
                let hint = format!("write {scheme}://bucket/prefix");
                during(Error::invalid(format!("`{shown}` does not name a bucket")).hint(hint))
            })?;
            let service = address.service(scheme).map_err(|error| during(wrong_setting(&shown, &error)))?;
            Ok((Arc::new(Remote { service, prefix: address.prefix, shown, sorted: true, local: None }), false))
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

fn directory(path: &str, options: &StoreOptions) -> Result<Arc<dyn ObjectStore>> {
    if path.is_empty() || path.contains('\0') {
        return Err(Error::invalid("the URL names no directory").hint("write objects:./dir"));
    }
    let made = match options.create && !options.read_only {
        true => std::fs::create_dir_all(path),
        false => std::fs::metadata(path).map(drop),
    };
    let failed = |error: String| {
        let kind = if options.create { ErrorKind::StoreUnavailable } else { ErrorKind::NotFound };
        Error::new(kind, format!("the directory {path} cannot be used")).because(error)
    };
    made.map_err(|error| failed(error.to_string()))?;
    let service = LocalFileSystem::new_with_prefix(path).map_err(|error| failed(detail(&error)))?;
    Ok(Arc::new(service.with_fsync(true)))
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

    fn service(&self, scheme: &str) -> Result<Arc<dyn ObjectStore>, ServiceError> {
        install_tls();
        Ok(match scheme {
            "s3" => {
                let mut builder = AmazonS3Builder::new().with_retry(retries());
                for (key, value) in self.configuration::<AmazonS3ConfigKey>()? {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build()?)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::new().with_retry(retries());
                for (key, value) in self.configuration::<GoogleConfigKey>()? {
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build()?)
            }
            _ => {
                let mut builder = MicrosoftAzureBuilder::new().with_retry(retries());
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
        let given = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        standing.chain(given).map(|(name, value)| Ok((name.parse()?, value))).collect()
    }
}

const STANDING: &[(&str, &str)] = &[
    ("connect_timeout", "5 seconds"),
    ("timeout", "60 seconds"),
    ("proxy_url", "http://127.0.0.1:1"),
    ("proxy_excludes", "*,0.0.0.0/0,::/0"),
];

fn retries() -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(50), max_backoff: Duration::from_secs(3), base: 2.0 };
    RetryConfig { backoff, max_retries: 6, retry_timeout: Duration::from_secs(60) }
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
