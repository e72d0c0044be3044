//! The token that whoever asks over the network must know.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rekindle::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

/// Fewer characters than this are guessed.
const SHORTEST: usize = 16;

/// A secret that requests carry as `Authorization: Bearer …`. Kept as its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(blake3::Hash);

impl Token {
    /// The token with this text: at least 16 characters, such as stand in a header.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = Zeroizing::new(text.into());
        let text = text.trim();
        if text.len() < SHORTEST {
            return Err(Error::invalid("the token is too short")
                .hint("use at least 16 characters, e.g. what `openssl rand -hex 32` prints"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid("the token has characters that cannot stand in a header")
                .hint("use letters and digits, e.g. what `openssl rand -hex 32` prints"));
        }
        Ok(Self(blake3::hash(text.as_bytes())))
    }

    /// A new token of 32 random bytes, and its text, which is kept nowhere else.
    pub fn generate() -> Result<(Self, Zeroizing<String>)> {
        let mut bytes = Zeroizing::new([0_u8; 32]);
        getrandom::fill(bytes.as_mut_slice()).map_err(|error| {
            Error::new(ErrorKind::StoreUnavailable, "the system gives no random bytes").because(error)
        })?;
        let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_slice()));
        Ok((Self::new(text.as_str())?, text))
    }

    /// Whether the value of an `Authorization` header carries this token. How long that takes says
    /// nothing of the token: hashes are compared, in constant time.
    pub fn is_in(&self, authorization: &[u8]) -> bool {
        let Some((scheme, given)) = authorization.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && blake3::hash(given.trim_ascii()) == self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_opens() {
        let token = Token::new("0123456789abcdef\n").unwrap();
        let check = |header: &str, expected| assert_eq!(token.is_in(header.as_bytes()), expected, "{header:?}");
        check("Bearer 0123456789abcdef", true);
        check("bearer 0123456789abcdef", true);
        check("Bearer 0123456789abcdeF", false);
        check("Bearer 0123456789abcdef0", false);
        check("Bearer ", false);
        check("Bearer", false);
        check("", false);
        check("Basic 0123456789abcdef", false);
        check("0123456789abcdef", false);
    }

    #[test]
    fn generated_tokens_differ_and_fit_a_header() {
        let (first, text) = Token::generate().unwrap();
        let (second, other) = Token::generate().unwrap();
        assert_eq!(text.len(), 43);
        assert!(first != second && *text != *other);
        assert!(first.is_in(format!("Bearer {}", *text).as_bytes()));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", "short", "               ", "0123456789 abcdefg", "0123456789äbcdefgh"] {
            assert!(Token::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn it_is_not_shown() {
        assert_eq!(format!("{:?}", Token::new("0123456789abcdef").unwrap()), "Token(…)");
    }
}
