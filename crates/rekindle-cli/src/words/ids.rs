//! Ids as short as they can be and still mean one thing.

use rekindle::Timestamp;

/// The shortest beginning that is shown.
const SHORTEST: usize = 8;

/// The short form of each id: the part behind the prefix, all cut to the same length, the shortest
/// at which all differ. The beginning of an id means that id wherever one is expected.
pub fn short<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let bare: Vec<&str> = ids.into_iter().map(bare).collect();
    let mut sorted = bare.clone();
    sorted.sort_unstable();
    sorted.dedup();
    // Sorted, each id shares most with its neighbours.
    let shared = sorted.windows(2).map(|pair| common(pair[0], pair[1])).max().unwrap_or(0);
    let length = SHORTEST.max(shared + 1);
    bare.into_iter().map(|id| id.chars().take(length).collect()).collect()
}

/// An id without its prefix.
pub fn bare(id: &str) -> &str {
    id.split_once('_').map_or(id, |(_, bare)| bare)
}

/// When a generated id was made; nothing for an id somebody chose.
pub fn made_at(id: &str) -> Option<Timestamp> {
    const DIGITS: &str = "0123456789abcdefghjkmnpqrstvwxyz";
    let (_, bare) = id.split_once('_')?;
    if bare.len() != 26 || !bare.is_ascii() {
        return None;
    }
    let digit = |c: char| DIGITS.find(c).and_then(|at| u64::try_from(at).ok());
    let millis = bare.chars().take(10).try_fold(0, |sum, c| Some(sum * 32 + digit(c)?))?;
    Some(Timestamp(millis * 1_000))
}

fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use rekindle::WaitId;
    use rekindle::core::IdSource;

    use super::*;

    #[test]
    fn short_ids_differ() {
        let check = |ids: &[&str], expected: &[&str]| assert_eq!(short(ids.iter().copied()), expected);
        check(&["ckpt_0123456789abc"], &["01234567"]);
        check(&["ckpt_0123456789abc", "ckpt_0123456789xbc"], &["0123456789a", "0123456789x"]);
        check(&["ckpt_01", "mine"], &["01", "mine"]);
        check(&[], &[]);
    }

    #[test]
    fn generated_ids_say_when_they_were_made() {
        let now = Timestamp(1_794_740_400_123_000);
        let id = WaitId::generate(&IdSource::seeded([7; 32]), now);
        assert_eq!(made_at(id.as_str()), Some(now));
        assert_eq!(made_at("wait_mine"), None);
        assert_eq!(made_at("mine"), None);
    }
}
