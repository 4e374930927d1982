//! The OpenTelemetry resource: the attributes of the service that sends spans and metrics.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::settings::TracingSettings;

/// The attributes of `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, overridden by those of
/// `settings`.
pub(super) fn resource(settings: &TracingSettings) -> Resource {
    let from_env = Resource::builder().build();
    let is_named = from_env.iter().any(|(key, value)| {
        key.as_str() == "service.name" && !value.as_str().starts_with("unknown_service")
    });
    let name = settings.service_name.clone().or_else(|| (!is_named).then(|| "weir".to_owned()));
    let own = [
        ("service.name", name),
        ("service.namespace", settings.service_namespace.clone()),
        ("service.instance.id", settings.service_instance_id.clone()),
        ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
    ];
    let own = own.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
    Resource::builder().with_attributes(own).build()
}
