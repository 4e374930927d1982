//! Matches the value of an entry, and extracts the parts that a counter's key contains.
//!
//! [`Matcher::cidr`] parses networks, and [`EntryValue::address`] parses addresses. Lookups of many
//! patterns use the tables of `index.rs`, such as `index/networks.rs`. [`Matcher::matches`] tests one
//! pattern.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::mem::{Discriminant, discriminant};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::key::KeyBuilder;

mod anchored_regex;
mod pattern_kind;
mod template;
mod wildcard;

pub(super) use anchored_regex::AnchoredRegex;
#[cfg(test)]
pub(in crate::rules) use anchored_regex::STATES_MAX;
pub(super) use pattern_kind::PatternKind;
use template::PathSegments;
pub(super) use template::{Segment, Template};
pub(super) use wildcard::Wildcard;

/// The values that a node accepts. Patterns are boxed, because most nodes of many have one value.
#[derive(Clone, Debug)]
pub(in crate::rules) enum Matcher {
    /// One value.
    Exact(Arc<str>),
    /// A path with variables.
    Template(Box<Template>),
    /// A regular expression over the whole value.
    Regex(Box<AnchoredRegex>),
    /// Addresses of a network.
    Cidr(Box<Network>),
    /// Literal parts with any text between them.
    Wildcard(Box<Wildcard>),
    /// Every value.
    Any,
}

/// A network, with its text in the file.
#[derive(Clone, Debug)]
pub(in crate::rules) struct Network {
    source: Arc<str>,
    pub(super) net: IpNet,
}

/// The value of an entry, parsed as an address or a path on first use.
pub(in crate::rules) struct EntryValue<'a> {
    text: &'a str,
    address: OnceCell<Option<IpAddr>>,
    path: OnceCell<PathSegments<'a>>,
}

impl<'a> EntryValue<'a> {
    pub(in crate::rules) fn new(text: &'a str) -> EntryValue<'a> {
        EntryValue { text, address: OnceCell::new(), path: OnceCell::new() }
    }

    /// The value as received.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn path(&self) -> &PathSegments<'a> {
        self.path.get_or_init(|| PathSegments::new(self.text))
    }

    /// The value as an address. An IPv4-mapped IPv6 address is the IPv4 address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        *self.address.get_or_init(|| self.text.parse().ok().map(|ip: IpAddr| ip.to_canonical()))
    }
}

/// The kind of a matcher, and its text without what does not change the accepted values.
pub(in crate::rules) type DuplicateKey<'m> = (Discriminant<Matcher>, Cow<'m, str>);

