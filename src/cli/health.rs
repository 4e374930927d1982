//! `weir health`: asks a running service whether it serves, for health checks of containers without
//! a shell.

use std::io::Write;

use clap::Args;

use super::client::ServiceArgs;
use super::{exit, say_error};
use crate::proto::grpc::health::v1::HealthCheckRequest;
use crate::proto::grpc::health::v1::health_check_response::ServingStatus;
use crate::proto::grpc::health::v1::health_client::HealthClient;

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Name whose health is asked for; empty for the whole server.
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Calls `grpc.health.v1.Health/Check`. Returns the exit code: 0 for SERVING, 1 for any other status,
/// 69 without a response.
pub(super) fn run(args: &HealthArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request = HealthCheckRequest { service: args.name.clone() };
    let check =
        args.service.call(|channel| async move { HealthClient::new(channel).check(request).await });
    match runtime.block_on(check) {
        Ok(response) => {
            let status = response.into_inner().status();
            writeln!(std::io::stdout().lock(), "{}", status.as_str_name())?;
            Ok(if status == ServingStatus::Serving { 0 } else { exit::NEGATIVE })
        }
        Err(error) => {
            say_error(&error);
            Ok(exit::UNAVAILABLE)
        }
    }
}
