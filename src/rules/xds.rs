//! Rules by xDS: decodes the resources of a response and merges them with the active ones.

/// One entry of `resources` of a DiscoveryResponse.
#[derive(Clone, Copy, Debug)]
pub struct XdsResource<'a> {
    /// The type of the resource, as the entry names it.
    pub type_url: &'a str,
    /// The encoded resource.
    pub value: &'a [u8],
}
