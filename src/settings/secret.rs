//! Secret texts and URLs, which are masked wherever they are shown.

use std::fmt;

use serde::{Serialize, Serializer};

/// A URL that may contain a password. `Debug`, `Display` and JSON mask the password.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// A URL from any text, which is not checked.
    pub fn new(url: impl Into<String>) -> SecretUrl {
        SecretUrl(url.into())
    }

    /// The URL with its password.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// A text that `Debug` and JSON show as `hidden`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret from any text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hidden")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("hidden")
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&mask(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", mask(&self.0))
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&mask(&self.0))
    }
}

/// Masks the passwords of the URLs in `text`. Passwords are not always escaped, so it masks all
/// text between the first colon of the user part and the last `@`. It also masks every query
/// parameter with a word such as `token` in its name.
pub(super) fn mask(text: &str) -> String {
    // Any other text before `://` may contain a password.
    let of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(of_scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), text),
    };
    let rest = match rest.rsplit_once('@') {
        Some((credentials, host)) => match credentials.split_once(':') {
            Some((user, _password)) => format!("{user}:***@{host}"),
            None => format!("***@{host}"),
        },
        None => rest.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((address, query)) => {
            let masked: Vec<String> = query.split('&').map(mask_parameter).collect();
            format!("{address}?{}", masked.join("&"))
        }
        None => rest,
    };
    scheme + &rest
}

fn mask_parameter(parameter: &str) -> String {
    let (name, _value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let lower = name.to_ascii_lowercase();
    if ["pass", "auth", "token", "key", "secret"].iter().any(|word| lower.contains(word)) {
        return format!("{name}=***");
    }
    parameter.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_url_shows_its_password() {
        let table = [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://user:hunter2@host:1/0", "redis://user:***@host:1/0"),
            ("redis://:hunter2@host:1", "redis://:***@host:1"),
            ("redis://hunter2@host:1", "redis://***@host:1"),
            ("redis://u:hun@ter/2@host:1", "redis://u:***@host:1"),
            ("user:hunter2@host:1,host:2", "user:***@host:1,host:2"),
            ("redis-sentinel://h:1?sentinelPassword=hunter2&x=1", {
                "redis-sentinel://h:1?sentinelPassword=***&x=1"
            }),
            ("https://h/v1/traces?api_key=hunter2", "https://h/v1/traces?api_key=***"),
            ("redis://a:p@h:1,redis://b:hunter2@h:2", "redis://a:***@h:2"),
            ("user:hunter2@h:1,redis://h:2", "user:***@h:1,redis://h:2"),
            ("hunter2@redis://h:1", "***@redis://h:1"),
        ];
        for (url, masked) in table {
            let secret = SecretUrl::new(url);
            assert_eq!(secret.to_string(), masked);
            assert_eq!(format!("{secret:?}"), format!("{masked:?}"));
            assert_eq!(serde_json::to_value(&secret).expect("a text"), masked);
            assert_eq!(secret.reveal(), url);
        }
    }
}
