//! URLs with references. A value stays in its segment or its query value: it can change neither the
//! host nor the shape of the path.

use rekindle::tool::ToolError;
use reqwest::Url;
use serde_json::Value;

use crate::checks::Faults;
use crate::template::{Piece, Template, Values, written};

/// A URL with references in its path and its query.
#[derive(Clone, Debug)]
pub(super) struct UrlTemplate {
    /// Scheme, host and port, with nothing to fill in.
    base: Url,
    segments: Vec<Vec<Piece>>,
    query: Vec<Piece>,
    parameters: Vec<(String, Template)>,
}

impl UrlTemplate {
    /// Reads a URL and further parameters.
    pub(super) fn build(
        faults: &mut Faults,
        text: &str,
        parameters: &[(String, String)],
        schema: &Value,
    ) -> Option<Self> {
        let template = faults.template("url", text, false, schema);
        let parameters = parameters
            .iter()
            .map(|(name, text)| (name.clone(), faults.template(&format!("query `{name}`"), text, false, schema)));
        let parameters = parameters.collect();
        match split(&template) {
            Ok((base, segments, query)) => Some(Self { base, segments, query, parameters }),
            Err(fault) => {
                faults.add(format!("url: {fault}"));
                None
            }
        }
    }

    /// The URL of a call.
    pub(super) fn fill(&self, values: &Values<'_>) -> Result<Url, ToolError> {
        let mut path = String::new();
        for segment in &self.segments {
            path.push('/');
            path.push_str(&fill_segment(segment, values)?);
        }
        let mut query = fill_pieces(&self.query, values)?;
        for (name, template) in &self.parameters {
            for value in parameter(template, values)? {
                let joint = if query.is_empty() { "" } else { "&" };
                query.push_str(&format!("{joint}{}={}", encoded(name), encoded(&value)));
            }
        }
        let mut url = self.base.clone();
        url.set_path(&path);
        url.set_query((!query.is_empty()).then_some(&query));
        // What the reader of URLs makes of it must be what was meant, whatever it knows of dots.
        let segments = url.path_segments().map_or(0, Iterator::count);
        if segments != self.segments.len().max(1) {
            return Err(ToolError::failed("an argument would change the path of the URL"));
        }
        Ok(url)
    }
}

type Split = (Url, Vec<Vec<Piece>>, Vec<Piece>);

/// Takes a URL apart: base, segments of the path, query.
fn split(template: &Template) -> Result<Split, String> {
    let Some(Piece::Text(start)) = template.pieces.first() else {
        return Err("it must begin with a scheme and a host, without references".to_owned());
    };
    let after_scheme = start.find("://").map(|at| at + 3).ok_or("it must begin with http:// or https://")?;
    let end = start[after_scheme..].find(['/', '?', '#']).map(|at| at + after_scheme);
    if end.is_none() && template.pieces.len() > 1 {
        return Err("references are allowed in its path and its query only".to_owned());
    }
    let end = end.unwrap_or(start.len());
    let base = base(&start[..end])?;
    let rest = [Piece::Text(start[end..].to_owned())].into_iter().chain(template.pieces[1..].iter().cloned());
    let (segments, query) = path_and_query(rest)?;
    Ok((base, segments, query))
}

fn base(text: &str) -> Result<Url, String> {
    let base: Url = text.parse().map_err(|error| format!("{error}"))?;
    if !matches!(base.scheme(), "http" | "https") {
        return Err("it must begin with http:// or https://".to_owned());
    }
    if !base.username().is_empty() || base.password().is_some() {
        return Err("it holds a user or a password; use a header with a secret".to_owned());
    }
    Ok(base)
}

