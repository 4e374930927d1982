//! The place where commands of a page run: a folder like the root of the repository, and the
//! services that the commands call, on free ports.

use std::cell::OnceCell;
use std::fs::{create_dir_all, read_dir, read_to_string};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::grpcurl;
use super::text::root;
use crate::support::certificates::Certificates;
use crate::support::envoy::upstream::Upstream;
use crate::support::envoy::{self, Envoy, NEWEST};
use crate::support::process::Process;
use crate::support::weir::cli::{Run, run};
use crate::support::weir::{Weir, weir, write};

/// The host in the pages that have a service with TLS.
const SECURE_HOST: &str = "weir.example.org";

/// A Redis in the pages that no test has. `weir serve` starts without it.
const REDIS: &str = "10.0.0.1:6379";

/// Runs the commands of one page.
pub(super) struct Reader {
    folder: TempDir,
    /// The service of `make run`.
    weir: Weir,
    /// The same over TLS.
    secure: OnceCell<Weir>,
    /// Envoy with the first example.
    proxy: OnceCell<(Envoy, Upstream)>,
}

impl Reader {
    /// A new folder and a new service.
    pub(super) fn new() -> Reader {
        let folder = TempDir::new().expect("a temporary folder");
        fill(folder.path());
        let (secure, proxy) = (OnceCell::new(), OnceCell::new());
        Reader { folder, weir: Weir::example().start(), secure, proxy }
    }

    /// Runs a command to its end, or `weir serve` until it listens.
    pub(super) fn run(&self, words: &[String]) -> Run {
        match program(words) {
            "weir" => self.weir(&words[1..]),
            "curl" => self.curl(&words[1..]),
            "grpcurl" => grpcurl::run(&words[1..], &self.weir.client()),
            "python3" => self.python(&words[1..]),
            other => panic!("no test runs {other}"),
        }
    }

    fn weir(&self, args: &[String]) -> Run {
        let mut args = args.to_vec();
        match args[0].as_str() {
            "serve" => return self.serve(&args),
            "call" | "bench" | "health" => self.redirect(&mut args),
            "change" | "counters" | "explain" | "status" | "top" | "usage" => {
                self.redirect_to_admin(&mut args);
            }
            _ => {}
        }
        if args[0] == "bench" {
            args.extend(["--warmup", "0", "--duration", "0.2"].map(str::to_owned));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(self.folder.path(), &args)
    }

    /// Replaces the address of the page by that of the service here.
    fn redirect(&self, args: &mut Vec<String>) {
        let at = args.iter().position(|arg| arg == "--addr");
        let shown = at.map_or("127.0.0.1:8081", |at| args[at + 1].as_str());
        let host = shown.rsplit_once(':').map_or(shown, |(host, _)| host).to_owned();
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let tls = has("--ca");
        let with_name = tls && !has("--server-name");
        let service = if tls { self.secure() } else { &self.weir };
        let to = service.grpc.to_string();
        match at {
            Some(at) => args[at + 1] = to,
            None => args.extend(["--addr".to_owned(), to]),
        }
        if with_name {
            args.extend(["--server-name".to_owned(), host]);
        }
    }

    /// Replaces the admin address of the page, or the default. `explain` without one reads rule files.
    fn redirect_to_admin(&self, args: &mut Vec<String>) {
        let to = format!("http://{}", self.weir.admin);
        match args.iter().position(|arg| arg == "--addr") {
            Some(at) => args[at + 1] = to,
            None if args[0] == "explain" => {}
            None => args.extend(["--addr".to_owned(), to]),
        }
    }

    /// Starts `weir serve` on free ports, and ends it when it listens.
    fn serve(&self, args: &[String]) -> Run {
        let listeners = ["--grpc-listen", "--http-listen", "--admin-listen"];
        let mut command = weir();
        command.current_dir(self.folder.path());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if listeners.contains(&arg.as_str()) {
                args.next();
            } else {
                // Port 1 on loopback is reserved, and no process listens there.
                command.arg(arg.replace(REDIS, "127.0.0.1:1"));
            }
        }
        for listener in listeners {
            command.args([listener, "127.0.0.1:0"]);
        }
        let process = Process::spawn("weir serve", command);
        process.wait_for("that it listens", |line| line.contains("listening").then_some(()));
        Run { code: Some(0), stdout: String::new(), stderr: String::new() }
    }

