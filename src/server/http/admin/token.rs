//! The bearer token of the admin port's protected paths.

use std::fmt;
use std::path::PathBuf;

use subtle::ConstantTimeEq;

use crate::bounded_file;
use crate::settings::AdminSettings;

/// The source of the token. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    /// The token itself, from the settings.
    Text(String),
    /// A file whose first line is the token. The file may change at any time.
    File(PathBuf),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

impl Token {
    /// The token in `settings`. `token_file` takes precedence over `token`.
    pub(in crate::server) fn from_settings(settings: &AdminSettings) -> Option<Token> {
        let text = || settings.token.as_ref().map(|token| Token::Text(token.reveal().into()));
        settings.token_file.clone().map(Token::File).or_else(text)
    }

    /// Checks `header`, the value of `authorization`. The comparison takes constant time for tokens
    /// of one length. Blocks while it reads a file.
    pub(super) fn is_in(&self, header: &[u8]) -> Result<(), String> {
        let expected = match self {
            Token::Text(text) => text.clone(),
            Token::File(path) => bounded_file::first_line(path).map_err(|error| {
                // The response omits the path, because the caller is not authenticated yet.
                tracing::warn!(path = %path.display(), %error, "admin.token_file cannot be read");
                "admin.token_file cannot be read; see the log for the cause".to_owned()
            })?,
        };
        let expected = expected.trim();
        let setting = match self {
            Token::Text(_) => "admin.token",
            Token::File(_) => "admin.token_file",
        };
        if expected.is_empty() {
            return Err(format!("{setting} has no token; set one"));
        }
        let (scheme, given) = header.split_at_checked(7).unwrap_or_default();
        let right = scheme.eq_ignore_ascii_case(b"bearer ")
            && bool::from(given.trim_ascii().ct_eq(expected.as_bytes()));
        if right { Ok(()) } else { Err(format!("the token is wrong; send that of {setting}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_bearer_token_is_accepted() {
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
        for empty in [Token::File(file.path().into()), Token::Text(String::new()), missing] {
            assert!(empty.is_in(b"Bearer ").is_err());
            assert!(empty.is_in(b"").is_err());
        }
    }
}
