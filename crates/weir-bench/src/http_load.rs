//! An open loop of GET requests over HTTP/2, the load on a proxy that calls a rate limit service.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Request, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, LocalSet, spawn_local, yield_now};
use tokio::time::timeout;

use crate::connection::{connect, read_body};
use crate::report::Latency;
use crate::response::{CallOutcome, DecisionSummary, OverallCode};
use crate::stats::Stats;
use crate::timer::PreciseTimer;
use crate::worker::BURST_MAX;

/// Time after the last request in which responses count.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Open connections to a proxy, and the requests that are sent over them in turn.
#[derive(Debug)]
pub struct HttpLoad {
    connections: Vec<SendRequest<Bytes>>,
    requests: Vec<Request<()>>,
    /// Requests sent so far, so that a load begins with the request after that of the last one.
    sent: Cell<usize>,
    /// Drives the connections. It is dropped before the runtime.
    tasks: LocalSet,
    runtime: Runtime,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct HttpReport {
    /// Responses with status 200.
    pub ok: u64,
    /// Requests without such a response, by reason.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of responses with status 200, from the instant their request was due.
    pub latency_us: Latency,
    /// Time from the instant a request was due to the instant it was sent.
    pub lateness_us: Latency,
}

impl HttpLoad {
    /// Opens `connections` to the proxy at `address`. There is one request `GET /` for each header
    /// of `headers`, a name and a value.
    ///
    /// # Errors
    ///
    /// A header is invalid, or a connection cannot be opened.
    pub fn open(
        address: SocketAddr,
        connections: usize,
        headers: &[(String, String)],
    ) -> io::Result<HttpLoad> {
        let request = |(name, value): &(String, String)| {
            let request = Request::get(format!("http://{address}/"));
            request.header(name.as_str(), value.as_str()).body(()).map_err(io::Error::other)
        };
        let requests = headers.iter().map(request).collect::<io::Result<Vec<_>>>()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = LocalSet::new();
        let connections = tasks.block_on(&runtime, open(address, connections))?;
        Ok(HttpLoad { connections, requests, sent: Cell::new(0), tasks, runtime })
    }

    /// Sends `rate` requests per second for `duration`, evenly, whether or not earlier ones were
    /// answered. `rate` must be more than 0. Blocks until all are answered or timed out. Nothing is
    /// sent between two loads, so the CPU time of a proxy before and after is that of the load.
    ///
    /// # Errors
    ///
    /// The system has no timer. Failed requests are no error; the report counts them.
    pub fn run(&self, rate: f64, duration: Duration) -> io::Result<HttpReport> {
        self.run_from(Instant::now(), rate, duration)
    }

