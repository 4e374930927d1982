//! Reads the map under `window` into raw types, before its values are interpreted.

use super::fields::MapKind;
use super::problem::Position;
use super::reader::{Field, FieldReader, Text};
use crate::limit::Period;
use crate::time::Micros;
use crate::yaml::{Name, Node, NodeKind};

/// The map under `window`.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawCalendar {
    pub(in crate::rules) at: Position,
    pub(in crate::rules) calendar: Option<Text>,
    pub(in crate::rules) zone: Option<Text>,
    pub(in crate::rules) starts: Option<RawStarts>,
}

/// The map under `starts`.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct RawStarts {
    pub(in crate::rules) month: Option<Field<u64>>,
    pub(in crate::rules) day: Option<Field<u64>>,
    pub(in crate::rules) weekday: Option<Text>,
    pub(in crate::rules) hour: Option<Field<u64>>,
}

impl FieldReader<'_> {
    /// Reads the `window` of a tier: a length of time, or a map.
    pub(super) fn window(
        &mut self,
        name: &Name,
        node: Node,
    ) -> (Option<Field<Micros>>, Option<Box<RawCalendar>>) {
        if matches!(node.kind, NodeKind::Map(_)) {
            return (None, self.calendar(node).map(Box::new));
        }
        let period = match &node.kind {
            NodeKind::Scalar(scalar) => Period::from_name(&scalar.text).map(Period::name),
            NodeKind::List(_) | NodeKind::Map(_) => None,
        };
        let Some(period) = period else { return (self.duration(name, node), None) };
        let what = format!("`window` cannot be `{period}`: it must be a length of time");
        let hint = format!("write `window: {{ calendar: {period} }}`, or a length like 30d");
        self.error(node.at, what, hint);
        (Some(Field { at: node.at, value: None }), None)
    }

    fn calendar(&mut self, node: Node) -> Option<RawCalendar> {
        let at = node.at;
        let entries = self.map(node, "`window`", "write `window: { calendar: month }`")?;
        let mut calendar = RawCalendar { at, ..RawCalendar::default() };
        for (name, node) in entries {
            match &*name.text {
                "calendar" => calendar.calendar = self.text(&name, node),
                "zone" => calendar.zone = self.text(&name, node),
                "starts" => calendar.starts = self.starts(node),
                _ => self.unknown_field(MapKind::Window, &name, &node),
            }
        }
        Some(calendar)
    }

    fn starts(&mut self, node: Node) -> Option<RawStarts> {
        if node.is_null() {
            return None;
        }
        let entries = self.map(node, "`starts`", "write `starts: { day: 15, hour: 6 }`")?;
        let mut starts = RawStarts::default();
        for (name, node) in entries {
            match &*name.text {
                "month" => starts.month = self.number(&name, node),
                "day" => starts.day = self.number(&name, node),
                "weekday" => starts.weekday = self.text(&name, node),
                "hour" => starts.hour = self.number(&name, node),
                _ => self.unknown_field(MapKind::Starts, &name, &node),
            }
        }
        Some(starts)
    }
}
