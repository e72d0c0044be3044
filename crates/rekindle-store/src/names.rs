//! Names of files and objects back to the text they were made from.

use rekindle_core::file_name;

/// The text whose [`file_name`] is `name`; nothing if the name holds only a part of it, or is none.
pub(crate) fn from_file_name(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
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
    String::from_utf8(bytes).ok().filter(|text| file_name(text) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_or_refused() {
        for text in ["a", "../A b", "%2e", "ä🦀", "%~", &"x".repeat(180)] {
            assert_eq!(from_file_name(&file_name(text)).as_deref(), Some(text), "{text}");
        }
        for name in ["A", "%2", "%zz", "%+1", "%61", "%ff", &file_name(&"x".repeat(181))] {
            assert_eq!(from_file_name(name), None, "{name}");
        }
    }

    #[test]
    fn fuzzed_names() {
        rekindle_fuzz::fuzz!("file-name").seeds(["a%2fb", "%2e%2e", "plain"]).text(|text| {
            // A long text is not in its name as a whole.
            let expected = (!file_name(text).contains("%~")).then_some(text);
            assert_eq!(from_file_name(&file_name(text)).as_deref(), expected);
            from_file_name(text).map(|found| assert_eq!(file_name(&found), text))
        });
    }
}