    /// The same, with requests that are due from `begin` on. Those that are due already are sent at once. So
    /// loads that follow each other send `rate` requests per second in all, whatever each of them takes to
    /// begin and to end.
    ///
    /// # Errors
    ///
    /// As for [`HttpLoad::run`].
    pub fn run_from(
        &self,
        begin: Instant,
        rate: f64,
        duration: Duration,
    ) -> io::Result<HttpReport> {
        let load = open_loop(&self.connections, &self.requests, &self.sent, begin, rate, duration);
        let stats = self.tasks.block_on(&self.runtime, load)?;
        Ok(HttpReport {
            ok: stats.ok,
            latency_us: Latency::new(&stats.latency),
            lateness_us: Latency::new(&stats.lateness),
            errors: stats.errors,
        })
    }
}

async fn open(address: SocketAddr, count: usize) -> io::Result<Vec<SendRequest<Bytes>>> {
    let mut opened = Vec::new();
    for _ in 0..count {
        let (sender, driver) = connect(address).await.map_err(io::Error::other)?;
        // Requests in flight get the error of a lost connection.
        spawn_local(driver);
        opened.push(sender);
    }
    Ok(opened)
}

async fn open_loop(
    connections: &[SendRequest<Bytes>],
    requests: &[Request<()>],
    sent: &Cell<usize>,
    begin: Instant,
    rate: f64,
    duration: Duration,
) -> io::Result<Stats> {
    let timer = PreciseTimer::new()?;
    let stats = Rc::new(RefCell::new(Stats::new()));
    let mut calls = JoinSet::new();
    let first = sent.get() % requests.len().max(1);
    let next = connections.iter().cycle().zip(requests.iter().cycle().skip(first));
    for (index, (connection, request)) in (0_u64..).zip(next) {
        let after = Duration::from_secs_f64(index as f64 / rate);
        if after >= duration {
            break;
        }
        let due = begin + after;
        timer.sleep_until(due).await?;
        if index % BURST_MAX == 0 {
            yield_now().await;
        }
        sent.set(sent.get().wrapping_add(1));
        calls.spawn_local(get_due(connection.clone(), request.clone(), due, Rc::clone(&stats)));
        while calls.try_join_next().is_some() {}
    }
    let rest = async { while calls.join_next().await.is_some() {} };
    if timeout(TIMEOUT, rest).await.is_err() {
        stats.borrow_mut().record_errors("unanswered", calls.len() as u64);
    }
    Ok(stats.replace(Stats::new()))
}

async fn get_due(
    connection: SendRequest<Bytes>,
    request: Request<()>,
    due: Instant,
    stats: Rc<RefCell<Stats>>,
) {
    let on_sent = || stats.borrow_mut().record_lateness(due.elapsed());
    let outcome = match get(connection, request, on_sent).await {
        Ok(StatusCode::OK) => {
            CallOutcome::Decided(DecisionSummary { code: OverallCode::Ok, by_fallback: None })
        }
        Ok(status) => CallOutcome::Failed(format!("http {}", status.as_u16())),
        Err(error) => CallOutcome::Disconnected(format!("connection: {error}")),
    };
    stats.borrow_mut().record(outcome, due.elapsed());
}

/// Returns the status once the whole response has arrived.
async fn get(
    connection: SendRequest<Bytes>,
    request: Request<()>,
    on_sent: impl FnOnce(),
) -> Result<StatusCode, h2::Error> {
    let mut connection = connection.ready().await?;
    on_sent();
    let (response, _) = connection.send_request(request, true)?;
    let (head, mut body) = response.await?.into_parts();
    read_body(&mut body).await?;
    Ok(head.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use std::thread;
    use tokio::net::{TcpListener, TcpStream};

    /// The header that names the status of the response.
    const STATUS: &str = "x-status";

    /// A server that responds with the status of the request's header.
    fn server() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    spawn_local(serve(stream));
                }
            });
        });
        address
    }

    async fn serve(stream: TcpStream) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let status = request.headers()[STATUS].to_str().unwrap();
            let response = Response::builder().status(status).body(()).unwrap();
            respond.send_response(response, true).unwrap();
        }
    }

    /// A second load uses the same connections.
    #[test]
    fn requests_are_sent_in_turn_and_counted_by_status() {
        let headers = ["200", "429"].map(|status| (STATUS.to_owned(), status.to_owned()));
        let load = HttpLoad::open(server(), 3, &headers).unwrap();
        for requests in [20, 10] {
            let report = load.run(1_000.0, Duration::from_millis(requests)).unwrap();
            assert_eq!(report.ok, requests / 2);
            let errors: Vec<_> = report.errors.into_iter().collect();
            assert_eq!(errors, [("http 429".to_owned(), requests / 2)]);
        }
        let one = || load.run(1_000.0, Duration::from_millis(1)).unwrap().ok;
        assert_eq!([one(), one(), one()], [1, 0, 1], "each load goes on where the last one ended");
    }

    /// A second late, so all of them are due already.
    #[test]
    fn a_late_load_sends_all_of_its_requests_at_once() {
        let headers = [(STATUS.to_owned(), "200".to_owned())];
        let load = HttpLoad::open(server(), 1, &headers).unwrap();
        let begin = Instant::now() - Duration::from_secs(1);
        let report = load.run_from(begin, 100.0, Duration::from_millis(500)).unwrap();
        assert_eq!(report.ok, 50);
        assert!(report.lateness_us.p50 > 500_000.0, "{:?}", report.lateness_us);
    }

    #[test]
    fn an_invalid_header_is_an_error() {
        let address = "127.0.0.1:1".parse().unwrap();
        let headers = [("no name".to_owned(), String::new())];
        let error = HttpLoad::open(address, 1, &headers).unwrap_err().to_string();
        assert!(error.contains("header name"), "{error}");
    }
}
