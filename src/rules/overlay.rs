//! Overlays: fields of limits that are added to rules of files and of xDS before they are compiled.
//!
//! An overlay selects rules by domain and path. It changes only fields of `rate_limit`, so no overlay
//! changes which rule a descriptor matches. Of several overlays for one rule, a later one overrides
//! the fields of an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;

use self::pattern::{PatternItem, TextPattern};
use super::compile::{field_problems, limit_problems};
use super::excerpt::shorten;
use super::file::model::{Document, RawDescriptor, RawRateLimit, RawTier};
use super::file::options::Options;
use super::file::problem::{Location, Report};
use super::file::raw_overlay::RawOverlay;
use super::file::reader::{FieldReader, Text};
use super::file::source::{RuleFiles, SourceFile};
use crate::yaml;

mod pattern;

/// Most overlays of one load. Each is compared with every rule of its domains.
const OVERLAYS_MAX: usize = 10_000;

/// The overlays of all files, in reading order.
#[derive(Debug, Default)]
pub(super) struct Overlays(Vec<Overlay>);

#[derive(Debug)]
struct Overlay {
    location: Location,
    domain: TextPattern,
    rule: Vec<PatternItem>,
    limit: RawRateLimit,
}

impl Overlays {
    /// Reads overlay files. An empty file has no overlays.
    pub(super) fn read(files: &RuleFiles, options: &Options, report: &mut Report) -> Overlays {
        report.add_errors(&files.report);
        for path in files.without_files() {
            let path: Arc<str> = path.to_string_lossy().into();
            let hint = "create the file, or correct `rules.overlay_paths`";
            report.warn(Location::whole(&path), "there is no overlay file here", hint);
        }
        let mut overlays = Overlays::default();
        for file in &files.files {
            overlays.read_file(file, options, report);
        }
        if let Some(first) = overlays.0.get(OVERLAYS_MAX) {
            let what = format!("{} overlays; at most {OVERLAYS_MAX} are used", overlays.0.len());
            report.error(first.location.clone(), what, "join overlays by `*`");
            overlays.0.truncate(OVERLAYS_MAX);
        }
        overlays
    }

    fn read_file(&mut self, file: &SourceFile, options: &Options, report: &mut Report) {
        let parsed = yaml::parse(&file.text);
        for fault in parsed.faults {
            report.error(fault.at.in_file(&file.name), fault.what, fault.hint);
        }
        for node in parsed.documents {
            let unknown = options.unknown_fields;
            let raw = FieldReader { file: &file.name, unknown, report }.overlays(node);
            self.0.extend(raw.into_iter().filter_map(|raw| overlay(raw, &file.name, report)));
        }
    }

    /// Changes the limits of documents, one after the other.
    pub(super) fn pass(&self) -> OverlayPass<'_> {
        let is_used = vec![false; self.0.len()];
        OverlayPass { overlays: &self.0, is_used, ..OverlayPass::default() }
    }
}

impl OverlayPass<'_> {
    /// Changes the limits of all matching rules of a document.
    pub(super) fn apply(&mut self, document: &mut Document) {
        let domain = document.domain.as_ref().and_then(|domain| domain.value.as_deref());
        let Some(domain) = domain else { return };
        let all = self.overlays.iter().enumerate();
        let mut cursors = Vec::new();
        for (overlay, one) in all.filter(|(_, one)| one.domain.matches(domain)) {
            advance(one, overlay, 0, &mut cursors);
        }
        self.level(&cursors, &mut document.descriptors, &document.file);
    }

    /// Reports overlays that match no rule, and those that do not fit a rule. An overlay that does not fit a
    /// rule of a file is an error. One that does not fit a rule by xDS is a warning, and the rule stays as
    /// sent, because the control plane does not know the overlays.
    pub(super) fn finish(self, report: &mut Report) {
        for (overlay, _) in self.overlays.iter().zip(&self.is_used).filter(|(_, used)| !**used) {
            let hint = "write `rule` as metrics and `weir explain` show it; `*` is any text, `**` \
                        any levels";
            report.warn(overlay.location.clone(), "the overlay matches no limit", hint);
        }
        for ((overlay, is_xds), Misfit { what, count }) in self.misfits {
            let location = self.overlays[overlay].location.clone();
            let more = match count - 1 {
                0 => String::new(),
                more => format!(", and {more} more rules"),
            };
            let what = format!("the overlay does not fit {what}{more}");
            if is_xds {
                report.warn(location, what, "these rules stay without overlays");
            } else {
                report.error(location, what, "select fewer rules, or correct the overlay");
            }
        }
    }
}

/// Checks the fields of an overlay; `None` after a reported error.
fn overlay(raw: RawOverlay, file: &Arc<str>, report: &mut Report) -> Option<Overlay> {
    let location = raw.at.in_file(file);
    let mut required = |field: &Option<Text>, name: &str, hint: &str| {
        let Some(field) = field else {
            report.error(location.clone(), format!("`{name}` is missing"), hint);
            return None;
        };
        let (at, text) = (field.at.in_file(file), field.value.clone()?);
        if text.is_empty() {
            report.error(at, format!("`{name}` is empty"), hint);
            return None;
        }
        Some((at, text))
    };
    let hint = "write the domain of the rules; `*` is any text";
    let domain = required(&raw.domain, "domain", hint);
    let hint = "write the rule as `key=value,key=value`; `*` is any text, `**` any levels";
    let rule = required(&raw.rule, "rule", hint);
    let Some(limit) = raw.rate_limit else {
        let hint = "write the fields to change below it";
        report.error(location, "`rate_limit` is missing", hint);
        return None;
    };
    let problems = field_problems(&limit, file);
    let is_valid = problems.is_empty();
    for problem in problems {
        report.error(problem.location, problem.what, problem.hint);
    }
    let ((_, domain), (at, rule)) = (domain?, rule?);
    let parsed = pattern::parse(&rule);
    let rule = parsed.map_err(|(what, hint)| report.error(at, what, hint)).ok()?;
    is_valid.then(|| Overlay { location, domain: TextPattern::new(domain), rule, limit })
}