fn path_and_query(pieces: impl Iterator<Item = Piece>) -> Result<(Vec<Vec<Piece>>, Vec<Piece>), String> {
    let (mut segments, mut query, mut in_query) = (Vec::new(), Vec::new(), false);
    for piece in pieces {
        match piece {
            Piece::Text(text) if text.contains('#') => return Err("it has a fragment, which is never sent".to_owned()),
            Piece::Text(text) if in_query => query.push(Piece::Text(text)),
            Piece::Text(text) => {
                let (path, rest) =
                    text.split_once('?').map_or((text.as_str(), None), |(path, rest)| (path, Some(rest)));
                for (index, part) in path.split('/').enumerate() {
                    if index > 0 {
                        segments.push(Vec::new());
                    }
                    if let (Some(segment), false) = (segments.last_mut(), part.is_empty()) {
                        segment.push(Piece::Text(part.to_owned()));
                    }
                }
                if let Some(rest) = rest {
                    in_query = true;
                    query.push(Piece::Text(rest.to_owned()));
                }
            }
            value if in_query => query.push(value),
            value => match segments.last_mut() {
                Some(segment) => segment.push(value),
                None => return Err("references are allowed in its path and its query only".to_owned()),
            },
        }
    }
    let dots = |segment: &Vec<Piece>| matches!(segment.as_slice(), [Piece::Text(text)] if is_dots(text));
    match segments.iter().any(dots) {
        true => Err("it has `.` or `..` in its path".to_owned()),
        false => Ok((segments, query)),
    }
}

fn fill_segment(segment: &[Piece], values: &Values<'_>) -> Result<String, ToolError> {
    let filled = fill_pieces(segment, values)?;
    let declared_empty = segment.is_empty();
    // An empty segment, or one that is dots, would name another place than the one that was meant.
    if (filled.is_empty() && !declared_empty) || is_dots(&filled) {
        return Err(ToolError::failed("an argument is no segment of a path: it is empty, `.` or `..`"));
    }
    Ok(filled)
}

fn fill_pieces(pieces: &[Piece], values: &Values<'_>) -> Result<String, ToolError> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(plain) => text.push_str(plain),
            Piece::Value(reference) => text.push_str(&encoded(&written(&reference.need(values)?))),
        }
    }
    Ok(text)
}

/// The values of a parameter: none, one, or several.
fn parameter(template: &Template, values: &Values<'_>) -> Result<Vec<String>, ToolError> {
    match template.whole().and_then(|reference| reference.find(values)) {
        Some(Value::Array(items)) => Ok(items.iter().map(written).collect()),
        _ => Ok(template.fill(values)?.into_iter().collect()),
    }
}

