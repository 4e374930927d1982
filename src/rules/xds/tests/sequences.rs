//! Sequences of random responses with faults, compared with a model of what must be active.
//!
//! The model has neither equal siblings, nor domains of several resources, nor bounds. Other tests cover
//! these.

use proptest::prelude::*;

use super::*;
use crate::rules::RuleLimit;
use RateLimitUnit::{Hour, Unknown};

/// A key and a value. An empty value is any value.
type Entry = (&'static str, &'static str);

/// The domain of each resource, which is its name too.
const DOMAINS: [&str; 3] = ["a", "b", "c"];

/// What a level may have.
const ENTRIES: [Entry; 3] = [("k", ""), ("k", "x"), ("l", "")];

/// A descriptor of a response.
#[derive(Clone, Debug)]
struct Sent {
    entry: Entry,
    /// Hits per hour, if it has a limit.
    requests: Option<u32>,
    /// The number of its fault in [`faulty`].
    fault: Option<usize>,
    below: Vec<Sent>,
}

/// A resource of a response.
#[derive(Clone, Debug)]
enum Resource {
    Readable(Vec<Sent>),
    /// Breaks off after its name and its domain.
    Damaged,
    WithoutDomain,
    /// Another type, so that its name cannot be read.
    OtherType,
}

/// The resource of each of [`DOMAINS`].
type Response = Vec<Option<Resource>>;

/// What is active of a descriptor.
#[derive(Clone, Debug)]
struct Active {
    entry: Entry,
    requests: Option<u32>,
    /// The response that sent it.
    version: usize,
    below: Vec<Active>,
}

/// The newest valid version of each part.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<&'static str, Vec<Active>>);

/// What a response must cause, apart from rules.
#[derive(Debug, Default)]
struct Verdict {
    /// The start of each reason.
    reasons: Vec<String>,
    kept: usize,
    dropped: usize,
}

/// A limit with a fault, and the reason against it.
fn faulty(fault: usize) -> (RateLimitPolicy, &'static str) {
    match fault {
        0 => (policy(1, Unknown), "invalid rate limit unit 'UNKNOWN'"),
        1 => (RateLimitPolicy { unit: 99, ..policy(1, Hour) }, "invalid rate limit unit '99'"),
        2 => (
            RateLimitPolicy { unlimited: true, ..policy(1, Hour) },
            "should not specify rate limit unit when unlimited",
        ),
        _ => (named("n", &[""]), "should not have an empty replaces entry"),
    }
}

fn level(depth: usize) -> BoxedStrategy<Vec<Sent>> {
    let below = if depth == 0 { Just(Vec::new()).boxed() } else { level(depth - 1) };
    let limit = prop::option::of(1..1_000_u32);
    let part = (limit, prop::option::weighted(0.1, 0..4_usize), below);
    prop::collection::vec(prop::option::weighted(0.6, part), ENTRIES.len())
        .prop_map(|parts| {
            let entries = ENTRIES.into_iter().zip(parts);
            let sent = entries.filter_map(|(entry, part)| {
                let (requests, fault, below) = part?;
                Some(Sent { entry, requests, fault, below })
            });
            sent.collect::<Vec<Sent>>()
        })
        .prop_shuffle()
        .boxed()
}

/// Every second response has no fault.
fn response() -> impl Strategy<Value = Response> {
    let resource = prop_oneof![
        8 => level(2).prop_map(Resource::Readable),
        1 => Just(Resource::Damaged),
        1 => Just(Resource::WithoutDomain),
        1 => Just(Resource::OtherType),
    ];
    let resources = prop::collection::vec(prop::option::weighted(0.8, resource), DOMAINS.len());
    (any::<bool>(), resources).prop_map(|(is_good, resources)| {
        if !is_good {
            return resources;
        }
        let good = resources.into_iter().map(|resource| match resource {
            Some(Resource::Readable(sent)) => Some(Resource::Readable(without_faults(sent))),
            _ => None,
        });
        good.collect()
    })
}

fn without_faults(sent: Vec<Sent>) -> Vec<Sent> {
    let good = |one: Sent| Sent { fault: None, below: without_faults(one.below), ..one };
    sent.into_iter().map(good).collect()
}

