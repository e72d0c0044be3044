//! Names that are known, for hints.

/// `did you mean …?`, if one of the names is close enough.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_lowercase();
    let close = known.into_iter().filter(|_| name.len() <= 64).map(|known| {
        let common = lower.bytes().zip(known.bytes()).take_while(|(one, other)| one == other).count();
        let begins = common >= 3 && common + 1 >= lower.len().min(known.len());
        let similar = strsim::damerau_levenshtein(&lower, &known.to_lowercase());
        (if begins { similar.min(1) } else { similar }, known)
    });
    let (distance, best) = close.min_by_key(|(distance, _)| *distance)?;
    // One letter in three may be wrong.
    (distance <= (best.len().max(name.len()) / 3).max(1)).then(|| format!("did you mean `{best}`?"))
}

/// Names in a row: `` `a`, `b` ``.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".to_owned(),
        1..=40 => names.join(", "),
        more => format!("{} and {} more", names[..40].join(", "), more - 40),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let known = ["prompt", "parameters", "name", "timeout"];
        let check = |name: &str, expected: Option<&str>| {
            let expected = expected.map(|name| format!("did you mean `{name}`?"));
            assert_eq!(did_you_mean(name, known), expected, "{name}");
        };
        check("promt", Some("prompt"));
        check("Prompt", Some("prompt"));
        check("params", Some("parameters"));
        check("param", Some("parameters"));
        check("zzz", None);
        check("", None);
    }
}
