//! The providers of models: whether their keys are set and, if asked, whether they can be reached.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::Check;

/// How long a provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A provider: its name, the variable of its key, that of its URL, and its usual host.
const PROVIDERS: [(&str, &str, &str, Option<&str>); 4] = [
    ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", Some("api.openai.com:443")),
    ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", Some("api.anthropic.com:443")),
    ("openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", Some("openrouter.ai:443")),
    ("azure", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", None),
];

pub async fn checks(online: bool) -> Vec<Check> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let with_key: Vec<_> = PROVIDERS.into_iter().filter(|(_, key, ..)| is_set(key)).collect();
    let mut checks = Vec::new();
    let names: Vec<_> = with_key.iter().map(|(_, key, ..)| *key).collect();
    checks.push(match names.is_empty() {
        true => {
            let keys: Vec<_> = PROVIDERS.iter().map(|(_, key, ..)| *key).collect();
            let to_do =
                format!("for a real model export one of {}; scripted and local ones need none", keys.join(", "));
            Check::warning("keys", "no provider's key is in the environment", to_do)
        }
        false => Check::good("keys", format!("{} set", names.join(", "))),
    });
    if online {
        for (name, _, url, usual) in with_key {
            let host = std::env::var(url).ok().and_then(|url| host(&url)).or_else(|| usual.map(str::to_owned));
            checks.push(match host {
                Some(host) => reach(name, host).await,
                None => Check::warning(
                    "online",
                    format!("{name}: nothing says where it is"),
                    format!("export {url}=https://…"),
                ),
            });
        }
    }
    checks
}

async fn reach(name: &str, host: String) -> Check {
    let tried = host.clone();
    let connecting = tokio::task::spawn_blocking(move || connect(&tried));
    let problem = match tokio::time::timeout(PATIENCE * 2, connecting).await {
        Ok(Ok(Ok(()))) => return Check::good("online", format!("{name} answers at {host}")),
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_)) | Err(_) => "no answer".to_owned(),
    };
    Check::bad(
        "online",
        format!("{name} cannot be reached at {host}: {problem}"),
        "check the network, a proxy or the URL",
    )
}

fn connect(host: &str) -> std::io::Result<()> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The host and port of a URL.
fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?.rsplit('@').next().filter(|host| !host.is_empty())?;
    let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Some(if has_port { host.to_owned() } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn hosts_are_found_in_urls() {
        let check = |url: &str, expected: Option<&str>| assert_eq!(host(url).as_deref(), expected, "{url}");
        check("https://api.example.com/v1", Some("api.example.com:443"));
        check("http://127.0.0.1:8080/v1?x=1", Some("127.0.0.1:8080"));
        check("http://name:secret@host", Some("host:80"));
        check("http://[::1]:99/", Some("[::1]:99"));
        check("nonsense", None);
        check("http://", None);
    }
}