    /// Runs curl without the settings and proxies of the user. It fails with 22 unless the status is
    /// a success or a denial.
    fn curl(&self, args: &[String]) -> Run {
        let mut command = Command::new("curl");
        command.current_dir(self.folder.path());
        command.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]);
        command.args(["--write-out", "%{stderr}status %{http_code}"]);
        command.args(args.iter().map(|arg| self.url(arg).unwrap_or_else(|| arg.clone())));
        let mut run = finished(command.output().expect("curl; `make test` installs it"));
        let status = run.stderr.rsplit_once("status ");
        let status = status.and_then(|(_, code)| code.parse::<u16>().ok());
        if run.code == Some(0) && !matches!(status, Some(200..=299 | 429)) {
            run.code = Some(22);
        }
        run
    }

    /// A URL of the page, with the address of the service here; `None` for another argument.
    fn url(&self, arg: &str) -> Option<String> {
        let url = arg.strip_prefix("http://").unwrap_or(arg);
        let url = url.strip_prefix("localhost:").or_else(|| url.strip_prefix("127.0.0.1:"))?;
        let (port, path) = url.split_once('/').unwrap_or((url, ""));
        let to = match port {
            "8080" => self.weir.http,
            "6070" => self.weir.admin,
            "10000" => self.proxy().0.ingress,
            other => panic!("no service of `make run` listens on {other}"),
        };
        Some(format!("http://{to}/{path}"))
    }

    fn python(&self, args: &[String]) -> Run {
        let python = root().join("target/grpc-clients/python/bin/python");
        assert!(python.exists(), "there is no {}; run `make grpc-clients`", python.display());
        let mut command = Command::new(python);
        command.current_dir(self.folder.path());
        for arg in args {
            command.arg(arg.replace("localhost:8081", &self.weir.grpc.to_string()));
        }
        // A busy machine may be slower than the deadline of the sample, which then lets requests pass.
        if args[0].ends_with("/client.py") {
            command.arg("30000");
        }
        finished(command.output().expect("python starts"))
    }

    fn proxy(&self) -> &(Envoy, Upstream) {
        self.proxy.get_or_init(|| {
            let example = include_str!("../../../examples/envoy/basic.yaml");
            let upstream = Upstream::start();
            let config = envoy::tuned(example, self.weir.grpc, upstream.address);
            (Envoy::start(NEWEST, &config), upstream)
        })
    }

    /// A service with TLS that accepts clients with and without a certificate.
    fn secure(&self) -> &Weir {
        self.secure.get_or_init(|| {
            let certificates = Certificates::new();
            let folder = self.folder.path();
            let authority = read_to_string(certificates.path("ca.crt")).expect("a certificate");
            write(&folder.join("ca.crt"), &authority);
            for (name, host) in [("server", SECURE_HOST), ("envoy", "envoy")] {
                let (cert, key) = certificates.issue(&[host]);
                write(&folder.join(format!("{name}.crt")), &cert);
                write(&folder.join(format!("{name}.key")), &key);
            }
            let path = |name: &str| folder.join(name).display().to_string();
            Weir::example()
                .env("WEIR__GRPC__TLS_CERT", &path("server.crt"))
                .env("WEIR__GRPC__TLS_KEY", &path("server.key"))
                .env("WEIR__GRPC__TLS_CLIENT_CA", &path("ca.crt"))
                .env("WEIR__GRPC__TLS_CLIENT_CERT", "optional")
                .start()
        })
    }
}

/// The name of the program of a command.
pub(super) fn program(words: &[String]) -> &str {
    words[0].rsplit('/').next().unwrap_or_default()
}

/// The result of a program.
fn finished(output: Output) -> Run {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Links what the commands of the pages read: the examples, the protocol, and folders of rules.
fn fill(folder: &Path) {
    let link = |to: &Path, name: &str| symlink(to, folder.join(name)).expect("a new link");
    let examples = root().join("examples");
    for name in ["config", "rules"] {
        link(&examples.join("rules"), name);
    }
    link(&root().join("proto"), "proto");
    // Commands write into the folder of this sample, so it is a copy.
    let sample = folder.join("examples/clients/python");
    create_dir_all(&sample).expect("a new folder");
    let original = examples.join("clients/python/client.py");
    std::fs::copy(original, sample.join("client.py")).expect("the sample");
    for entry in read_dir(&examples).expect("the examples").map(|entry| entry.expect("a file")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "clients" {
            link(&entry.path(), &format!("examples/{name}"));
        }
    }
}