impl Sent {
    fn descriptor(&self) -> RateLimitDescriptor {
        let (key, value) = self.entry;
        let below = self.below.iter().map(Sent::descriptor).collect();
        let valid = self.requests.map(|requests| policy(requests, Hour));
        let rate_limit = self.fault.map(|fault| faulty(fault).0).or(valid);
        RateLimitDescriptor { rate_limit, ..node(key, value, below) }
    }

    /// The path of this descriptor below `path`, in the words of envoyproxy/ratelimit.
    fn path(&self, path: &str) -> String {
        match self.entry {
            (key, "") => format!("{path}.{key}"),
            (key, value) => format!("{path}.{key}_{value}"),
        }
    }

    /// The reasons against this descriptor and everything below it.
    fn reasons(&self, domain: &str, above: &str, reasons: &mut Vec<String>) {
        let path = self.path(above);
        let own = self.fault.map(|fault| format!("xds:{domain}: {path}: {}", faulty(fault).1));
        reasons.extend(own);
        for one in &self.below {
            one.reasons(domain, &path, reasons);
        }
    }
}

impl Resource {
    /// The type and the bytes.
    fn encoded(&self, domain: &str) -> (&'static str, Vec<u8>) {
        let bytes = |config: RateLimitConfig| config.encode_to_vec();
        match self {
            Resource::Readable(sent) => {
                let descriptors = sent.iter().map(Sent::descriptor).collect();
                (XDS_TYPE_URL, bytes(of_domain(domain, descriptors)))
            }
            Resource::Damaged => {
                let mut damaged = bytes(of_domain(domain, Vec::new()));
                // A descriptor of 127 bytes that does not follow.
                damaged.extend_from_slice(b"\x1a\x7f");
                (XDS_TYPE_URL, damaged)
            }
            Resource::WithoutDomain => (XDS_TYPE_URL, bytes(config(domain, "", Vec::new()))),
            Resource::OtherType => ("other", Vec::new()),
        }
    }
}

impl Model {
    /// What must be active after a response.
    fn after(&self, version: usize, response: &[Option<Resource>]) -> (Model, Verdict) {
        let (mut next, mut verdict) = (Model::default(), Verdict::default());
        let is_other = |one: &&Option<Resource>| matches!(one, Some(Resource::OtherType));
        let unreadable = response.iter().filter(is_other).count();
        let mut stay = 0;
        for (domain, resource) in DOMAINS.into_iter().zip(response) {
            let before = self.0.get(domain);
            let reason = match resource {
                Some(Resource::Readable(sent)) => {
                    let before = before.map(Vec::as_slice).unwrap_or_default();
                    let active = verdict.level(version, domain, domain, sent, before);
                    next.0.insert(domain, active);
                    continue;
                }
                Some(Resource::Damaged) => "cannot parse invalid wire-format data",
                Some(Resource::WithoutDomain) => "config file cannot have empty domain",
                Some(Resource::OtherType) | None => {
                    // The name that cannot be read may be this one.
                    if let (1.., Some(before)) = (unreadable, before) {
                        next.0.insert(domain, before.clone());
                        stay += 1;
                    }
                    continue;
                }
            };
            verdict.reasons.push(format!("xds:{domain}: {reason}"));
            match before {
                Some(before) => {
                    next.0.insert(domain, before.clone());
                    verdict.kept += 1;
                }
                None => verdict.dropped += 1,
            }
        }
        let other_type = "xds: mismatched message type: got \"other\"".to_owned();
        verdict.reasons.extend(vec![other_type; unreadable]);
        verdict.kept += stay;
        verdict.dropped += unreadable.saturating_sub(stay);
        (next, verdict)
    }

    /// The limits, as [`shown`] has them.
    fn shown(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (domain, active) in &self.0 {
            active.iter().for_each(|one| one.show(domain, "", &mut lines));
        }
        lines.sort();
        lines
    }
}