/// The problem with the text of a matcher, and the fix.
pub(in crate::rules) type MatcherError = (String, &'static str);

/// Equal matchers accept the same values, and are written in the same way.
impl PartialEq for Matcher {
    fn eq(&self, other: &Matcher) -> bool {
        discriminant(self) == discriminant(other)
            && self.source() == other.source()
            && self.count_by() == other.count_by()
    }
}

impl Matcher {
    /// The matcher of `value`; a wildcard when the text contains a `*`.
    pub(in crate::rules) fn value(text: Arc<str>) -> Matcher {
        match &*text {
            "" => Matcher::Any,
            _ if text.contains('*') => Matcher::Wildcard(Box::new(Wildcard::new(text))),
            _ => Matcher::Exact(text),
        }
    }

    /// The matcher of `value_template`, with the variables `count_by` in the counter's key.
    pub(in crate::rules) fn template(
        text: Arc<str>,
        count_by: &[Arc<str>],
    ) -> Result<Matcher, MatcherError> {
        Template::new(text, count_by).map(|template| Matcher::Template(Box::new(template)))
    }

    /// The matcher of `value_regex`, with the named groups `count_by` in the counter's key. Without
    /// groups the key contains the whole value.
    pub(in crate::rules) fn regex(
        text: Arc<str>,
        count_by: &[Arc<str>],
    ) -> Result<Matcher, MatcherError> {
        AnchoredRegex::new(text, count_by).map(|regex| Matcher::Regex(Box::new(regex)))
    }

    /// The matcher of `value_cidr`.
    pub(in crate::rules) fn cidr(text: Arc<str>) -> Result<Matcher, MatcherError> {
        let hint = "write a network like 10.0.0.0/8 or 2001:db8::/32";
        let net: IpNet = match text.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().into(),
            Err(_) => text.parse().map_err(|_| ("it is no network".to_owned(), hint))?,
        };
        if net.trunc() != net {
            return Err(("bits after the prefix are set".to_owned(), hint));
        }
        Ok(Matcher::Cidr(Box::new(Network { source: text, net: canonical(net) })))
    }

    /// The kind of pattern. `None` for an exact value and for [`Matcher::Any`], which are no patterns.
    pub(super) fn pattern_kind(&self) -> Option<PatternKind> {
        match self {
            Matcher::Exact(_) | Matcher::Any => None,
            Matcher::Template(_) => Some(PatternKind::Template),
            Matcher::Regex(_) => Some(PatternKind::Regex),
            Matcher::Cidr(_) => Some(PatternKind::Cidr),
            Matcher::Wildcard(_) => Some(PatternKind::Wildcard),
        }
    }

    /// The name of this kind of matcher in messages.
    pub(in crate::rules) fn noun(&self) -> &'static str {
        match self {
            Matcher::Exact(_) => "value",
            Matcher::Template(_) => "value_template",
            Matcher::Regex(_) => "value_regex",
            Matcher::Cidr(_) => "value_cidr",
            Matcher::Wildcard(_) => "wildcard",
            Matcher::Any => "any value",
        }
    }

    /// The matcher's text in the file; empty for [`Matcher::Any`].
    pub(in crate::rules) fn source(&self) -> &str {
        match self {
            Matcher::Exact(text) => text,
            Matcher::Template(template) => template.source(),
            Matcher::Regex(pattern) => pattern.source(),
            Matcher::Cidr(network) => &network.source,
            Matcher::Wildcard(wildcard) => wildcard.source(),
            Matcher::Any => "",
        }
    }

    /// A key for finding duplicates: two matchers with equal keys accept the same values, so the
    /// second could never match.
    pub(in crate::rules) fn duplicate_key(&self) -> DuplicateKey<'_> {
        let text = match self {
            Matcher::Template(template) => Cow::Owned(template.without_names()),
            Matcher::Cidr(network) => Cow::Owned(network.net.to_string()),
            other => Cow::Borrowed(other.source()),
        };
        (discriminant(self), text)
    }

    /// The variables in the counter's key; empty without `count_by`.
    pub(in crate::rules) fn count_by(&self) -> &[Arc<str>] {
        match self {
            Matcher::Template(template) => template.count_by(),
            Matcher::Regex(pattern) => pattern.count_by(),
            _ => &[],
        }
    }

    /// Whether the value is accepted.
    pub(in crate::rules) fn matches(&self, value: &EntryValue<'_>) -> bool {
        match self {
            Matcher::Exact(text) => **text == *value.text,
            Matcher::Template(template) => template.matches(value.path()),
            Matcher::Regex(pattern) => pattern.matches(value.text),
            Matcher::Cidr(network) => {
                value.address().is_some_and(|address| network.net.contains(&address))
            }
            Matcher::Wildcard(wildcard) => wildcard.matches(value.text),
            Matcher::Any => true,
        }
    }

    /// Whether different values have different counters.
    pub(super) fn counts_per_value(&self) -> bool {
        match self {
            Matcher::Exact(_) => false,
            Matcher::Template(template) => !template.count_by().is_empty(),
            Matcher::Regex(_) | Matcher::Cidr(_) | Matcher::Wildcard(_) | Matcher::Any => true,
        }
    }

    /// Adds the parts of the value to the counter's key.
    pub(super) fn add_counter_parts(&self, value: &str, key: &mut KeyBuilder) {
        self.counter_parts(value, |part| match part {
            CounterPart::Value(text) | CounterPart::Variable { text, .. } => {
                key.text(text);
            }
            CounterPart::Address(IpAddr::V4(address)) => {
                key.number(4).number(u64::from(address.to_bits()));
            }
            CounterPart::Address(IpAddr::V6(address)) => {
                let bits = address.to_bits();
                key.number(6).number((bits >> 64) as u64).number(bits as u64);
            }
        });
    }

    /// Calls `each` with every part of a matching value that the counter's key contains.
    pub(in crate::rules) fn counter_parts<'a>(
        &'a self,
        value: &'a str,
        mut each: impl FnMut(CounterPart<'a>),
    ) {
        let mut variable = |name, text| each(CounterPart::Variable { name, text });
        match self {
            Matcher::Exact(_) => {}
            Matcher::Template(template) => template.captured(value, variable),
            Matcher::Regex(pattern) if !pattern.count_by().is_empty() => {
                pattern.captured(value, &mut variable);
            }
            Matcher::Cidr(_) => match EntryValue::new(value).address() {
                Some(address) => each(CounterPart::Address(address)),
                None => each(CounterPart::Value(value)),
            },
            Matcher::Regex(_) | Matcher::Wildcard(_) | Matcher::Any => {
                each(CounterPart::Value(value))
            }
        }
    }
}

/// A part of a value in the counter's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rules) enum CounterPart<'a> {
    /// The whole value as received.
    Value(&'a str),
    /// A variable of a template, or a group of a regex.
    Variable {
        /// The variable's name in `count_by`.
        name: &'a str,
        /// The variable's text in this value.
        text: &'a str,
    },
    /// The address, equal for all its spellings.
    Address(IpAddr),
}

/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`: addresses are compared in their canonical form.
fn canonical(net: IpNet) -> IpNet {
    match (net.network().to_canonical(), net) {
        (IpAddr::V4(address), IpNet::V6(v6)) if v6.prefix_len() >= 96 => {
            IpNet::new_assert(IpAddr::V4(address), v6.prefix_len() - 96)
        }
        _ => net,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(matcher: &Matcher, value: &str) -> bool {
        matcher.matches(&EntryValue::new(value))
    }

    #[test]
    fn a_network_contains_addresses_in_any_spelling() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.1.2.3", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.7:80"),
            ("2001:db8::/32", "2001:0DB8:0:0::1", "2001:db9::1"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "::1", "localhost"),
        ] {
            let matcher = Matcher::cidr(net.into()).expect(net);
            assert!(matches(&matcher, inside), "{net} {inside}");
            assert!(!matches(&matcher, outside), "{net} {outside}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0.1/8", "10.0.0/8", "ten", "10.0.0.0/-1"] {
            assert!(Matcher::cidr(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn spellings_of_one_address_share_a_counter() {
        let matcher = Matcher::cidr("::/0".into()).expect("valid");
        let counted = |value| {
            let mut parts = Vec::new();
            matcher.counter_parts(value, |part| parts.push(part));
            parts
        };
        assert_eq!(counted("::1"), counted("0:0:0:0:0:0:0:1"));
        assert_ne!(counted("::1"), counted("::2"));
    }
}
