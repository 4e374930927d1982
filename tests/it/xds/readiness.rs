//! Readiness and metrics while the server is lost, stuck or silent, and after a rejection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{HOUR, is_ready, limit, of, one_limit, setup, until_limit, wait_for_silence};
use crate::support::ads::{Ads, limited, rules};
use crate::support::wait::until;
use crate::support::weir::{Setup, Weir};

/// The values of `readyz.require_rules`.
const REQUIREMENTS: [&str; 3] = ["off", "loaded", "current"];

fn requiring(setup: Setup, rules: &str) -> Setup {
    setup.env("WEIR__READYZ__REQUIRE_RULES", rules)
}

/// One instance for each of [`REQUIREMENTS`], ready with a limit of 5.
fn ready_instances(ads: &Ads) -> [Weir; 3] {
    ads.set("1", one_limit(5));
    let instances = REQUIREMENTS.map(|required| requiring(of(ads), required).start());
    for weir in &instances {
        until_limit(&weir.client(), 5);
        until("ready with the first rules", || is_ready(weir));
    }
    instances
}

/// Waits until the rules are a second old. The health is computed ten times in that time.
fn wait_for_age(weir: &Weir) {
    until("the rules are a second old", || weir.metric("weir_xds_rules_age_seconds", &[]) >= 1);
}

/// Waits for several attempts to connect, and so for several computations of the health.
fn wait_for_loss(weir: &Weir) {
    until("attempts to connect fail", || {
        weir.metric("weir_xds_stream_ends_total", &[r#"reason="unreachable""#]) > 3
    });
    assert_eq!(weir.metric("weir_xds_connected", &[]), 0);
}

#[test]
fn a_lost_server_does_not_change_readiness() {
    let ads = Ads::start();
    let instances = ready_instances(&ads);
    drop(ads);
    for (weir, required) in instances.iter().zip(REQUIREMENTS) {
        wait_for_loss(weir);
        wait_for_age(weir);
        assert!(is_ready(weir), "{required}");
        assert_eq!(limit(&weir.client(), "k"), 5, "{required}: the rules stay");
    }
}

/// Only `current` requires that the last response was accepted. It does not expire while the server is
/// lost.
#[test]
fn a_rejection_ends_readiness_with_current() {
    let ads = Ads::start();
    let instances = ready_instances(&ads);
    ads.set("2", vec![rules("a", vec![limited("k", HOUR, 6), limited("bad", 99, 1)])]);
    for (weir, required) in instances.iter().zip(REQUIREMENTS) {
        until("the response is rejected", || {
            weir.metric("weir_xds_last_update_successful", &[]) == 0
        });
        assert_eq!(limit(&weir.client(), "k"), 6, "{required}: the valid part is active");
        wait_for_age(weir);
        assert_eq!(is_ready(weir), required != "current", "{required}");
    }
    let address = ads.address;
    drop(ads);
    for (weir, required) in instances.iter().zip(REQUIREMENTS) {
        wait_for_loss(weir);
        assert_eq!(is_ready(weir), required != "current", "{required}, without a server");
    }
    let ads = Ads::again_at(address);
    ads.set("1", one_limit(7));
    for weir in &instances {
        until_limit(&weir.client(), 7);
        until("ready with accepted rules", || is_ready(weir));
    }
}

/// Rows of `rules.start_without_rules`, `readyz.require_rules`, whether a file defines a domain, and the
/// readiness. The server knows no rules of this node.
#[test]
fn a_silent_server_leaves_what_is_required() {
    let ads = Ads::start();
    let table = [
        ("false", "off", false, false),
        ("false", "current", true, false),
        ("true", "off", false, true),
        ("true", "loaded", false, false),
        ("true", "loaded", true, true),
        ("true", "current", false, false),
        ("true", "current", true, true),
    ];
    let start = |(force, required, has_file, _): (&str, &str, bool, bool)| {
        let setup = requiring(of(&ads), required)
            .env("WEIR__RULES__START_WITHOUT_RULES", force)
            .env("WEIR__RULES__XDS__CONNECT_TIMEOUT", "1s");
        if !has_file {
            return setup.start();
        }
        let setup = setup.file("f.yaml", "domain: f\n");
        let path = setup.path("f.yaml").display().to_string();
        setup.env("WEIR__RULES__PATHS", &path).start()
    };
    let mut instances = table.map(start);
    for (weir, row) in instances.iter_mut().zip(table) {
        wait_for_silence(weir);
        assert_eq!(weir.metric("weir_xds_connected", &[]), 1, "{row:?}");
        assert_eq!(weir.metric("weir_xds_updates_total", &[]), 0, "{row:?}");
        assert_eq!(is_ready(weir), row.3, "{row:?}");
    }
}

/// A relay to a server. While it is stuck, it accepts connections and passes nothing on.
struct Relay {
    address: SocketAddr,
    is_stuck: Arc<AtomicBool>,
}

impl Relay {
    fn to(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let is_stuck = Arc::new(AtomicBool::new(false));
        let relay = Relay { address, is_stuck: is_stuck.clone() };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let both = [client.try_clone(), server.try_clone()];
                let [Ok(from_client), Ok(from_server)] = both else { continue };
                for (from, to) in [(from_client, server), (from_server, client)] {
                    let is_stuck = is_stuck.clone();
                    thread::spawn(move || pass(from, to, &is_stuck));
                }
            }
        });
        relay
    }

    fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }
}

/// Passes bytes on until one side closes. Drops them while it is stuck.
fn pass(mut from: TcpStream, mut to: TcpStream, is_stuck: &AtomicBool) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !is_stuck.load(Ordering::Relaxed) && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The process of the server hangs after it has sent rules. Its rules stay.
#[test]
fn a_stuck_server_shows_in_metrics() {
    let ads = Ads::start();
    let relay = Relay::to(ads.address);
    ads.set("1", one_limit(5));
    let weir = requiring(setup(&relay.address.to_string()), "current")
        .env("WEIR__RULES__XDS__KEEPALIVE_INTERVAL", "200ms")
        .start();
    let client = weir.client();
    until_limit(&client, 5);
    until("ready with the first rules", || is_ready(&weir));
    relay.set_stuck(true);
    let before = weir.metric("weir_xds_stream_ends_total", &[]);
    until("pings have no reply, also on new connections", || {
        weir.metric("weir_xds_stream_ends_total", &[]) > before + 2
    });
    assert_eq!(weir.metric("weir_xds_connected", &[]), 0);
    wait_for_age(&weir);
    assert!(is_ready(&weir));
    assert_eq!(limit(&client, "k"), 5);
    ads.set("2", one_limit(6));
    relay.set_stuck(false);
    until_limit(&client, 6);
    until("the stream is open again", || weir.metric("weir_xds_connected", &[]) == 1);
}
