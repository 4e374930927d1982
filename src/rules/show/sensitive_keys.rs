//! Recognises keys of entries whose values are probably secrets, by the words in them.

/// Words that mark a key, in lower case.
const WORDS: [&str; 31] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "auth",
    "authorization",
    "authtoken",
    "bearer",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "csrf",
    "idtoken",
    "jwt",
    "otp",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "refreshtoken",
    "secret",
    "secretkey",
    "secrets",
    "session",
    "sessionid",
    "sid",
    "signature",
    "token",
    "xcsrf",
    "xsrf",
];

/// Pairs of adjacent words that mark a key.
const PAIRS: [(&str, &str); 4] =
    [("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key")];

/// Whether values of `key` are probably secrets. Case does not matter. A word ends at a character that
/// is neither a letter nor a digit, and before a capital: `x-api-key`, `API_KEY` and `apiKey` all have
/// the words `api` and `key`.
pub fn is_sensitive(key: &str) -> bool {
    let words = words(key);
    words.iter().any(|word| WORDS.contains(&word.as_str()))
        || words.windows(2).any(|pair| PAIRS.contains(&(pair[0].as_str(), pair[1].as_str())))
}

fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in key.chars() {
        let begins = before.is_lowercase() && c.is_uppercase();
        if begins || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_documented() {
        let page = include_str!("../../../docs/operate/logs.md");
        let pairs = PAIRS.map(|(first, second)| format!("{first} {second}"));
        for word in WORDS.map(str::to_owned).iter().chain(&pairs) {
            assert!(page.contains(&format!("`{word}`")), "docs/operate/logs.md lacks `{word}`");
        }
    }

    #[test]
    fn keys_of_secrets_are_recognised() {
        for key in [
            "authorization",
            "Authorization",
            "proxy-authorization",
            "cookie",
            "set_cookie",
            "api_key",
            "x-api-key",
            "X-API-KEY",
            "apiKey",
            "apikey",
            "access.key",
            "token",
            "AccessToken",
            "id_token",
            "password",
            "user password",
            "client_secret",
            "sessionId",
            "x-amz-security-token",
        ] {
            assert!(is_sensitive(key), "{key}");
        }
        for key in [
            "",
            "user",
            "path",
            ":authority",
            "author",
            "key",
            "monkey",
            "generic_key",
            "remote_address",
            "tokens",
            "total_tokens",
            "tokenizer",
            "secretary",
            "model",
            "\u{202e}",
        ] {
            assert!(!is_sensitive(key), "{key}");
        }
        assert!(WORDS.is_sorted());
    }
}
