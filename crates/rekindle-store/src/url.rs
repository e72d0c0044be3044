//! Store URLs for people: without what nobody should read over a shoulder.

/// Parameters whose values are secrets.
const SECRET_WORDS: &[&str] = &["password", "secret", "token", "key", "credential", "sas", "signature"];

/// A store URL as it may be shown and logged: passwords and secret parameters are `***`.
///
/// ```
/// use rekindle_store::shown_url;
/// assert_eq!(shown_url("postgres://me:pass@db/app?schema=x"), "postgres://me:***@db/app?schema=x");
/// assert_eq!(shown_url("sqlite:./a.db"), "sqlite:./a.db");
/// ```
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    if matches!(scheme, "file" | "sqlite" | "objects" | "memory") {
        return url.to_owned();
    }
    // A password with a `#` or `?` that was not encoded: better to hide too much.
    if let Some((_, host)) = rest.split_once(['#', '?']).and_then(|(_, behind)| behind.rsplit_once('@')) {
        return format!("{scheme}://***@{host}");
    }
    let (address, query) = rest.split_once('?').map_or((rest, None), |(address, query)| (address, Some(query)));
    let address = match address.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:***@{host}"),
            None => format!("{user}@{host}"),
        },
        None => address.to_owned(),
    };
    match query {
        Some(query) => format!("{scheme}://{address}?{}", shown_query(query)),
        None => format!("{scheme}://{address}"),
    }
}

fn shown_query(query: &str) -> String {
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::shown_url;

    #[test]
    fn secrets_are_hidden_wherever_they_stand() {
        for (url, shown) in [
            ("postgres://u:p@h/d", "postgres://u:***@h/d"),
            ("postgres://u:p@ss@h/d", "postgres://u:***@h/d"),
            ("postgres://u@h/d?password=x&schema=y", "postgres://u@h/d?password=***&schema=y"),
            ("redis://:p@h:1/0", "redis://:***@h:1/0"),
            (
                "s3://bucket/prefix?aws_secret_access_key=abc&region=eu",
                "s3://bucket/prefix?aws_secret_access_key=***&region=eu",
            ),
            ("postgres://u:p#x@h/d", "postgres://***@h/d"),
            ("sqlite:///a@b:c/x.db", "sqlite:///a@b:c/x.db"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(shown_url(url), shown, "{url}");
        }
    }
}