/// Everything but letters, digits, `-`, `_`, `.` and `~` as `%XX`.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(url: &str, query: &[(&str, &str)], arguments: Value, expected: Result<&str, &str>) {
        let mut faults = Faults::default();
        let query: Vec<_> = query.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let built = UrlTemplate::build(&mut faults, url, &query, &Value::Null);
        let values = Values {
            arguments: &arguments,
            idempotency_key: "k",
            fence: Default::default(),
            session: "s".into(),
            secrets: Default::default(),
        };
        let filled = match (faults.into_result("tool", "t"), built) {
            (Ok(()), Some(built)) => built.fill(&values).map(String::from).map_err(|error| error.message().to_owned()),
            (Err(error), _) => Err(error.message().trim_start_matches("tool `t`: url: ").to_owned()),
            (Ok(()), None) => unreachable!("a fault is named"),
        };
        assert_eq!(filled, expected.map(str::to_owned).map_err(str::to_owned), "{url} {arguments}");
    }

    #[test]
    fn values_stay_where_they_are_put() {
        let url = "https://h.example:8443/a/${arguments.id}/c?x=${arguments.x}";
        check(url, &[], json!({"id": 7, "x": "y"}), Ok("https://h.example:8443/a/7/c?x=y"));
        check(
            url,
            &[],
            json!({"id": "../../@evil.example/#?&", "x": "1&admin=true#"}),
            Ok("https://h.example:8443/a/..%2F..%2F%40evil.example%2F%23%3F%26/c?x=1%26admin%3Dtrue%23"),
        );
        check(
            url,
            &[],
            json!({"id": "\\..\\\r\n ü", "x": "%00"}),
            Ok("https://h.example:8443/a/%5C..%5C%0D%0A%20%C3%BC/c?x=%2500"),
        );
        let no_segment = Err("an argument is no segment of a path: it is empty, `.` or `..`");
        for id in ["..", ".", ""] {
            check(url, &[], json!({"id": id, "x": ""}), no_segment);
        }
        check("http://h/${arguments.a}${arguments.b}/x", &[], json!({"a": ".", "b": "."}), no_segment);
        check("http://h/.${arguments.a}/x", &[], json!({"a": "."}), no_segment);
        check("http://h/%2e${arguments.a}/x", &[], json!({"a": "."}), no_segment);
        check("http://h/${arguments.a}/x", &[], json!({"a": "%2e%2e"}), Ok("http://h/%252e%252e/x"));
        check(url, &[], json!({"id": 1}), Err("there is no value for `${arguments.x}`"));
    }

    #[test]
    fn parameters_are_left_out_or_repeated() {
        let query = [("a b", "${arguments.a}"), ("c", "n${arguments.n}")];
        check("http://h", &query, json!({"n": 1}), Ok("http://h/?c=n1"));
        check("http://h/?p=q", &query, json!({"a": ["x y", 2], "n": 1}), Ok("http://h/?p=q&a%20b=x%20y&a%20b=2&c=n1"));
        check("http://h/x/", &[], json!({}), Ok("http://h/x/"));
        check("http://h/x//y", &[], json!({}), Ok("http://h/x//y"));
    }

    #[test]
    fn the_host_is_fixed() {
        let elsewhere = Err("references are allowed in its path and its query only");
        check("https://${arguments.host}/x", &[], json!({"host": "h"}), elsewhere);
        check("https://h${arguments.host}/x", &[], json!({"host": "h"}), elsewhere);
        check("https://h:${arguments.port}", &[], json!({"port": 1}), elsewhere);
        check(
            "${arguments.u}",
            &[],
            json!({"u": 1}),
            Err("it must begin with a scheme and a host, without references"),
        );
        check("file:///etc/passwd", &[], json!({}), Err("it must begin with http:// or https://"));
        check("ftp://h/x", &[], json!({}), Err("it must begin with http:// or https://"));
        check("", &[], json!({}), Err("it must begin with http:// or https://"));
        check("https://u:p@h/x", &[], json!({}), Err("it holds a user or a password; use a header with a secret"));
        check("https://h/../x", &[], json!({}), Err("it has `.` or `..` in its path"));
        check("https://h/x#y", &[], json!({}), Err("it has a fragment, which is never sent"));
    }

    /// The first line is the URL, the second the value of `x`: the value never leaves its segment.
    #[test]
    fn fuzzed_urls() {
        let seeds = [
            "https://h:8443/a/${arguments.x}/b\nvalue",
            "http://h/a?q=${arguments.x}&r=1\na/../b",
            "https://h/${arguments.x}\n..",
        ];
        rekindle_fuzz::fuzz!("tool-url")
            .seeds(seeds)
            .words(["/..", "%2e", "?", "#", "\\\\", "${arguments.x}", "@"])
            .text(|text| {
                let (url, value) = text.split_once('\n')?;
                let mut faults = Faults::default();
                let built = UrlTemplate::build(
                    &mut faults,
                    url,
                    &[("p".to_owned(), "${arguments.x}".to_owned())],
                    &Value::Null,
                )?;
                faults.into_result("tool", "t").ok()?;
                let values = |arguments: &Value| {
                    let values = Values {
                        arguments,
                        idempotency_key: "k",
                        fence: Default::default(),
                        session: "s".into(),
                        secrets: Default::default(),
                    };
                    built.fill(&values).ok()
                };
                let plain = values(&json!({"x": "v"}));
                if let (Some(plain), Some(filled)) = (&plain, values(&json!({"x": value}))) {
                    assert_eq!(
                        (plain.scheme(), plain.host_str(), plain.port()),
                        (filled.scheme(), filled.host_str(), filled.port())
                    );
                    let segments = |url: &Url| url.path_segments().map(Iterator::count);
                    assert_eq!(
                        (segments(plain), plain.fragment()),
                        (segments(&filled), filled.fragment()),
                        "{plain} {filled}"
                    );
                }
                Some(())
            });
    }
}
