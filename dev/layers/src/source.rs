//! Paths in sources: `use` trees, `mod`, `extern crate`, and paths of two segments and more everywhere else. Reads
//! tokens and knows no types.

use crate::lex::{Token, lex};

/// Keywords that may stand before a path that begins with `::`.
const KEYWORDS: &[&str] = &[
    "as", "break", "const", "dyn", "else", "for", "if", "impl", "in", "let", "match", "mut", "ref", "return", "where",
    "while",
];

/// A path and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) line: usize,
    /// As it is written; a glob ends with `*`.
    pub(crate) path: Vec<String>,
    /// The module it is written in, inline modules included.
    pub(crate) module: Vec<String>,
    /// The name that a `use` gives it.
    pub(crate) name: Option<String>,
}

impl Found {
    /// The path from the root of its crate on, with `crate` first; nothing if it may also be that of another crate.
    pub(crate) fn absolute(&self) -> Option<Vec<String>> {
        let mut module = self.module.clone();
        let mut rest = self.path.as_slice();
        match rest.first().map(String::as_str) {
            Some("crate") => module.clear(),
            Some("self") => {}
            Some("super") => {
                while let [first, behind @ ..] = rest
                    && first == "super"
                {
                    module.pop();
                    rest = behind;
                }
                return Some(joined(module, rest));
            }
            _ => return None,
        }
        Some(joined(module, &rest[1..]))
    }

    /// The path as that of a name beside it: a module of the one it is written in.
    pub(crate) fn beside(&self) -> Vec<String> {
        joined(self.module.clone(), &self.path)
    }
}

fn joined(module: Vec<String>, rest: &[String]) -> Vec<String> {
    std::iter::once("crate".to_owned()).chain(module).chain(rest.iter().cloned()).collect()
}

/// Returns the paths in the source of `module`.
pub(crate) fn paths(text: &str, module: &[String]) -> Vec<Found> {
    let mut reader =
        Reader { tokens: lex(text), at: 0, depth: 0, module: module.to_vec(), open: Vec::new(), found: Vec::new() };
    reader.read();
    reader.found
}

struct Reader {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
    module: Vec<String>,
    /// The depths at which inline modules were opened.
    open: Vec<usize>,
    found: Vec<Found>,
}

