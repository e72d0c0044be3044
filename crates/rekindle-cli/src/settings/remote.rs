//! What services are told beside a URL: the usual variables of clouds, and passwords.

/// The variables each kind of object storage is known by.
const VARIABLES: &[(&str, &[&str])] = &[
    (
        "s3",
        &[
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ALLOW_HTTP",
        ],
    ),
    ("gs", &["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY"]),
    (
        "az",
        &[
            "AZURE_STORAGE_ACCOUNT_NAME",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "AZURE_STORAGE_CLIENT_ID",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_STORAGE_TENANT_ID",
        ],
    ),
];

/// The settings of a service, from the environment.
pub fn service_settings(url: &str, variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let names = VARIABLES.iter().find(|(scheme, _)| *scheme == scheme_of(url)).map_or(&[][..], |(_, names)| names);
    let said = |name: &&str| Some((name.to_lowercase(), variable(name).filter(|value| !value.is_empty())?));
    names.iter().filter_map(said).collect()
}

/// Whether a store has a server that asks for a password.
pub fn takes_password(url: &str) -> bool {
    matches!(scheme_of(url), "postgres" | "postgresql" | "redis" | "rediss")
}

/// Returns true if a store is a bucket of a service.
pub fn is_bucket(url: &str) -> bool {
    matches!(scheme_of(url), "s3" | "gs" | "az")
}

/// Whether a store is on another machine, as far as its URL says.
pub fn is_remote(url: &str) -> bool {
    takes_password(url) || is_bucket(url)
}

fn scheme_of(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_told_what_is_its_own() {
        let variable = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" | "GOOGLE_SERVICE_ACCOUNT" => Some("x".to_owned()),
            "AWS_REGION" => Some(String::new()),
            _ => None,
        };
        let of = |url| service_settings(url, variable);
        assert_eq!(of("s3://bucket"), [("aws_access_key_id".to_owned(), "x".to_owned())]);
        assert_eq!(of("gs://bucket"), [("google_service_account".to_owned(), "x".to_owned())]);
        for url in ["az://bucket", "sqlite:a.db", "postgres://h/d", "nonsense"] {
            assert!(of(url).is_empty(), "{url}");
        }
        assert!(takes_password("rediss://h") && !takes_password("s3://b") && is_remote("s3://b"));
        assert!(!is_remote("objects:./dir"));
    }
}
