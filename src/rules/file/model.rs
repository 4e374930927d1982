//! Reads the fields of a rule file into raw types, before their values are interpreted.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::MapKind;
use super::options::DeniedRequests;
use super::problem::{Location, Position};
use super::raw_calendar::RawCalendar;
use super::raw_cost::RawCost;
use super::raw_limit_from::RawLimitFrom;
use super::reader::{Field, FieldReader, Text};
use super::scalar;
use crate::rules::excerpt::shorten;
use crate::time::Micros;
use crate::yaml::{Name, Node};

/// One document of a file, or one resource by xDS.
#[derive(Debug)]
pub(in crate::rules) struct Document {
    pub(in crate::rules) file: Arc<str>,
    /// The version of a resource by xDS; `None` for a file.
    pub(in crate::rules) version: Option<Arc<str>>,
    pub(in crate::rules) domain: Option<Text>,
    pub(in crate::rules) denied_requests: Option<Field<DeniedRequests>>,
    pub(in crate::rules) descriptors: Vec<RawDescriptor>,
}

/// An item of `descriptors`. The fields that few items have are those of [`RareFields`].
#[derive(Debug, Default)]
pub(in crate::rules) struct RawDescriptor {
    pub(in crate::rules) at: Position,
    /// The resource that sent the descriptor by xDS; `None` for a file.
    pub(in crate::rules) origin: Option<Arc<Location>>,
    pub(in crate::rules) key: Option<Text>,
    pub(in crate::rules) value: Option<Text>,
    pub(in crate::rules) rate_limit: Option<Box<RawRateLimit>>,
    pub(in crate::rules) descriptors: Vec<RawDescriptor>,
    pub(in crate::rules) rare: Option<Box<RareFields>>,
}

/// The other fields of a [`RawDescriptor`]. They take memory only if one is set, because a million
/// descriptors are in memory at the same time.
#[derive(Debug, Default)]
pub(in crate::rules) struct RareFields {
    /// The overlays that changed `rate_limit`.
    pub(in crate::rules) overlays: Vec<Location>,
    pub(in crate::rules) value_template: Option<Text>,
    pub(in crate::rules) value_regex: Option<Text>,
    pub(in crate::rules) value_cidr: Option<Text>,
    pub(in crate::rules) count_by: Option<Field<Vec<Text>>>,
    pub(in crate::rules) shadow_mode: Option<Field<bool>>,
    pub(in crate::rules) quota_mode: Option<Field<bool>>,
    pub(in crate::rules) detailed_metric: Option<Field<bool>>,
    pub(in crate::rules) value_to_metric: Option<Field<bool>>,
    pub(in crate::rules) share_threshold: Option<Field<bool>>,
    pub(in crate::rules) metadata: Option<Field<Map<String, Value>>>,
}

impl Deref for RawDescriptor {
    type Target = RareFields;

