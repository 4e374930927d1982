//! The plans on the admin port: what is loaded, and changes of the plans in Redis.

use serde_json::{Value, json};

use super::rfc_3339;
use crate::app::plans::PlansView;
use crate::escape::excerpt;
use crate::plan_sources::{PlanEditError, RedisPlans};
use crate::plans::{PlanNumbers, PlansStatus};
use crate::server::{PlansRefusal, PlansRequest};
use crate::settings::{PlanSourceKind, PlansSettings};

/// Longest name of a plan in an error, in characters.
const CHARS_MAX: usize = 80;

/// The health of the source, and the first `limit` plans by name. Without a source there are none.
pub(super) fn page(view: Option<&PlansView>, limit: usize) -> Value {
    let Some(PlansView { plans, status, .. }) = view else {
        return json!({
            "source": "none",
            "plan_count": 0,
            "customers": 0,
            "customer_bytes": 0,
            "read_at": null,
            "updated_at": null,
            "last_error": null,
            "warnings": [],
            "plans": [],
        });
    };
    let PlansStatus { plans: plan_count, customers, customer_bytes, warnings, .. } = plans.status();
    let book = plans.book();
    let mut all: Vec<(&str, &PlanNumbers)> = book.plans().collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    let shown = all.iter().take(limit);
    let shown: Vec<Value> =
        shown.map(|(name, numbers)| json!({ "name": name, "limits": numbers.to_json() })).collect();
    json!({
        "source": status.source(),
        "plan_count": plan_count,
        "customers": customers,
        "customer_bytes": customer_bytes,
        "read_at": status.confirmed().map(rfc_3339),
        "updated_at": status.updated().map(rfc_3339),
        "last_error": status.error().as_deref(),
        "warnings": warnings,
        "plans": shown,
    })
}

/// Shows or changes what is in Redis.
pub(super) async fn edit(redis: &RedisPlans, request: PlansRequest) -> Result<Value, PlansRefusal> {
    match request {
        PlansRequest::Set { plan, limits } => {
            let created = redis.set_plan(&plan, &limits).await.map_err(refused)?;
            Ok(json!({ "plan": plan, "created": created }))
        }
        PlansRequest::Delete { plan } => {
            let existed = redis.delete_plan(&plan).await.map_err(refused)?;
            Ok(json!({ "plan": plan, "existed": existed }))
        }
        PlansRequest::Show { customer } => {
            let plan = redis.plan_of(&customer).await.map_err(refused)?;
            Ok(json!({ "customer": customer, "plan": plan }))
        }
        PlansRequest::Assign { customer, plan } => {
            let created = redis.assign(&customer, Some(&plan)).await.map_err(refused)?;
            Ok(json!({ "customer": customer, "plan": plan, "created": created }))
        }
        PlansRequest::Unassign { customer } => {
            let existed = redis.assign(&customer, None).await.map_err(refused)?;
            Ok(json!({ "customer": customer, "existed": existed }))
        }
    }
}

/// The refusal of a service whose plans are not in Redis.
pub(super) fn elsewhere(settings: &PlansSettings) -> PlansRefusal {
    PlansRefusal::Elsewhere(match settings.source {
        PlanSourceKind::File => {
            let path = settings.file.as_deref().map(|path| path.display().to_string());
            let path = path.unwrap_or_default();
            format!(
                "the plans are in the file {path} (plans.file); edit it, and weir reads it again"
            )
        }
        PlanSourceKind::Http => {
            "the plans are those of plans.url; change them on that server".to_owned()
        }
        PlanSourceKind::None | PlanSourceKind::Redis => {
            "there are no plans; set plans.source to `redis` to change plans here".to_owned()
        }
    })
}

fn refused(error: PlanEditError) -> PlansRefusal {
    match error {
        PlanEditError::Invalid(why) => PlansRefusal::Invalid(why),
        PlanEditError::UnknownPlan(plan) => PlansRefusal::UnknownPlan(format!(
            "Redis has no plan `{}`; set it first, or name one of /plans",
            excerpt(&plan, CHARS_MAX)
        )),
        PlanEditError::Store(error) => PlansRefusal::Store(match error.may_have_run() {
            true => format!("{error}; the change may be made: send it again"),
            false => error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;
    use std::sync::Arc;

    use crate::plan_sources::SourceStatus;
    use crate::plans::{PlanBook, Plans, PlansConfig};
    use crate::time::Micros;

    #[test]
    fn the_page_has_the_first_plans_by_name() {
        let plans = Plans::new(PlansConfig { max_customers: 10, asks_per_customer: false });
        let text = r#"{"plans": {"pro": {"calls": 9}, "free": {"calls": 3}, "a": {"calls": 1}}}"#;
        let (book, _) = PlanBook::parse_json_text(text).unwrap();
        let table = plans.table(&book, 0).finish();
        plans.publish(book, table);
        let status = Arc::new(SourceStatus::new("http"));
        status.succeeded(Micros::from_secs(1_700_000_000));
        status.failed(Micros::from_secs(1_700_000_001), "gone");
        let shown = page(Some(&PlansView { plans, status, redis: None }), 2);
        assert_eq!(shown["plan_count"], 3);
        assert_eq!(
            shown["plans"],
            json!([
                { "name": "a", "limits": { "calls": 1 } },
                { "name": "free", "limits": { "calls": 3 } },
            ])
        );
        assert_eq!(shown["read_at"], "2023-11-14T22:13:20Z");
        assert_eq!((&shown["last_error"], &shown["updated_at"]), (&json!("gone"), &Value::Null));
        let fields = |page: &Value| page.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(fields(&page(None, 2)), fields(&shown));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let of = |source| {
            let file = Some("plans.yaml".into());
            match elsewhere(&PlansSettings { source, file, ..PlansSettings::default() }) {
                PlansRefusal::Elsewhere(text) => text,
                other => panic!("{other:?}"),
            }
        };
        assert!(of(PlanSourceKind::File).contains("plans.yaml (plans.file); edit it"));
        assert!(of(PlanSourceKind::Http).contains("plans.url"));
        assert!(of(PlanSourceKind::None).contains("plans.source"));
        let again = |error| match refused(PlanEditError::Store(error)) {
            PlansRefusal::Store(text) => text.contains("send it again"),
            other => panic!("{other:?}"),
        };
        assert!(again(StoreError::Timeout) && !again(StoreError::Unreachable));
    }
}
