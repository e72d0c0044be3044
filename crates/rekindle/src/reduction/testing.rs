//! Histories for the tests of reduction: short ones by hand, many by a seeded generator.

use rekindle_core::{Json, MessageId};

use super::{Place, View};
use crate::message::{Message, Part, Role, ToolCall, ToolResult};

/// What a part is, as far as reduction cares.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Text,
    Call(String),
    Result(String),
}

/// A history as roles and kinds of parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape(Vec<(Role, Vec<Kind>)>);

impl Shape {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn prefix(&self, len: usize) -> Self {
        Self(self.0[..len].to_vec())
    }

    pub(super) fn parts(&self) -> Vec<(Place, Kind)> {
        let messages = self.0.iter().enumerate();
        messages
            .flat_map(|(message, (_, kinds))| {
                kinds.iter().enumerate().map(move |(part, kind)| (Place { message, part }, kind.clone()))
            })
            .collect()
    }

    pub(super) fn items(&self) -> Vec<Json> {
        self.0.iter().enumerate().map(|(at, (role, kinds))| item(at, *role, kinds)).collect()
    }
}

fn item(at: usize, role: Role, kinds: &[Kind]) -> Json {
    let call = |id: &str| ToolCall::new(id, "tool", Json::from("x"));
    let parts = kinds.iter().map(|kind| match kind {
        Kind::Text => Part::Text("word ".repeat(1 + at * 7 % 20)),
        Kind::Call(id) => Part::ToolCall(call(id)),
        Kind::Result(id) => Part::ToolResult(ToolResult::new(&call(id), Json::from("done"))),
    });
    let id = Some(MessageId::new(format!("msg_{at}")).unwrap());
    Message { id, ..Message::new(role, parts.collect()) }.to_json().unwrap()
}

/// One message for each letter: `u` a user, `a` an assistant, `c` one that calls `call_0`, `d`
/// one that calls `call_0` and `call_1`, `r` the result of `call_0`.
pub(super) fn history(letters: &str) -> Vec<Json> {
    let message = |letter| match letter {
        'a' => (Role::Assistant, vec![Kind::Text]),
        'c' => (Role::Assistant, vec![Kind::Call("call_0".into())]),
        'd' => (Role::Assistant, vec![Kind::Call("call_0".into()), Kind::Call("call_1".into())]),
        'r' => (Role::Tool, vec![Kind::Result("call_0".into())]),
        _ => (Role::User, vec![Kind::Text]),
    };
    Shape(letters.chars().map(message).collect()).items()
}

/// The letters of a view; a made-up result is `s`, a summary `S`.
pub(super) fn shape_of(view: &View) -> String {
    let letter = |message: Message| match message.role {
        Role::Assistant => ['a', 'c', 'd'][message.calls().count().min(2)],
        Role::Tool if message.results().any(|result| result.synthetic) => 's',
        Role::Tool => 'r',
        _ if message.extra.contains_key("summary") => 'S',
        _ => 'u',
    };
    view.messages().map(|message| letter(message.unwrap())).collect()
}

/// Random histories of up to `longest` messages: ids that repeat, results in any order, late,
/// missing, or of no call at all. The same each time.
pub(super) fn histories(count: u64, longest: u64) -> Vec<Shape> {
    (0..count).map(|seed| random(&mut Random(seed * 2 + 1), longest)).collect()
}

fn random(random: &mut Random, longest: u64) -> Shape {
    let mut shape = Shape::default();
    let mut open: Vec<String> = Vec::new();
    let len = if longest > 30 { longest } else { random.below(longest + 1) };
    // Some histories are tidy, some are not.
    let mess = random.below(4);
    for _ in 0..len {
        let (role, kinds) = match random.below(8) {
            0 | 1 => (Role::User, vec![Kind::Text]),
            2..4 => {
                let calls: Vec<_> = (0..random.below(4)).map(|_| format!("call_{}", random.below(4))).collect();
                open.extend(calls.iter().cloned());
                (Role::Assistant, std::iter::once(Kind::Text).chain(calls.into_iter().map(Kind::Call)).collect())
            }
            4 if random.below(4) < mess => (Role::Tool, vec![Kind::Result(format!("call_{}", random.below(6)))]),
            _ => (Role::Tool, results(random, &mut open)),
        };
        let role = if kinds == [Kind::Text] && role == Role::Tool { Role::User } else { role };
        shape.0.push((role, kinds));
    }
    shape
}

fn results(random: &mut Random, open: &mut Vec<String>) -> Vec<Kind> {
    let count = (1 + random.below(2)).min(open.len() as u64);
    let taken = (0..count).map(|_| Kind::Result(open.swap_remove(random.below(open.len() as u64) as usize)));
    let taken: Vec<_> = taken.collect();
    if taken.is_empty() { vec![Kind::Text] } else { taken }
}

/// A splitmix generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}