    fn deref(&self) -> &RareFields {
        static NONE: RareFields = RareFields {
            overlays: Vec::new(),
            value_template: None,
            value_regex: None,
            value_cidr: None,
            count_by: None,
            shadow_mode: None,
            quota_mode: None,
            detailed_metric: None,
            value_to_metric: None,
            share_threshold: None,
            metadata: None,
        };
        self.rare.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for RawDescriptor {
    fn deref_mut(&mut self) -> &mut RareFields {
        self.rare.get_or_insert_default()
    }
}

/// The map under `rate_limit`. The fields that few maps have are those of [`RareLimitFields`].
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawRateLimit {
    pub(in crate::rules) at: Position,
    /// The only tier of a map without `tiers`.
    pub(in crate::rules) tier: RawTier,
    pub(in crate::rules) name: Option<Text>,
    pub(in crate::rules) rare: Option<Box<RareLimitFields>>,
}

/// The other fields of a [`RawRateLimit`].
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RareLimitFields {
    pub(in crate::rules) algorithm: Option<Text>,
    pub(in crate::rules) unlimited: Option<Field<bool>>,
    pub(in crate::rules) tiers: Option<Field<Vec<RawTier>>>,
    pub(in crate::rules) max: Option<Field<u64>>,
    pub(in crate::rules) hold: Option<Field<Micros>>,
    pub(in crate::rules) count_denied: Option<Field<bool>>,
    pub(in crate::rules) reserve: Option<RawReserve>,
    pub(in crate::rules) on_error: Option<Text>,
    pub(in crate::rules) mode: Option<Text>,
    pub(in crate::rules) sync_interval: Option<Field<Micros>>,
    pub(in crate::rules) over_limit_cache: Option<Field<bool>>,
    pub(in crate::rules) cost: Option<Field<RawCost>>,
    /// Only `tiers` and the fields of a tier are set.
    pub(in crate::rules) shadow: Option<Box<RawRateLimit>>,
    pub(in crate::rules) limit_from: Option<RawLimitFrom>,
    pub(in crate::rules) usage: Option<Field<bool>>,
    pub(in crate::rules) log: Option<Text>,
    pub(in crate::rules) replaces: Vec<Text>,
}

impl Deref for RawRateLimit {
    type Target = RareLimitFields;

    fn deref(&self) -> &RareLimitFields {
        static NONE: RareLimitFields = RareLimitFields {
            algorithm: None,
            unlimited: None,
            tiers: None,
            max: None,
            hold: None,
            count_denied: None,
            reserve: None,
            on_error: None,
            mode: None,
            sync_interval: None,
            over_limit_cache: None,
            cost: None,
            shadow: None,
            limit_from: None,
            usage: None,
            log: None,
            replaces: Vec::new(),
        };
        self.rare.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for RawRateLimit {
    fn deref_mut(&mut self) -> &mut RareLimitFields {
        self.rare.get_or_insert_default()
    }
}

/// An item of `tiers`, or the same fields directly under `rate_limit`.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawTier {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) unit: Option<Text>,
    pub(in crate::rules) requests_per_unit: Option<Field<u64>>,
    pub(in crate::rules) unit_multiplier: Option<Field<u64>>,
    pub(in crate::rules) requests: Option<Field<u64>>,
    /// `window` as a length of time.
    pub(in crate::rules) window: Option<Field<Micros>>,
    /// `window` as a map.
    pub(in crate::rules) calendar: Option<Box<RawCalendar>>,
    pub(in crate::rules) burst: Option<Field<u64>>,
}

/// The map under `reserve`.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawReserve {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) hold: Option<Field<Micros>>,
}

impl RawTier {
    /// The position of `window`, in either form.
    pub(in crate::rules) fn window_at(&self) -> Option<Position> {
        let calendar = self.calendar.as_ref().map(|window| window.at);
        self.window.as_ref().map(|field| field.at).or(calendar)
    }
}

impl RawDescriptor {
    /// The position in `file`, or the resource.
    pub(in crate::rules) fn location(&self, file: &Arc<str>) -> Location {
        self.origin.as_deref().cloned().unwrap_or_else(|| self.at.in_file(file))
    }
}

impl FieldReader<'_> {
    /// Reads one document; `None` when it is empty or not a map.
    pub(in crate::rules) fn document(&mut self, node: Node) -> Option<Document> {
        if node.is_null() {
            return None;
        }
        let entries =
            self.rule_map(node, "a rule file", "write `domain: NAME` and `descriptors:`")?;
        let mut document = Document {
            file: Arc::clone(self.file),
            version: None,
            domain: None,
            denied_requests: None,
            descriptors: Vec::new(),
        };
        for (name, node) in entries {
            match &*name.text {
                "domain" => document.domain = self.text(&name, node),
                "descriptors" => document.descriptors = self.descriptors(node),
                "denied_requests" => document.denied_requests = self.denied_requests(&name, node),
                _ => self.unknown_field(MapKind::File, &name, &node),
            }
        }
        Some(document)
    }

    fn descriptors(&mut self, node: Node) -> Vec<RawDescriptor> {
        let hint = "write each descriptor as an item that begins with `- key:`";
        let items = self.rule_list(node, "`descriptors`", hint);
        // With room for all: the last of many growing lists would need twice the memory.
        let mut descriptors = Vec::with_capacity(items.len());
        descriptors.extend(items.into_iter().filter_map(|item| self.descriptor(item)));
        descriptors
    }

    fn descriptor(&mut self, node: Node) -> Option<RawDescriptor> {
        let at = node.at;
        let entries =
            self.rule_map(node, "an item of `descriptors`", "begin it with `- key: NAME`")?;
        let mut descriptor = RawDescriptor { at, ..RawDescriptor::default() };
        for (name, node) in entries {
            let it = &mut descriptor;
            match &*name.text {
                "key" => it.key = self.text(&name, node),
                "value" => it.value = self.text(&name, node),
                "value_template" => it.value_template = self.text(&name, node),
                "value_regex" => it.value_regex = self.text(&name, node),
                "value_cidr" => it.value_cidr = self.text(&name, node),
                "count_by" => it.count_by = self.texts(&name, node),
                "rate_limit" => it.rate_limit = self.rate_limit(node).map(Box::new),
                "descriptors" => it.descriptors = self.descriptors(node),
                "shadow_mode" => it.shadow_mode = self.flag(&name, node),
                "quota_mode" => it.quota_mode = self.flag(&name, node),
                "detailed_metric" => it.detailed_metric = self.flag(&name, node),
                "value_to_metric" => it.value_to_metric = self.flag(&name, node),
                "share_threshold" => it.share_threshold = self.flag(&name, node),
                "metadata" => it.metadata = self.metadata(node),
                _ => self.unknown_field(MapKind::Descriptor, &name, &node),
            }
        }
        Some(descriptor)
    }

    pub(super) fn rate_limit(&mut self, node: Node) -> Option<RawRateLimit> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let hint = "write `unit:` and `requests_per_unit:` below it";
        let entries = self.rule_map(node, "`rate_limit`", hint)?;
        let mut limit = RawRateLimit { at, ..RawRateLimit::default() };
        limit.tier.at = at;
        for (name, node) in entries {
            let it = &mut limit;
            match &*name.text {
                "algorithm" => it.algorithm = self.text(&name, node),
                "unlimited" => it.unlimited = self.flag(&name, node),
                "tiers" => it.tiers = self.tiers(node),
                "max" => it.max = self.number(&name, node),
                "hold" => it.hold = self.duration(&name, node),
                "count_denied" => it.count_denied = self.flag(&name, node),
                "reserve" => it.reserve = self.reserve(node),
                "on_error" => it.on_error = self.text(&name, node),
                "mode" => it.mode = self.text(&name, node),
                "sync_interval" => it.sync_interval = self.duration(&name, node),
                "over_limit_cache" => it.over_limit_cache = self.flag(&name, node),
                "cost" => it.cost = self.cost(node),
                "shadow" => it.shadow = self.shadow(node),
                "limit_from" => it.limit_from = self.limit_from(node),
                "usage" => it.usage = self.flag(&name, node),
                "log" => it.log = self.text(&name, node),
                "name" => it.name = self.text(&name, node),
                "replaces" => it.replaces = self.replaces(node),
                _ => {
                    if let Some(node) = self.tier_field(&mut it.tier, &name, node) {
                        self.unknown_field(MapKind::RateLimit, &name, &node);
                    }
                }
            }
        }
        Some(limit)
    }

