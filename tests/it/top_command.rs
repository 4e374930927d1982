//! `weir top` without a terminal: words once, and an object per refresh.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::rls::{descriptor, request};
use crate::support::weir::cli::run;
use crate::support::weir::{Weir, weir};
use crate::support::window_edge::within_an_hour;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1, usage: true }
";

#[test]
fn top_prints_once_without_a_terminal() {
    within_an_hour(|| {
        let weir = Weir::start(RULES);
        let client = weir.client();
        for _ in 0..2 {
            client.check(request("d", vec![descriptor(&[("user", "a\u{1b}")])]));
        }
        let address = format!("http://{}", weir.admin);
        let top = run(Path::new("."), &["top", "--addr", &address]);
        assert_eq!(top.code, Some(0), "{top:?}");
        for part in
            ["weir ", "per second: ", "LIMITED IN THE LAST MINUTE", "  d  user  user=a\\u{1b}"]
        {
            assert!(top.stdout.contains(part), "no {part}: {top:?}");
        }
        assert!(!top.stdout.contains('\u{1b}'), "{top:?}");
    });
    let nowhere = run(Path::new("."), &["top", "--addr", "http://127.0.0.1:1"]);
    assert_eq!(nowhere.code, Some(69), "{nowhere:?}");
}

/// The command continues until its reader is gone, which is no failure.
#[test]
fn top_prints_an_object_per_refresh() {
    let service = Weir::start(RULES);
    let address = format!("http://{}", service.admin);
    let mut command = weir();
    command.args(["top", "--json", "--interval", "500ms", "--addr", &address]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a further line").expect("text");
        let page: Value = serde_json::from_str(&line).expect("one object");
        assert_eq!(page["status"]["health"], "serving", "{page}");
    }
    drop(lines);
    let status = child.wait().expect("it ends at its next line");
    assert!(status.success(), "{status:?}");
}
