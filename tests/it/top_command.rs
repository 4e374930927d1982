//! `weir top`: words once, an object per refresh, and a screen on a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;
use serde_json::Value;

use crate::support::rls::{descriptor, request};
use crate::support::wait::TIMEOUT;
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

/// What a terminal shows, in parts.
fn shown(mut terminal: File) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut part = [0; 4_096];
        while let Ok(length @ 1..) = terminal.read(&mut part) {
            let text = String::from_utf8_lossy(&part[..length]).into_owned();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    receiver
}

fn wait_for(words: &str, parts: &Receiver<String>) {
    let mut text = String::new();
    while !text.contains(words) {
        let part = parts.recv_timeout(TIMEOUT);
        text.push_str(&part.unwrap_or_else(|_| panic!("no {words:?} in {text:?}")));
    }
}

/// `q` and Ctrl-C end the screen, and the terminal is as before.
#[test]
fn a_key_ends_top_and_restores_the_terminal() {
    let service = Weir::start(RULES);
    for key in [b"q", b"\x03"] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        unlockpt(&master).expect("it can be opened");
        let name = ptsname(&master, Vec::<u8>::new()).expect("it has a name");
        let path = name.to_str().expect("a path");
        let open = || File::options().read(true).write(true).open(path).expect("its other side");
        let (side, mut master) = (open(), File::from(master));
        let before = tcgetattr(&side).expect("its modes").local_modes;
        let mut command = weir();
        command.args(["top", "--addr", &format!("http://{}", service.admin)]);
        let mut child = command.stdin(open()).stdout(open()).spawn().expect("the binary starts");
        drop(command);
        let parts = shown(master.try_clone().expect("a second handle"));
        wait_for("q or Ctrl-C ends", &parts);
        assert_ne!(tcgetattr(&side).expect("its modes").local_modes, before);
        master.write_all(key).expect("the key is sent");
        wait_for("\u{1b}[?1049l", &parts);
        assert!(child.wait().expect("it ends").success());
        assert_eq!(tcgetattr(&side).expect("its modes").local_modes, before);
    }
}
