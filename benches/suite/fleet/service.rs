//! The instances of a fleet: which builds and settings are measured.

use std::path::Path;

use anyhow::Context;

use crate::child::Server;
use crate::envoy_ratelimit::{EnvoyRatelimit, PIPELINES};
use crate::redis::Redis;

/// The instances of a fleet.
#[derive(Clone, Copy)]
pub(crate) enum Service {
    /// weir with this algorithm, and this value of `redis.functions`.
    Weir { algorithm: &'static str, functions: &'static str },
    /// The build before with fixed_window and the default of `redis.functions`.
    WeirBefore,
    /// envoyproxy/ratelimit with these variables.
    EnvoyRatelimit { variables: &'static [(&'static str, &'static str)] },
}

pub(super) const FIXED_WINDOW: &str = "weir, fixed_window";
/// The same by the build before.
pub(super) const BEFORE: &str = "weir, fixed_window, the build before";
/// envoyproxy/ratelimit without and with pipelines.
pub(crate) const ENVOY_RATELIMIT: [&str; 2] =
    ["envoyproxy/ratelimit", "envoyproxy/ratelimit, with pipelines"];

/// The measured services, by their names in the figures.
pub(crate) const SERVICES: [(&str, Service); 9] = [
    (FIXED_WINDOW, weir("fixed_window")),
    ("weir, sliding_window", weir("sliding_window")),
    ("weir, token_bucket", weir("token_bucket")),
    ("weir, leaky_bucket", weir("leaky_bucket")),
    ("weir, sliding_window_log", weir("sliding_window_log")),
    (
        "weir, fixed_window, redis.functions: off",
        Service::Weir { algorithm: "fixed_window", functions: "off" },
    ),
    (BEFORE, Service::WeirBefore),
    (ENVOY_RATELIMIT[0], Service::EnvoyRatelimit { variables: &[] }),
    (ENVOY_RATELIMIT[1], Service::EnvoyRatelimit { variables: PIPELINES }),
];

const fn weir(algorithm: &'static str) -> Service {
    Service::Weir { algorithm, functions: "auto" }
}

/// What the services run that are not this build of weir.
pub(super) struct Builds<'a> {
    pub(super) before: Option<&'a Path>,
    pub(super) envoy_ratelimit: Option<EnvoyRatelimit>,
}

impl Service {
    pub(super) fn is_weir(self) -> bool {
        !matches!(self, Service::EnvoyRatelimit { .. })
    }

    pub(super) fn has_build(self, builds: &Builds) -> bool {
        match self {
            Service::Weir { .. } => true,
            Service::WeirBefore => builds.before.is_some(),
            Service::EnvoyRatelimit { .. } => builds.envoy_ratelimit.is_some(),
        }
    }

    pub(super) fn write_rules(self, folder: &Path) -> anyhow::Result<()> {
        if let Service::Weir { algorithm, .. } = self {
            let mut rules = crate::rules(algorithm);
            if algorithm == "sliding_window_log" {
                // A log may have at most 100 000 entries. No counter has more than a few hits.
                rules = rules.replace("1000000", "1000");
            }
            crate::written(folder, &rule_file(algorithm), &rules)?;
        }
        Ok(())
    }

    pub(super) fn start(
        self,
        folder: &Path,
        builds: &Builds,
        redis: &Redis,
    ) -> anyhow::Result<Server> {
        let url = redis.url();
        let settings = [
            ("WEIR__STORE__KIND", "redis"),
            // A decision by the fallback would cost Redis less.
            ("WEIR__STORE__TIMEOUT", "1s"),
            ("WEIR__REDIS__URL", url.as_str()),
        ];
        match self {
            Service::Weir { algorithm, functions } => {
                let settings = [&settings[..], &[("WEIR__REDIS__FUNCTIONS", functions)]].concat();
                Server::weir(&folder.join(rule_file(algorithm)), &settings)
            }
            Service::WeirBefore => {
                let before = builds.before.context("a build of weir")?;
                Server::program(before, &folder.join(rule_file("fixed_window")), &settings)
            }
            Service::EnvoyRatelimit { variables } => {
                let build = builds.envoy_ratelimit.as_ref();
                let build = build.context("a build of envoyproxy/ratelimit")?;
                build.start(redis.address(), variables)
            }
        }
    }
}

fn rule_file(algorithm: &str) -> String {
    format!("{algorithm}.yaml")
}
