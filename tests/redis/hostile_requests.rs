//! Hostile input: a hit is counted exactly or its call is rejected, and no input reaches a script
//! as code.

use crate::support::on_redis::{over, ready};
use crate::support::redis::server::Server;
use crate::support::rls::{Code, costing, descriptor, request};
use crate::support::schedule::shared;

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { requests: 9007199254740991, window: 1000d }
  - key: bucket
    rate_limit: { algorithm: token_bucket, requests: 1000000, window: 1s }
";

/// Every character, every length and the largest numbers are counted separately.
#[test]
fn every_value_has_its_own_counter() {
    let _permit = shared();
    let server = Server::local();
    let weir = over(&format!("redis+unix://{}", server.socket().display()), RULES)
        .store_timeout("20s")
        .start();
    ready(&weir);
    let client = weir.client();
    let mut values: Vec<String> = (0..=255_u8).map(|byte| char::from(byte).to_string()).collect();
    values.push(values.concat());
    values.push("x".repeat(65_536));
    values.push(format!("{}y", "x".repeat(65_535)));
    values.push(String::new());
    values.push("{weir}:1\r\n$3\r\nDEL".to_owned());
    for value in &values {
        let answer = client.check(request("d", vec![costing(7, descriptor(&[("k", value)]))]));
        assert_eq!(answer.overall_code, i32::from(Code::Ok));
        // `limit_remaining` saturates at the largest value of its field.
        let peek = costing((1 << 53) - 7, descriptor(&[("k", value)]));
        let over = client.check(request("d", vec![peek]));
        assert_eq!(over.overall_code, i32::from(Code::OverLimit), "7 and the rest are too many");
    }
    let reply = server.client().run(&["DBSIZE"]);
    assert_eq!(reply, crate::support::redis::resp::Reply::Integer(values.len() as i64));
    for hits in [(1 << 53) - 1, (1 << 52) + 1, 1 << 31] {
        for key in ["k", "bucket"] {
            let checked = costing(hits, descriptor(&[(key, &hits.to_string())]));
            assert!(client.try_check(request("d", vec![checked])).is_ok(), "{key} {hits}");
        }
    }
    for hits in [1 << 53, (1 << 53) + 1, u64::MAX] {
        let checked = costing(hits, descriptor(&[("k", "z")]));
        let refusal = client.try_check(request("d", vec![checked])).unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::InvalidArgument, "{hits}");
    }
    assert_eq!(client.check(request("d", vec![descriptor(&[("k", "last")])])).statuses.len(), 1);
}
