//! The page of limited counters, with the descriptors that the caller may read.

use super::admin_client::{AdminArgs, AdminResponse};

/// The response of `/limited`. Without a token, a protected port answers with `/top` instead, which has
/// hashes of counters.
///
/// # Errors
///
/// No response with JSON.
pub(super) fn limited(admin: &AdminArgs) -> anyhow::Result<AdminResponse> {
    let response = admin.get("/limited")?;
    if response.status == 403 && !admin.has_token() {
        return admin.get("/top");
    }
    Ok(response)
}
