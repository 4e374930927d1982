//! This module maps the settings of Redis to what the store takes.

use crate::settings::Settings;
use crate::store::redis::{RedisConfig, RedisTls};

/// How Redis is reached. `cores` share the connections.
pub(super) fn redis(settings: &Settings, cores: usize) -> RedisConfig {
    let from = &settings.redis;
    RedisConfig {
        url: from.url.reveal().to_owned(),
        username: from.username.clone(),
        password_file: from.password_file.clone(),
        tls: RedisTls {
            ca: from.tls_ca.clone(),
            cert: from.tls_cert.clone(),
            key: from.tls_key.clone(),
            skip_hostname_check: from.tls_skip_hostname_check,
        },
        connections: from.pool_size.div_ceil(cores.max(1)),
        batch: from.batch,
    }
}
