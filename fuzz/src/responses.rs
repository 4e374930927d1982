//! Applies any bytes as a response of a server of rules by xDS.

use prost::Message;
use weir::proto::xds::envoy::service::discovery::v3::DiscoveryResponse;
use weir::rules::{Options, RuleProblem, RuleSet, RuleSources, XdsResource, XdsRules};

use crate::files;

/// Applies `bytes` as an encoded DiscoveryResponse, with and without `rules.merge_domains`. Returns
/// whether it is accepted without that setting.
///
/// Whatever it has, the rules must compile, lookups in them must work, and neither a second time nor
/// another order of the resources may change them. If it is rejected, there must be reasons.
pub fn xds(bytes: &[u8]) -> bool {
    let Ok(response) = DiscoveryResponse::decode(bytes) else { return false };
    let [accepted, _] = [false, true].map(|merge_domains| {
        let options = Options { merge_domains, ..Options::default() };
        applied(&response, &options)
    });
    accepted
}

fn applied(response: &DiscoveryResponse, options: &Options) -> bool {
    let resources = response.resources.iter();
    let mut resources: Vec<XdsResource<'_>> =
        resources.map(|one| XdsResource { type_url: &one.type_url, value: &one.value }).collect();
    let version = &response.version_info;
    let update = |before: &XdsRules, resources: &[XdsResource<'_>]| {
        let after = before.update(version, resources, &compiled(before, options), options);
        (after.rules, after.problems)
    };
    let (rules, errors) = update(&XdsRules::default(), &resources);
    files::look_up(&compiled(&rules, options));
    let reasons = sorted(&errors);
    assert!(reasons.iter().all(|reason| !reason.is_empty()), "{reasons:?}");

    let (again, errors) = update(&rules, &resources);
    assert_eq!((&again, sorted(&errors)), (&rules, reasons.clone()), "a second time");
    resources.reverse();
    let (reversed, errors) = update(&XdsRules::default(), &resources);
    assert_eq!((&reversed, sorted(&errors)), (&rules, reasons.clone()), "another order");

    // A response with half of them: parts with errors keep their previous versions.
    resources.truncate(resources.len() / 2);
    let (half, _) = update(&rules, &resources);
    files::look_up(&compiled(&half, options));
    reasons.is_empty()
}

/// The rules alone, compiled. Rules by xDS have no error that remains.
fn compiled(rules: &XdsRules, options: &Options) -> RuleSet {
    let sources = RuleSources { xds: rules.clone(), ..RuleSources::default() };
    match sources.compile(options) {
        Ok((set, warnings)) => {
            assert!(warnings.iter().all(|warning| !warning.to_string().is_empty()));
            set
        }
        Err(problems) => panic!("{problems:#?}"),
    }
}

fn sorted(problems: &[RuleProblem]) -> Vec<String> {
    let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.sort_unstable();
    texts
}
