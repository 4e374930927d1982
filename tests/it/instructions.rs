//! `make instructions`: what benches/instructions.py reads from a file of callgrind.

use serde_json::json;

use crate::python::printed;

/// Two functions. The first one has a line of the standard library and one of the second function's file in it, and
/// calls the second one for 1000 instructions, which are counted there.
const PROFILE: &str = "\
events: Ir
fl=(1) /weir/src/rules/lookup.rs
fn=(1) weir::rules::lookup::find
10 5
+3 40
fi=(2) /rustc/1/library/core/src/option.rs
400 15
fe=(1)
* 2
fi=(3) /weir/src/step/plan.rs
12 8
fe=(1)
cfi=(3)
cfn=(2) weir::step::plan
calls=2 7
13 1000

fl=(3)
fn=(2)
7 900
fl=(4) ./string/../sysdeps/x86_64/multiarch/memmove-vec-unaligned-erms.S
fn=(3) __memcpy_avx_unaligned_erms
1 100
totals: 1070
";

#[test]
fn instructions_are_counted_by_part() {
    let program = "
import json, sys, instructions
costs = instructions.costs_of(sys.argv[1].splitlines())
print(json.dumps(list(instructions.table(costs, 10))))
";
    let table = [
        "| part | instructions per call | of all, % |",
        "| --- | --- | --- |",
        "| counters | 91 | 85 |",
        "| copies and comparisons of memory | 10 | 9 |",
        "| rules and decisions | 6 | 6 |",
        "| all | 107 | 100 |",
    ];
    assert_eq!(printed(program, &[PROFILE]), json!(table));
}

#[test]
fn files_and_functions_belong_to_parts() {
    let program = "
import json, instructions
general = '/rustc/1/library/core/src/option.rs'
print(json.dumps([instructions.part_of(*line) for line in [
    ('/weir/crates/weir-http2/src/receiver.rs', 'weir_http2::receiver::frame'),
    (general, 'weir_http2::receiver::frame'),
    ('/weir/src/server/grpc/dispatch.rs', 'weir::server::grpc::dispatch::start'),
    (general, 'weir::server::rls::handler::handle::{{closure}}'),
    ('/weir/src/server/rls/decode.rs', 'weir::server::rls::handler::handle::{{closure}}'),
    ('/cargo/prost-0.14.4/src/encoding/varint.rs', 'weir::proto::wire::next'),
    ('/weir/src/limiter/resolve.rs', 'weir::limiter::resolve::descriptor'),
    (general, 'weir::limiter::resolve::descriptor'),
    ('/weir/src/step/plan.rs', 'weir::limiter::check'),
    (general, 'core::str::converts::from_utf8'),
    ('???', '_rjem_je_arena_ralloc'),
]]))
";
    let (calls, coding) =
        ("from a stream of HTTP/2 to a request and back", "decoding and encoding");
    let (rules, other) = ("rules and decisions", "other");
    let parts = [
        "HTTP/2",
        "HTTP/2",
        calls,
        calls,
        coding,
        coding,
        rules,
        rules,
        "counters",
        other,
        "allocation",
    ];
    assert_eq!(printed(program, &[]), json!(parts));
}
