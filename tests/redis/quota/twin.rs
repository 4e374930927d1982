//! Compares random settlements by `Ledger` with the same ones by the script and the function on a real
//! Redis. `WEIR_AGREEMENT_STEPS` sets their number, `WEIR_AGREEMENT_SEED` repeats a run.

use weir::store::redis::quota::{decode, encode};
use weir::store::redis::script::{self, Script};

use super::walk::{self, Settled};
use crate::agreement::{Rng, number, seed};
use crate::support::redis::resp::{Client, Reply};
use crate::support::redis::server::Server;
use crate::support::schedule::shared;

/// Walks that are sent at once.
const AT_ONCE: usize = 16;

/// How the settlements of a walk are called: by the script, by the function, or by both in turns.
const FORMS: [fn(usize) -> bool; 3] = [|_| false, |_| true, |index| index.is_multiple_of(2)];

#[test]
fn settlements_are_the_same_in_lua() {
    let _permit = shared();
    let settlements = number("WEIR_AGREEMENT_STEPS").unwrap_or(50_000);
    let seed = seed();
    let (server, mut rng) = (Server::local(), Rng(seed));
    let mut client = server.client();
    let loaded = client.run(&["SCRIPT", "LOAD", Script::Quota.source()]);
    assert_eq!(loaded.text(), Script::Quota.sha1());
    client.run(&["FUNCTION", "LOAD", &script::library().text]);
    let (mut done, mut read) = (0, 0);
    for is_function in FORMS.into_iter().cycle() {
        if done >= settlements {
            break;
        }
        let walks: Vec<Vec<Settled>> = (0..AT_ONCE).map(|_| walk::walk(&mut rng)).collect();
        for walk in &walks {
            queue(&mut client, walk, is_function);
        }
        client.send().expect("Redis listens");
        for walk in &walks {
            if let Some((index, what)) = read_difference(&mut client, walk) {
                let lines: Vec<String> = walk[..=index].iter().map(Settled::to_string).collect();
                panic!("{what}\nat the last of\n{}\nWEIR_AGREEMENT_SEED={seed}", lines.join("\n"));
            }
            done += walk.len() as u64;
            read += walk.iter().filter(|settled| settled.reads_only).count();
        }
    }
    println!("{done} settlements, {read} of them only read");
    assert!(read > 0, "no settlement only reads");
}

/// One walk as one transaction, in which nothing expires by Redis's clock.
fn queue(client: &mut Client, walk: &[Settled], is_function: fn(usize) -> bool) {
    client.queue(&[b"MULTI"]);
    client.queue(&[b"DEL", b"quota"]);
    for (index, settled) in walk.iter().enumerate() {
        // Only a script can be called so that it must not write.
        let [call, name]: [&[u8]; 2] = match (is_function(index), settled.reads_only) {
            (true, _) => [b"FCALL", Script::Quota.function().as_bytes()],
            (false, true) => [b"EVALSHA_RO", Script::Quota.sha1().as_bytes()],
            (false, false) => [b"EVALSHA", Script::Quota.sha1().as_bytes()],
        };
        client.queue(&[call, name, b"1", b"quota", &encode(&settled.settlement)]);
    }
    client.queue(&[b"EXEC"]);
}

/// The index of the first settlement whose reply differs, and how.
fn read_difference(client: &mut Client, walk: &[Settled]) -> Option<(usize, String)> {
    for _ in 0..walk.len() + 2 {
        client.read().expect("OK, then QUEUED");
    }
    let Reply::List(replies) = client.read().expect("the replies") else {
        panic!("a transaction answers with a list");
    };
    replies[1..].iter().zip(walk).enumerate().find_map(|(index, (reply, settled))| {
        let got = match reply {
            Reply::Bulk(bytes) => decode(bytes).map_err(|error| error.to_string()),
            other => Err(other.text()),
        };
        let expected = &settled.snapshot;
        let differs = got.as_ref() != Ok(expected);
        differs.then(|| (index, format!("Rust has {expected:?}\nLua has  {got:?}")))
    })
}
