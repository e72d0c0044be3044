//! What a script must not say, and what follows from what it does say.

use rekindle::Error;

use super::{Script, Turn};

impl Script {
    /// Whether no turn contradicts itself. Checked when a script is read; one built in code makes
    /// the model fail.
    pub fn check(&self) -> Result<(), Error> {
        for (index, turn) in self.turns.iter().enumerate() {
            if let Some(flaw) = turn.flaw() {
                return Err(Error::invalid(format!("turn {} of the script {:?}: {flaw}", index + 1, self.name)));
            }
        }
        Ok(())
    }
}

impl Turn {
    /// Whether there is an answer here, be it an empty one, or only a failure.
    pub(crate) fn answers(&self) -> bool {
        self.error.is_none() || self.says_something()
    }

    /// Whether it answers out of the count.
    pub(crate) fn answers_out_of_count(&self) -> bool {
        self.when.is_some() && self.answers()
    }

    /// All it says, in the pieces it is streamed in: one, if it is not streamed.
    pub(crate) fn pieces(&self) -> Vec<String> {
        match (self.stream, &self.text) {
            _ if !self.chunks.is_empty() => self.chunks.clone(),
            (Some(size), Some(text)) => pieces_of(text, size),
            (None, Some(text)) => vec![text.clone()],
            (_, None) => Vec::new(),
        }
    }

    /// Whether it is streamed.
    pub(crate) fn streams(&self) -> bool {
        !self.chunks.is_empty() || self.stream.is_some()
    }

    fn says_something(&self) -> bool {
        self.text.is_some() || self.reasoning.is_some() || !self.chunks.is_empty() || !self.calls.is_empty()
    }

    fn flaw(&self) -> Option<String> {
        let joined = self.chunks.concat();
        if !self.chunks.is_empty() && self.text.as_ref().is_some_and(|text| *text != joined) {
            return Some("`text` is not what `chunks` say together".into());
        }
        if self.stream == Some(0) {
            return Some("`stream` is 0; a piece has at least one character".into());
        }
        if self.stream.is_some() && (!self.chunks.is_empty() || self.text.is_none()) {
            return Some("`stream` cuts `text` into pieces; give it with `text` and without `chunks`".into());
        }
        if self.error.as_ref().is_some_and(|error| error.after_chunks > 0) && !self.streams() {
            return Some("`after_chunks` needs `chunks` or `stream`".into());
        }
        let call = self.calls.iter().find(|call| call.arguments.is_some() && call.arguments_text.is_some())?;
        Some(format!("the call of `{}` has both `arguments` and `arguments_text`", call.name))
    }
}

fn pieces_of(text: &str, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(turn: serde_json::Value, expected: Result<(), &str>) {
        let text = json!({"name": "m", "turns": [{}, turn]}).to_string();
        match (Script::from_json(&text), expected) {
            (Ok(script), Ok(())) => {
                assert_eq!(Script::from_json(&serde_json::to_string(&script).unwrap()).unwrap(), script);
            }
            (Err(error), Err(part)) => assert!(error.message().contains(part), "{error}"),
            (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_turn_must_not_contradict_itself() {
        check(json!({"text": "ab", "chunks": ["a", "b"]}), Ok(()));
        check(json!({"text": "ab", "chunks": ["a"]}), Err("turn 2 of the script \"m\": `text` is not"));
        check(json!({"text": "ab", "stream": 0}), Err("`stream` is 0"));
        check(json!({"text": "ab", "stream": 1}), Ok(()));
        check(json!({"stream": 1}), Err("give it with `text`"));
        check(json!({"text": "a", "error": {"message": "m", "after_chunks": 1}}), Err("`after_chunks` needs"));
        check(
            json!({"calls": [{"name": "t", "arguments": 1, "arguments_text": "1"}]}),
            Err("the call of `t` has both"),
        );
        check(json!({"calls": [{"name": "t", "arguments": {"a": [1.5, null]}}]}), Ok(()));
    }

    #[test]
    fn what_does_not_exist_is_named_with_its_place() {
        check(json!({"txt": "a"}), Err("unknown field `txt`"));
        check(json!({"usage": {"tokens": 1}}), Err("unknown field `tokens`"));
        check(json!({"error": {"message": "m", "time": 1}}), Err("unknown field `time`"));
        check(json!({"when": {}}), Err("missing field `last_contains`"));
        check(json!({"expect": {"last": "a"}}), Err("unknown field `last`"));
        check(json!({"calls": [{"id": "a"}]}), Err("missing field `name`"));
        check(json!({"stop": "never"}), Err("unknown variant `never`"));
        let error = Script::from_json("{\n  \"name\": 1\n}").unwrap_err();
        assert!(error.message().contains("line 2 column 11"), "{error}");
    }

    #[test]
    fn text_is_cut_at_characters() {
        assert_eq!(pieces_of("a😀bc", 2), ["a😀", "bc"]);
        assert_eq!(pieces_of("", 2), Vec::<String>::new());
    }
}