impl Verdict {
    /// What must be active of a level.
    fn level(
        &mut self,
        version: usize,
        domain: &str,
        path: &str,
        sent: &[Sent],
        before: &[Active],
    ) -> Vec<Active> {
        let mut active = Vec::new();
        for one in sent {
            let earlier = before.iter().find(|active| active.entry == one.entry);
            if one.fault.is_some() {
                one.reasons(domain, path, &mut self.reasons);
                self.kept += usize::from(earlier.is_some());
                self.dropped += usize::from(earlier.is_none());
                active.extend(earlier.cloned());
                continue;
            }
            let before = earlier.map(|earlier| earlier.below.as_slice()).unwrap_or_default();
            let below = self.level(version, domain, &one.path(path), &one.below, before);
            let Sent { entry, requests, .. } = *one;
            active.push(Active { entry, requests, version, below });
        }
        active
    }
}

impl Active {
    fn show(&self, domain: &str, above: &str, lines: &mut Vec<String>) {
        let own = match self.entry {
            (key, "") => key.to_owned(),
            (key, value) => format!("{key}={value}"),
        };
        let path = if above.is_empty() { own } else { format!("{above},{own}") };
        if let Some(requests) = self.requests {
            let version = self.version;
            lines.push(format!("{domain} {path} {requests} xds:{domain} version {version}"));
        }
        for one in &self.below {
            one.show(domain, &path, lines);
        }
    }
}

/// The active limits, one text each: domain, selector, hits per hour, resource and version.
fn shown(set: &RuleSet) -> Vec<String> {
    let line = |rule: &crate::rules::Rule| {
        let RuleLimit::Limit(limit) = &rule.limit else { panic!("no limit is unlimited") };
        let requests = limit.tiers[0].requests;
        format!("{} {} {requests} {}", rule.domain, rule.selector(), rule.location)
    };
    let mut lines: Vec<String> = set.rules().iter().map(line).collect();
    lines.sort();
    lines
}

/// The update by a response. The order of its resources depends on the version.
fn update_by(before: &XdsRules, version: usize, response: &[Option<Resource>]) -> XdsUpdate {
    let resources = DOMAINS.into_iter().zip(response);
    let mut resources: Vec<(&str, Vec<u8>)> = resources
        .filter_map(|(domain, resource)| Some(resource.as_ref()?.encoded(domain)))
        .collect();
    let length = resources.len().max(1);
    resources.rotate_left(version % length);
    let resources: Vec<XdsResource<'_>> =
        resources.iter().map(|(type_url, value)| XdsResource { type_url, value }).collect();
    before.update(&version.to_string(), &resources, &RuleSet::default(), &Options::default())
}

fn sorted_reasons(update: &XdsUpdate) -> Vec<String> {
    let mut reasons: Vec<String> = update.problems.iter().map(ToString::to_string).collect();
    reasons.sort();
    reasons
}

proptest! {
    /// Valid parts are new, parts with a fault keep their previous version, and nothing stays of what was
    /// removed. Each fault is one reason. The same response again changes nothing.
    #[test]
    fn each_part_has_its_newest_valid_version(
        responses in prop::collection::vec(response(), 1..7),
    ) {
        let (mut rules, mut model) = (XdsRules::default(), Model::default());
        for (index, response) in responses.iter().enumerate() {
            let version = index + 1;
            let (next, mut verdict) = model.after(version, response);
            let update = update_by(&rules, version, response);
            let (set, _) = rule_set(&update.rules, &Options::default());
            prop_assert_eq!(shown(&set), next.shown(), "response {}", version);
            prop_assert_eq!(set.domains(), next.0.keys().copied().collect::<Vec<&str>>());
            let reasons = sorted_reasons(&update);
            verdict.reasons.sort();
            prop_assert_eq!(reasons.len(), verdict.reasons.len(), "{:#?}", reasons);
            for (reason, start) in reasons.iter().zip(&verdict.reasons) {
                prop_assert!(reason.starts_with(start.as_str()), "{} is not {}", reason, start);
            }
            prop_assert_eq!((update.kept, update.dropped), (verdict.kept, verdict.dropped));

            let again = update_by(&update.rules, version, response);
            prop_assert_eq!(&again.rules, &update.rules);
            prop_assert_eq!(shown(&rule_set(&again.rules, &Options::default()).0), shown(&set));
            prop_assert_eq!(sorted_reasons(&again), reasons);
            prop_assert_eq!((again.kept, again.dropped), (update.kept, update.dropped));
            (rules, model) = (update.rules, next);
        }
    }
}
