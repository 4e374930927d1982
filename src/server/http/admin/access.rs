//! Access to the protected paths of the admin port: the token, or loopback if there is none.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use super::{Token, refusal};

/// Who may access protected paths: callers with the token. Without a token, any caller if the port
/// listens on loopback, else none.
#[derive(Clone)]
pub(in crate::server) struct AdminAccess {
    pub(in crate::server) token: Option<Token>,
    pub(in crate::server) loopback: bool,
}

/// `routes`, for callers with access only.
pub(super) fn protect(routes: Router, access: AdminAccess) -> Router {
    routes.route_layer(from_fn_with_state(access, require_access))
}

/// Rejects callers without access with 403.
async fn require_access(
    State(access): State<AdminAccess>,
    request: Request,
    next: Next,
) -> Response {
    let refused = match access.token {
        None if access.loopback => return next.run(request).await,
        None => "admin.listen is not a loopback address, and there is no admin.token; set \
                 admin.token_file or admin.token, or listen on loopback"
            .to_owned(),
        Some(token) => {
            let header = request.headers().get(AUTHORIZATION);
            let Some(header) = header.map(|value| value.as_bytes().to_vec()) else {
                let reason =
                    "no authorization; send `Authorization: Bearer TOKEN`, see admin.token";
                return refusal(StatusCode::FORBIDDEN, reason);
            };
            // Reading a file may be slow, and this thread also accepts connections.
            match tokio::task::spawn_blocking(move || token.is_in(&header)).await {
                Ok(Ok(())) => return next.run(request).await,
                Ok(Err(reason)) => reason,
                Err(error) => error.to_string(),
            }
        }
    };
    refusal(StatusCode::FORBIDDEN, refused)
}
