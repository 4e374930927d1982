//! What tests of plans read from a running weir: the page `/plans`, and the calls that a customer has left.

use serde_json::Value;

use super::http::get;
use super::rls::Client;
use super::wait::until;
use super::weir::Weir;

/// The remaining calls of the customer `api_key` in domain `d`.
pub(crate) fn left(client: &Client, customer: &str) -> u32 {
    client.remaining("d", &[("api_key", customer)])
}

/// The page `/plans`.
pub(crate) fn page(weir: &Weir) -> Value {
    get(weir.admin, "/plans").json()
}

/// Waits for an error at `/plans` with `part` in it, or for none.
pub(crate) fn until_error(weir: &Weir, part: Option<&str>) {
    until(&format!("the error {part:?}"), || {
        let page = page(weir);
        match (page["last_error"].as_str(), part) {
            (Some(error), Some(part)) => error.contains(part),
            (error, part) => error.is_none() && part.is_none(),
        }
    });
}