/// A position in the pattern of an overlay: the items before it have matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    overlay: usize,
    item: usize,
}

/// Adds the position `item`, and the later ones that `**` reaches without a level.
fn advance(overlay: &Overlay, index: usize, mut item: usize, cursors: &mut Vec<Cursor>) {
    cursors.push(Cursor { overlay: index, item });
    while let Some(PatternItem::AnyLevels) = overlay.rule.get(item) {
        item += 1;
        cursors.push(Cursor { overlay: index, item });
    }
}

/// One pass of the overlays over documents.
#[derive(Default)]
pub(super) struct OverlayPass<'o> {
    overlays: &'o [Overlay],
    /// For each overlay, whether it matches a limit.
    is_used: Vec<bool>,
    /// By the last overlay of the rule, and by whether the rule is by xDS.
    misfits: BTreeMap<(usize, bool), Misfit>,
    /// The keys from the root to the current descriptor.
    keys: Vec<Arc<str>>,
}

/// Rules that overlays do not fit.
struct Misfit {
    /// The first rule, and the reason.
    what: String,
    count: usize,
}

impl OverlayPass<'_> {
    /// Applies the overlays to the limits of a level and below it. `cursors` are the positions before
    /// this level. All patterns advance together, so that no path is compared twice.
    fn level(&mut self, cursors: &[Cursor], level: &mut [RawDescriptor], file: &Arc<str>) {
        for descriptor in level {
            let mut next = Vec::new();
            for cursor in cursors {
                let overlay = &self.overlays[cursor.overlay];
                let Some(item) = overlay.rule.get(cursor.item) else { continue };
                if item.matches(descriptor) {
                    let step = usize::from(!matches!(item, PatternItem::AnyLevels));
                    advance(overlay, cursor.overlay, cursor.item + step, &mut next);
                }
            }
            if next.is_empty() {
                continue;
            }
            next.sort_unstable();
            next.dedup();
            let ends = |one: &&Cursor| one.item == self.overlays[one.overlay].rule.len();
            let here: Vec<usize> = next.iter().filter(ends).map(|one| one.overlay).collect();
            let key = descriptor.key.as_ref().and_then(|key| key.value.clone());
            self.keys.push(key.unwrap_or_default());
            self.change(&here, descriptor, file);
            self.level(&next, &mut descriptor.descriptors, file);
            self.keys.pop();
        }
    }

    /// Applies the overlays `here` to the limit of a descriptor. An unlimited rule has none.
    fn change(&mut self, here: &[usize], descriptor: &mut RawDescriptor, file: &Arc<str>) {
        let Some(last) = here.last() else { return };
        // Without the version, so that the warning stays the same from response to response.
        let location = Location { version: None, ..descriptor.location(file) };
        let is_xds = descriptor.origin.is_some();
        let Some(limit) = &mut descriptor.rate_limit else { return };
        if limit.unlimited.as_ref().is_some_and(|flag| flag.value == Some(true)) {
            return;
        }
        let mut changed = limit.clone();
        for index in here {
            self.is_used[*index] = true;
            put(&self.overlays[*index].limit, &mut changed);
        }
        let Some(problem) = limit_problems(&changed, &self.keys, file).into_iter().next() else {
            *limit = changed;
            let locations = here.iter().map(|index| self.overlays[*index].location.clone());
            descriptor.overlays.extend(locations);
            return;
        };
        // A limit that is invalid without overlays is reported by itself.
        if limit_problems(limit, &self.keys, file).is_empty() {
            let key = descriptor.key.as_ref().and_then(|key| key.value.as_deref());
            let key = shorten(key.unwrap_or_default());
            let what = format!("the limit of `{key}` at {location}: {}", problem.what);
            let misfit = Misfit { what, count: 0 };
            self.misfits.entry((*last, is_xds)).or_insert(misfit).count += 1;
        }
    }
}

/// Sets the fields of an overlay. `tiers`, and the numbers of `concurrency`, replace the numbers of
/// the rule as a whole.
fn put(from: &RawRateLimit, limit: &mut RawRateLimit) {
    fn set<T: Clone>(from: &Option<T>, field: &mut Option<T>) {
        if from.is_some() {
            field.clone_from(from);
        }
    }
    let of_slots = from.max.is_some() || from.hold.is_some();
    if from.tiers.is_some() || of_slots {
        limit.tier = RawTier { at: limit.tier.at, ..RawTier::default() };
        (limit.tiers, limit.max, limit.hold) = (None, None, None);
    }
    set(&from.algorithm, &mut limit.algorithm);
    set(&from.tiers, &mut limit.tiers);
    set(&from.tier.burst, &mut limit.tier.burst);
    set(&from.max, &mut limit.max);
    set(&from.hold, &mut limit.hold);
    set(&from.count_denied, &mut limit.count_denied);
    set(&from.reserve, &mut limit.reserve);
    set(&from.on_error, &mut limit.on_error);
    set(&from.mode, &mut limit.mode);
    set(&from.sync_interval, &mut limit.sync_interval);
    set(&from.over_limit_cache, &mut limit.over_limit_cache);
    set(&from.cost, &mut limit.cost);
    set(&from.shadow, &mut limit.shadow);
    set(&from.usage, &mut limit.usage);
    set(&from.log, &mut limit.log);
}
