//! The files of the live page: `/` for browsers, and `/ui/NAME`. They are in the binary.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha1_smol::Sha1;

use super::{INDEX, refusal};

/// A file of the page.
struct UiFile {
    name: &'static str,
    bytes: &'static [u8],
}

/// The files of the folder `ui/`, one row each.
macro_rules! ui_files {
    ($($name:literal),+ $(,)?) => {
        &[$(UiFile {
            name: $name,
            bytes: include_bytes!(concat!("../../../../ui/", $name)),
        }),+]
    };
}

/// Every file of `ui/`. A test compares the list with the folder.
const FILES: &[UiFile] = ui_files![
    "api.js",
    "app.js",
    "changes.js",
    "chart.js",
    "dom.js",
    "format.js",
    "icon.svg",
    "index.html",
    "live.js",
    "rule_detail.js",
    "sse.js",
    "style.css",
    "tiers.js",
    "view_counter.js",
    "view_health.js",
    "view_limited.js",
    "view_quotas.js",
    "view_rules.js",
    "view_try.js",
];

/// What a browser may load and run for the page: the files of this port, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The routes of the page. Without it (`admin.page: false`), `/` is the index for all clients.
pub(super) fn router(has_page: bool) -> Router {
    let root = move |headers: HeaderMap| async move {
        match has_page && prefers_html(&headers) {
            true => file("index.html", &headers),
            false => ([(VARY, "accept")], INDEX).into_response(),
        }
    };
    let named = move |Path(name): Path<String>, headers: HeaderMap| async move {
        match has_page {
            true => file(&name, &headers),
            false => switched_off(),
        }
    };
    Router::new().route("/", get(root)).route("/ui/{file}", get(named))
}

/// The response for a part of the page while `admin.page` is off.
pub(super) fn switched_off() -> Response {
    refusal(StatusCode::NOT_FOUND, "the live page is off; set admin.page to true")
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else {
        return refusal(StatusCode::NOT_FOUND, "the live page has no such file; open `/`");
    };
    let tag = format!("\"{}\"", Sha1::from(file.bytes).digest());
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| is_tag(one, &tag)));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(CONTENT_TYPE, content_type(name))], file.bytes).into_response(),
    };
    let head = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (VARY, "accept"),
    ] {
        head.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        head.insert(ETAG, tag);
    }
    response
}

/// Whether `sent`, one item of `If-None-Match`, is the tag.
fn is_tag(sent: &str, tag: &str) -> bool {
    let sent = sent.trim();
    sent == "*" || sent.strip_prefix("W/").unwrap_or(sent) == tag
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Whether a client names HTML, and prefers it to plain text: browsers do, and curl does not.
fn prefers_html(headers: &HeaderMap) -> bool {
    let quality = |wanted: &str| {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut items = values.flat_map(|value| value.split(','));
        items.find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next().filter(|kind| kind.eq_ignore_ascii_case(wanted))?;
            let q = parts.find_map(|part| part.strip_prefix("q="));
            Some(q.map_or(1.0, |q| q.parse::<f64>().unwrap_or(0.0)))
        })
    };
    let html = quality("text/html").unwrap_or(0.0);
    html > 0.0 && html >= quality("text/plain").unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");
        let entries = std::fs::read_dir(folder).expect("the folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
        let names: BTreeSet<String> = names.map(|name| name.expect("UTF-8")).collect();
        let listed: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(names, listed, "correct FILES");
        for name in names {
            assert_ne!(content_type(&name), "application/octet-stream", "{name}");
        }
    }

    #[test]
    fn browsers_prefer_html() {
        for (accept, prefers) in [
            (None, false),
            (Some("*/*"), false),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), true),
            (Some("text/plain, text/html;q=0.5"), false),
            (Some("text/html; q=0.9, text/plain;q=0.5"), true),
            (Some("TEXT/HTML"), true),
            (Some("text/html;q=0"), false),
            (Some("text/html;q=x"), false),
            (Some("application/json"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(prefers_html(&headers), prefers, "{accept:?}");
        }
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let first = file("app.js", &HeaderMap::new());
        assert_eq!(
            (first.status(), &first.headers()[CACHE_CONTROL]),
            (StatusCode::OK, &HeaderValue::from_static("no-cache"))
        );
        let tag = first.headers()[ETAG].clone();
        for (sent, status) in [
            (tag.clone(), StatusCode::NOT_MODIFIED),
            (HeaderValue::from_static("*"), StatusCode::NOT_MODIFIED),
            (HeaderValue::from_static("\"other\""), StatusCode::OK),
        ] {
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, sent)]);
            assert_eq!(file("app.js", &headers).status(), status);
        }
        assert_eq!(file("../Cargo.toml", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }
}
