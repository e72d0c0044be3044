//! Splits Rust into the tokens that matter for paths.

use std::iter::Peekable;
use std::str::Chars;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Name(String),
    /// `::`
    Colons,
    Sign(char),
}

/// Returns the tokens with their lines, without comments, literals and lifetimes.
pub(crate) fn lex(text: &str) -> Vec<(usize, Token)> {
    let mut lexer = Lexer { rest: text.chars().peekable(), line: 1, tokens: Vec::new() };
    while let Some(char) = lexer.next() {
        match char {
            '/' if lexer.rest.peek() == Some(&'/') => while lexer.next().is_some_and(|char| char != '\n') {},
            '/' if lexer.rest.peek() == Some(&'*') => lexer.comment(),
            '"' => lexer.string(),
            '\'' => lexer.quote(),
            ':' if lexer.rest.peek() == Some(&':') => {
                lexer.next();
                lexer.push(Token::Colons);
            }
            _ if char.is_ascii_digit() => lexer.word(),
            _ if char == '_' || char.is_alphabetic() => lexer.name(char),
            _ if char.is_whitespace() => {}
            _ => lexer.push(Token::Sign(char)),
        }
    }
    lexer.tokens
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    tokens: Vec<(usize, Token)>,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let char = self.rest.next()?;
        self.line += usize::from(char == '\n');
        Some(char)
    }

    fn push(&mut self, token: Token) {
        self.tokens.push((self.line, token));
    }

    /// The rest of a block comment, which may hold others.
    fn comment(&mut self) {
        let (mut depth, mut before) = (0_usize, '/');
        while let Some(char) = self.next() {
            match (before, char) {
                ('/', '*') => depth += 1,
                ('*', '/') if depth == 1 => return,
                ('*', '/') => depth -= 1,
                _ => {
                    before = char;
                    continue;
                }
            }
            // One sign belongs to one mark only.
            before = ' ';
        }
    }

    /// The rest of a string with escapes.
    fn string(&mut self) {
        while let Some(char) = self.next() {
            match char {
                '"' => return,
                '\\' => {
                    self.next();
                }
                _ => {}
            }
        }
    }

    /// The rest of a string without escapes, which ends with so many `#`.
    fn raw_string(&mut self, hashes: usize) {
        while let Some(char) = self.next() {
            if char != '"' {
                continue;
            }
            let mut seen = 0;
            while seen < hashes && self.rest.peek() == Some(&'#') {
                self.next();
                seen += 1;
            }
            if seen == hashes {
                return;
            }
        }
    }

    /// A character, or a lifetime.
    fn quote(&mut self) {
        let mut ahead = self.rest.clone();
        match (ahead.next(), ahead.next()) {
            (Some('\\'), _) => {
                self.next();
                self.next();
                while self.next().is_some_and(|char| char != '\'') {}
            }
            (Some(_), Some('\'')) => {
                self.next();
                self.next();
            }
            _ => self.word(),
        }
    }

    /// Passes over the rest of a number or a lifetime.
    fn word(&mut self) {
        while self.rest.peek().is_some_and(|char| *char == '_' || char.is_alphanumeric()) {
            self.next();
        }
    }

    /// A name, or the prefix of a literal.
    fn name(&mut self, first: char) {
        let mut name = String::from(first);
        while let Some(char) = self.rest.peek().filter(|char| **char == '_' || char.is_alphanumeric()) {
            name.push(*char);
            self.next();
        }
        let hashes = self.rest.clone().take_while(|char| *char == '#').count();
        let behind = self.rest.clone().nth(hashes);
        match (name.as_str(), hashes, behind) {
            ("r" | "br" | "cr", _, Some('"')) => {
                for _ in 0..=hashes {
                    self.next();
                }
                self.raw_string(hashes);
            }
            ("b" | "c", 0, Some('"')) => {
                self.next();
                self.string();
            }
            ("b", 0, Some('\'')) => {
                self.next();
                self.quote();
            }
            _ => self.push(Token::Name(name)),
        }
    }
}
