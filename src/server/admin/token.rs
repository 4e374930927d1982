//! The token: what a caller must know to see and empty counters.

use std::fmt;
use std::path::PathBuf;

use subtle::ConstantTimeEq;

use crate::secret_file;
use crate::settings::AdminSettings;

/// Where the token is. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    /// Here.
    Text(String),
    /// In the first line of a file, which may change.
    File(PathBuf),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

impl Token {
    /// The token of `settings`; a file takes precedence.
    pub(in crate::server) fn from_settings(settings: &AdminSettings) -> Option<Token> {
        let text = || settings.token.as_ref().map(|token| Token::Text(token.reveal().into()));
        settings.token_file.clone().map(Token::File).or_else(text)
    }

    /// Whether `header`, the value of `authorization`, has the token. Takes as long for a wrong one
    /// as for another of its length. Reads a file: not for a thread that must not wait.
    pub(super) fn is_in(&self, header: &[u8]) -> Result<(), String> {
        let expected = match self {
            Token::Text(text) => text.clone(),
            Token::File(path) => secret_file::first_line(path).map_err(|error| {
                // Without the path: whoever asks is not known yet.
                tracing::warn!(path = %path.display(), %error, "admin.token_file cannot be read");
                "admin.token_file cannot be read; the log says why".to_owned()
            })?,
        };
        let expected = expected.trim();
        if expected.is_empty() {
            return Err("the token is empty, so nobody has it".to_owned());
        }
        let (scheme, given) = header.split_at_checked(7).unwrap_or_default();
        let right = scheme.eq_ignore_ascii_case(b"bearer ")
            && bool::from(given.trim_ascii().ct_eq(expected.as_bytes()));
        if right { Ok(()) } else { Err("the token is another one".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_of_a_bearer_will_do() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "s3cret\nmore\n").expect("it can be written");
        for token in [Token::Text("s3cret".into()), Token::File(file.path().into())] {
            for (header, right) in [
                ("Bearer s3cret", true),
                ("bearer  s3cret ", true),
                ("Bearer s3cre", false),
                ("Bearer s3crets", false),
                ("Bearer S3cret", false),
                ("Bearer ", false),
                ("Basic s3cret", false),
                ("s3cret", false),
                ("", false),
            ] {
                assert_eq!(token.is_in(header.as_bytes()).is_ok(), right, "{header:?}");
            }
            assert_eq!(format!("{token:?}"), "hidden");
        }
        std::fs::write(file.path(), "new").expect("it can be written");
        assert!(Token::File(file.path().into()).is_in(b"Bearer new").is_ok(), "it was rotated");
        std::fs::write(file.path(), "\n").expect("it can be written");
        let missing = Token::File("/nonexistent".into());
        for nobody in [Token::File(file.path().into()), Token::Text(String::new()), missing] {
            assert!(nobody.is_in(b"Bearer ").is_err());
            assert!(nobody.is_in(b"").is_err());
        }
    }
}