    pub(super) fn tiers(&mut self, node: Node) -> Option<Field<Vec<RawTier>>> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let hint = "write items like `- { requests: 100, window: 10s }`";
        let mut tiers = Vec::new();
        for item in self.list(node, "`tiers`", hint) {
            let mut tier = RawTier { at: item.at, ..RawTier::default() };
            let Some(entries) = self.map(item, "an item of `tiers`", hint) else { continue };
            for (name, node) in entries {
                if let Some(node) = self.tier_field(&mut tier, &name, node) {
                    self.unknown_field(MapKind::Tier, &name, &node);
                }
            }
            tiers.push(tier);
        }
        Some(Field { at, value: Some(tiers) })
    }

    /// Reads a field of a tier; returns the node when the field is not one of a tier.
    pub(super) fn tier_field(
        &mut self,
        tier: &mut RawTier,
        name: &Name,
        node: Node,
    ) -> Option<Node> {
        match &*name.text {
            "unit" => tier.unit = self.text(name, node),
            "requests_per_unit" => tier.requests_per_unit = self.number(name, node),
            "unit_multiplier" => tier.unit_multiplier = self.number(name, node),
            "requests" => tier.requests = self.number(name, node),
            "window" => (tier.window, tier.calendar) = self.window(name, node),
            "burst" => tier.burst = self.number(name, node),
            _ => return Some(node),
        }
        None
    }

    fn reserve(&mut self, node: Node) -> Option<RawReserve> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let entries = self.map(node, "`reserve`", "write `reserve: { hold: 10m }`")?;
        let mut reserve = RawReserve { at, hold: None };
        for (name, node) in entries {
            match &*name.text {
                "hold" => reserve.hold = self.duration(&name, node),
                _ => self.unknown_field(MapKind::Reserve, &name, &node),
            }
        }
        Some(reserve)
    }

    fn replaces(&mut self, node: Node) -> Vec<Text> {
        let hint = "write items like `- name: other_rule`";
        let mut names = Vec::new();
        for item in self.list(node, "`replaces`", hint) {
            let at = item.at;
            let Some(entries) = self.map(item, "an item of `replaces`", hint) else { continue };
            let mut target = None;
            for (name, node) in entries {
                match &*name.text {
                    "name" => target = self.text(&name, node),
                    _ => self.unknown_field(MapKind::Replaces, &name, &node),
                }
            }
            names.push(target.unwrap_or(Field { at, value: Some(Arc::from("")) }));
        }
        names
    }

    fn metadata(&mut self, node: Node) -> Option<Field<Map<String, Value>>> {
        if node.is_null() {
            return None;
        }
        let at = node.at;
        let entries = self.map(node, "`metadata`", "write names and values below it")?;
        let value = match scalar::json_map(&entries) {
            Ok(map) => Some(map),
            Err((at, why)) => {
                let what = format!("a value in `metadata` cannot be sent: {why}");
                self.error(at, what, "put it in quotes");
                None
            }
        };
        Some(Field { at, value })
    }

    fn denied_requests(&mut self, name: &Name, node: Node) -> Option<Field<DeniedRequests>> {
        let text = self.text(name, node)?;
        let value = text.value.as_deref().and_then(|word| {
            let found = DeniedRequests::from_name(word);
            if found.is_none() {
                let what = format!("`denied_requests` cannot be `{}`", shorten(word));
                self.error(text.at, what, "write `count` or `free`");
            }
            found
        });
        Some(Field { at: text.at, value })
    }
}
