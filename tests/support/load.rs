//! A crowd of callers that ask several instances at once and remember every answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tonic::transport::{Channel, Endpoint};

use crate::support::rls::{
    Code, RateLimitRequest, RateLimitResponse, RateLimitServiceClient, headers,
};

/// One answer to one question.
pub(crate) struct Answer {
    /// What was asked: the number that the question was made from.
    pub(crate) question: usize,
    /// When the answer came.
    pub(crate) at: Instant,
    /// How long it took.
    pub(crate) took: Duration,
    pub(crate) response: RateLimitResponse,
}

impl Answer {
    /// Whether descriptor `index` may pass.
    pub(crate) fn passed(&self, index: usize) -> bool {
        self.response.statuses[index].code == i32::from(Code::Ok)
    }

    /// Why the fallback decided, if it did, for any descriptor.
    pub(crate) fn fallback(&self) -> Option<String> {
        let headers = headers(&self.response);
        let (_, how) = headers.iter().find(|(name, _)| *name == "x-weir-decision")?;
        let (_, cause) = how.split_once("cause=")?;
        Some(cause.split([',', ';']).next().unwrap_or_default().to_owned())
    }
}

/// Makes question number `n`.
pub(crate) type Question = Arc<dyn Fn(usize) -> RateLimitRequest + Send + Sync>;

/// Callers at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Answer>>,
}

/// Asks questions 0 to `questions - 1`, each once, by `callers` callers per instance.
pub(crate) fn ask_all(
    instances: &[SocketAddr],
    callers: usize,
    questions: usize,
    question: Question,
) -> Vec<Answer> {
    let crowd = Load::begin(instances, callers, questions, question);
    crowd.thread.join().expect("no call failed")
}

impl Load {
    /// Asks questions 0, 1, 2, ... until told to stop.
    pub(crate) fn start(instances: &[SocketAddr], callers: usize, question: Question) -> Load {
        Load::begin(instances, callers, usize::MAX, question)
    }

    /// Stops, and gives all answers. Fails if any call was not answered.
    pub(crate) fn stop(self) -> Vec<Answer> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no call failed")
    }

    fn begin(
        instances: &[SocketAddr],
        callers: usize,
        questions: usize,
        question: Question,
    ) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, instances) = (stop.clone(), instances.to_vec());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let next = Arc::new(AtomicUsize::new(0));
                let mut tasks = Vec::new();
                for instance in instances {
                    let endpoint = Endpoint::from_shared(format!("http://{instance}"));
                    let endpoint = endpoint.expect("an address");
                    for _ in 0..callers.div_ceil(CALLERS_PER_CONNECTION) {
                        let channel = endpoint.connect().await.expect("it listens");
                        for _ in 0..callers.min(CALLERS_PER_CONNECTION) {
                            let caller = Caller {
                                channel: channel.clone(),
                                next: next.clone(),
                                stopped: stopped.clone(),
                                question: question.clone(),
                                questions,
                            };
                            tasks.push(tokio::spawn(caller.ask()));
                        }
                    }
                }
                let mut answers = Vec::new();
                for task in tasks {
                    answers.extend(task.await.expect("no caller panicked"));
                }
                answers
            })
        });
        Load { stop, thread }
    }
}

const CALLERS_PER_CONNECTION: usize = 16;

struct Caller {
    channel: Channel,
    next: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    question: Question,
    questions: usize,
}

impl Caller {
    async fn ask(self) -> Vec<Answer> {
        let mut client = RateLimitServiceClient::new(self.channel);
        let mut answers = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let question = self.next.fetch_add(1, Ordering::Relaxed);
            if question >= self.questions {
                break;
            }
            let request = (self.question)(question);
            let began = Instant::now();
            let response = client.should_rate_limit(request).await.expect("never an RPC error");
            let at = Instant::now();
            let response = response.into_inner();
            answers.push(Answer { question, at, took: at - began, response });
        }
        answers
    }
}

/// A line of figures: how many answers, how many by the fallback and why, and how long they took.
pub(crate) fn figures<'a>(what: &str, answers: impl Iterator<Item = &'a Answer>) {
    let mut took = Vec::new();
    let mut causes = std::collections::BTreeMap::<String, usize>::new();
    for answer in answers {
        took.push(answer.took);
        if let Some(cause) = answer.fallback() {
            *causes.entry(cause).or_default() += 1;
        }
    }
    took.sort_unstable();
    let share = |part: f64| {
        let index = (took.len() as f64 * part) as usize;
        took.get(index.min(took.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    eprintln!(
        "{what}: {} answers, by fallback {causes:?}, p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?}",
        took.len(),
        share(0.5),
        share(0.99),
        share(0.999),
        share(1.0),
    );
}