impl Reader {
    fn read(&mut self) {
        while let Some(token) = self.token(0) {
            match token.clone() {
                Token::Sign('{') => self.depth += 1,
                Token::Sign('}') => self.close(),
                Token::Name(name) if name == "use" && !self.is_sign(1, '<') => {
                    self.at += 1;
                    self.tree(&[]);
                    continue;
                }
                Token::Name(name) if name == "mod" => self.open(),
                Token::Name(name) if name == "extern" && self.is_name(1, "crate") => {
                    if let Some(name) = self.name(2) {
                        self.note(vec![name], None);
                    }
                }
                Token::Colons if !self.follows_path() => {
                    self.at += 1;
                    continue;
                }
                Token::Name(_) if !self.follows_path() => self.path(),
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Closes a block, and the inline module it is.
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.open.last() == Some(&self.depth) {
            self.open.pop();
            self.module.pop();
        }
    }

    /// `mod name;` or `mod name {`.
    fn open(&mut self) {
        let Some(name) = self.name(1) else { return };
        self.note(vec!["self".into(), name.clone()], None);
        if self.is_sign(2, '{') {
            self.open.push(self.depth);
            self.module.push(name);
        }
    }

    /// A path of two segments and more, in an expression, a type or an attribute.
    fn path(&mut self) {
        let mut path: Vec<String> = self.name(0).into_iter().collect();
        let mut ahead = 1;
        while self.token(ahead) == Some(&Token::Colons)
            && let Some(name) = self.name(ahead + 1)
        {
            path.push(name);
            ahead += 2;
        }
        if path.len() > 1 && !KEYWORDS.contains(&path[0].as_str()) {
            self.note(path, None);
        }
    }

    /// Reads the tree of a `use`, or one of those in its braces, and stops behind it.
    fn tree(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        loop {
            match self.token(0).cloned() {
                Some(Token::Colons) => self.at += 1,
                Some(Token::Sign('*')) => {
                    self.at += 1;
                    path.push("*".into());
                    return self.note_at(self.at - 1, path, None);
                }
                Some(Token::Sign('{')) => {
                    self.at += 1;
                    while !matches!(self.token(0), None | Some(Token::Sign('}' | ';'))) {
                        self.tree(&path);
                        if self.is_sign(0, ',') {
                            self.at += 1;
                        }
                    }
                    self.at += usize::from(self.is_sign(0, '}'));
                    return;
                }
                Some(Token::Name(name)) => {
                    self.at += 1;
                    if name != "self" || path.is_empty() {
                        path.push(name);
                    }
                    if self.token(0) != Some(&Token::Colons) {
                        return self.leaf(path);
                    }
                }
                // Not Rust: the compiler says so.
                _ => {
                    self.at += 1;
                    return;
                }
            }
        }
    }

    fn leaf(&mut self, path: Vec<String>) {
        let (end, mut name) = (self.at - 1, path.last().cloned());
        if self.is_name(0, "as") {
            name = self.name(1);
            self.at += 2;
        }
        self.note_at(end, path, name);
    }

    fn note(&mut self, path: Vec<String>, name: Option<String>) {
        self.note_at(self.at, path, name);
    }

    /// Takes note of a path that ends with the token `at`.
    fn note_at(&mut self, at: usize, path: Vec<String>, name: Option<String>) {
        let line = self.tokens.get(at).map_or(0, |(line, _)| *line);
        self.found.push(Found { line, path, module: self.module.clone(), name });
    }

    /// Returns true if the token belongs to a path that began before, or is a field or a method.
    fn follows_path(&self) -> bool {
        let Some(before) = self.at.checked_sub(1) else { return false };
        let goes_on = |token: &Token| match token {
            Token::Name(name) => !KEYWORDS.contains(&name.as_str()),
            token => *token == Token::Sign('>'),
        };
        match (&self.tokens[before].1, &self.tokens[self.at].1) {
            (token, Token::Colons) => goes_on(token),
            // Behind `::` that begins a path, as in `::std::fmt`.
            (Token::Colons, Token::Name(_)) => before > 0 && goes_on(&self.tokens[before - 1].1),
            (Token::Sign('.'), Token::Name(_)) => !(before > 0 && self.tokens[before - 1].1 == Token::Sign('.')),
            _ => false,
        }
    }

    fn token(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }

    fn name(&self, ahead: usize) -> Option<String> {
        match self.token(ahead) {
            Some(Token::Name(name)) => Some(name.clone()),
            _ => None,
        }
    }

    fn is_name(&self, ahead: usize, name: &str) -> bool {
        matches!(self.token(ahead), Some(Token::Name(found)) if found == name)
    }

    fn is_sign(&self, ahead: usize, sign: char) -> bool {
        self.token(ahead) == Some(&Token::Sign(sign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let module = ["executor".to_owned(), "plan".to_owned()];
        let found: Vec<String> = paths(text, &module)
            .iter()
            .map(|found| found.absolute().unwrap_or_else(|| found.path.clone()).join("::"))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn use_trees_are_taken_apart() {
        check("use a::b;", &["a::b"]);
        check("pub(crate) use a::{self, b as c, d::{E, *}};", &["a", "a::b", "a::d::E", "a::d::*"]);
        check("use {a, b::c}; use ::d;", &["a", "b::c", "d"]);
        check("use crate::x::{\n  y,\n  z,\n};", &["crate::x::y", "crate::x::z"]);
        check("use super::super::driver::Driver;", &["crate::driver::Driver"]);
        check("use self::state::X; use super::call;", &["crate::executor::plan::state::X", "crate::executor::call"]);
        check("fn a<'a>() -> impl X + use<'a> { b::c() }", &["b::c"]);
    }

    #[test]
    fn paths_outside_of_use_count() {
        check("fn f() { crate::operations::run::<u8>(a.b, x::Y); }", &["crate::operations::run", "x::Y"]);
        check("impl ::a::B for c::D {}", &["a::B", "c::D"]);
        check("#[derive(clap::Parser)] struct A;", &["clap::Parser"]);
        check("rmcp::model!(x); for i in 0..a::B {}", &["rmcp::model", "a::B"]);
        check("extern crate hyper;", &["hyper"]);
        check("let x = <T as a::B>::c::d;", &["a::B"]);
    }

    #[test]
    fn inline_modules_are_modules() {
        check(
            "mod tests { use super::*; fn f() { self::g::h() } } use super::x;",
            &[
                "crate::executor::plan::tests",
                "crate::executor::plan::*",
                "crate::executor::plan::tests::g::h",
                "crate::executor::x",
            ],
        );
    }

    #[test]
    fn comments_and_literals_do_not_count() {
        check("// use a::b;\n/// [`a::b`]\n/* use a::b; /* c::d */ e::f */ use g;", &["g"]);
        check(r####"let a = "use a::b; \" c::d"; let b = r#"e::f"#; let c = br"g::h\"; use i;"####, &["i"]);
        check(r"let a = 'x'; let b = '\''; let c = '{'; let d: &'a str = b'}'; use e::f;", &["e::f"]);
    }

    #[test]
    fn lines_and_names_are_known() {
        let found = paths("\nuse a::b;\n\nuse c::{\n    d as e\n};\n", &[]);
        let seen: Vec<_> = found.iter().map(|found| (found.line, found.name.as_deref().unwrap())).collect();
        assert_eq!(seen, [(2, "b"), (5, "e")]);
    }
}
