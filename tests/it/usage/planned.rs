//! Usage of rules whose numbers come from plans or temporary changes.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{USERS, page, take};
use crate::support::http::send;
use crate::support::weir::{Weir, write};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit:
      name: calls
      usage: true
      unit: hour
      requests_per_unit: 10
      limit_from: { customer: user }
";

const PLANS: &str = "
plans: { pro: { calls: 100 }, house: { calls: unlimited } }
customers: { ann: pro, eve: house }
";

/// The numbers are those of `/counters`: those of a plan or of a temporary change, if there is one.
#[test]
fn plans_and_changes_give_the_numbers() {
    within_an_hour(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let plans = folder.path().join("plans.yaml");
        write(&plans, PLANS);
        let setup = Weir::setup().rules("d.yaml", RULES).env("WEIR__PLANS__SOURCE", "file");
        let setup = setup.env("WEIR__PLANS__FILE", plans.to_str().expect("a plain path"));
        let weir = setup.start();
        let client = weir.client();
        for user in ["ann", "bob", "cid", "eve"] {
            take(&client, &[("user", user)], 5);
        }
        let change = json!({ "domain": "d", "descriptor": "user=cid", "limit": 20, "for": "1h" });
        let made = send(weir.admin, "PATCH", "/changes", &[], change.to_string().as_bytes());
        assert_eq!(made.status, 200, "{}", made.body);
        let page = page(&weir, USERS);
        let counters = page["counters"].as_array().expect("a list").iter();
        let numbers = |row: &Value| {
            let tier = &row["tiers"][0];
            json!([row["values"]["user"], tier["requests"], tier["remaining"], row["share"]])
        };
        let expected = [
            json!(["bob", 10, 5, 0.5]),
            json!(["cid", 20, 15, 0.25]),
            json!(["ann", 100, 95, 0.05]),
        ];
        assert_eq!(counters.map(numbers).collect::<Vec<_>>(), expected, "{page}");
    });
}
