//! Server-sent events: bytes in, in any slices, events out. Knows nothing of a network.

/// The mark some servers put before the first line.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name; empty if it has none.
    pub(crate) name: String,
    /// Its lines of data, joined by line feeds.
    pub(crate) data: String,
}

/// An event or a line is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Takes a stream apart.
///
/// Lines end with CR, LF or both. Comments and fields other than `event` and `data` are left out, and
/// so are events without data.
#[derive(Debug)]
pub(crate) struct SseParser {
    /// The line under way. It is decoded when it is whole: a slice may end inside a character.
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a CR, so an LF that follows ends no line of its own.
    after_cr: bool,
    at_start: bool,
    /// The most bytes of one event.
    limit: usize,
}

impl SseParser {
    pub(crate) fn new(limit: usize) -> Self {
        let (line, event) = (Vec::new(), Event::default());
        Self { line, event, has_data: false, after_cr: false, at_start: true, limit }
    }

    /// Takes the next bytes and adds the events they end to `events`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        if std::mem::take(&mut self.after_cr) {
            match bytes {
                [] => self.after_cr = true,
                [b'\n', rest @ ..] => bytes = rest,
                _ => {}
            }
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.grow(&bytes[..end])?;
            self.end_line(events);
            let after = &bytes[end + 1..];
            bytes = match (bytes[end], after) {
                (b'\r', [b'\n', rest @ ..]) => rest,
                (b'\r', []) => {
                    self.after_cr = true;
                    after
                }
                _ => after,
            };
        }
        self.grow(bytes)
    }

    /// The stream is over. What was said since the last event counts as one, though the empty line
    /// that ends it is missing: not every server sends it.
    pub(crate) fn finish(mut self) -> Option<Event> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events);
        }
        self.end_event(&mut events);
        events.pop()
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + self.event.data.len() + bytes.len() > self.limit {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let taken = std::mem::take(&mut self.line);
        let mut line = taken.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            self.end_event(events);
        } else {
            self.field(&String::from_utf8_lossy(line));
        }
        // The room is used again for the next line.
        self.line = taken;
        self.line.clear();
    }

    /// One `name: value`. A comment has an empty name.
    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut parser = SseParser::new(1000);
        let mut events = Vec::new();
        for slice in slices {
            parser.push(slice, &mut events).unwrap();
        }
        events.extend(parser.finish());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    /// Whole, byte by byte, and cut at every pair of places it is the same.
    fn check(stream: &str, expected: &[(&str, &str)]) {
        let bytes = stream.as_bytes();
        let expected: Vec<_> = expected.iter().map(|(name, data)| (name.to_string(), data.to_string())).collect();
        assert_eq!(parse([bytes]), expected, "{stream:?}");
        assert_eq!(parse(bytes.chunks(1)), expected, "{stream:?} in bytes");
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let slices = [&bytes[..first], &bytes[first..second], &[], &bytes[second..]];
                assert_eq!(parse(slices), expected, "{stream:?} cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn events_end_with_an_empty_line_of_any_kind() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("data: a\r\n\ndata: b\n\r\n", &[("", "a"), ("", "b")]);
    }

    #[test]
    fn fields_are_told_apart() {
        check("event: ping\ndata: {}\nid: 7\nretry: 5\nother\n\n", &[("ping", "{}")]);
        check("data: a\ndata:b\ndata\ndata:  c\n\n", &[("", "a\nb\n\n c")]);
        check("data:\n\n", &[("", "")]);
        check(": a comment\n\n:\ndata: a\n: another\n\n", &[("", "a")]);
    }

    #[test]
    fn what_has_no_data_is_no_event() {
        check("", &[]);
        check("\n\n\n", &[]);
        check("event: ping\n\ndata: a\n\n", &[("", "a")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("\u{feff}", &[]);
    }

    #[test]
    fn characters_may_be_cut() {
        check("event: ü\ndata: grüße 🦀\n\n", &[("ü", "grüße 🦀")]);
        assert_eq!(parse([b"data: \xff\n\n".as_slice()]), [(String::new(), "\u{fffd}".to_owned())]);
    }

    #[test]
    fn the_last_event_needs_no_end() {
        check("data: a\n\ndata: [DONE]", &[("", "a"), ("", "[DONE]")]);
        check("data: [DONE]\n", &[("", "[DONE]")]);
        check("data: [DONE]\r", &[("", "[DONE]")]);
    }

    #[test]
    fn an_event_has_a_limit() {
        let fits = |slices: &[&[u8]]| {
            let mut parser = SseParser::new(10);
            slices.iter().all(|slice| parser.push(slice, &mut Vec::new()).is_ok())
        };
        assert!(fits(&[b"data: abcd\n\n", b"data: abcd\n\n"]));
        assert!(!fits(&[b"data: abcde\n\n"]));
        assert!(!fits(&[b"data: ab", b"cde"]));
        assert!(!fits(&[b"data: ab\n", b"data: ab\n", b"data: ab\n"]));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_slices_are_the_same(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b'd'), any::<u8>()], 0..80),
            size in 1_usize..9,
        ) {
            prop_assert_eq!(parse(bytes.chunks(size)), parse([bytes.as_slice()]));
        }
    }

    #[test]
    fn fuzzed_streams() {
        let seeds = ["event: a\ndata: {}\n\n", "data: one\r\ndata: two\r\r: comment\n\n", "\u{feff}data: x"];
        rekindle_fuzz::fuzz!("sse").seeds(seeds).words(["data: ", "event: ", "\r", "\n\n", "id: 1\n"]).bytes(|bytes| {
            let mut slices = SseParser::new(4_000);
            let mut whole = SseParser::new(4_000);
            let (mut by_slices, mut at_once) = (Vec::new(), Vec::new());
            let fits = whole.push(bytes, &mut at_once).is_ok();
            let all_fit = bytes.chunks(3).all(|slice| slices.push(slice, &mut by_slices).is_ok());
            assert_eq!(fits, all_fit);
            if fits {
                by_slices.extend(slices.finish());
                at_once.extend(whole.finish());
                assert_eq!(by_slices, at_once);
            }
            fits
        });
    }
}
