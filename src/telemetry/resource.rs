//! The OpenTelemetry resource: which service spans and metrics belong to.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource as SdkResource;

/// What this service is called, beside what `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// `service.name`; none: as the variables say, or weir.
    pub name: Option<String>,
    /// `service.namespace`.
    pub namespace: Option<String>,
    /// `service.instance.id`.
    pub instance_id: Option<String>,
}

impl Resource {
    pub(super) fn to_sdk(&self) -> SdkResource {
        let told = SdkResource::builder().build();
        let is_named = told.iter().any(|(key, value)| {
            key.as_str() == "service.name" && !value.as_str().starts_with("unknown_service")
        });
        let name = self.name.clone().or_else(|| (!is_named).then(|| "weir".to_owned()));
        let own = [
            ("service.name", name),
            ("service.namespace", self.namespace.clone()),
            ("service.instance.id", self.instance_id.clone()),
            ("service.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ];
        let own = own.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
        SdkResource::builder().with_attributes(own).build()
    }
}
