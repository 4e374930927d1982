//! The protocol of one client: which request follows which response. Pure; it has no clock and no
//! network.
//!
//! Each stream starts with an empty version and an empty nonce. A server that starts again may count
//! its versions from the same number, so a version of an earlier stream means nothing.
//!
//! A server answers a rejection (NACK) with the same content at once. So rejected content that comes again
//! is held, for [`HOLDS`]. New content is applied at once. After five rejections in a row, the rejection of
//! new content is held too. A server sends no other content before it has an answer, so the holds are short.

use std::time::Duration;

/// Delay before applying and answering repeated rejected content: first repeat, second repeat, and so on.
/// The last one repeats.
const HOLDS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(5),
];

/// Rejections in a row after which each further one is held for the first of [`HOLDS`], also if the
/// content differs each time.
const REJECTIONS_WITHOUT_HOLD: u32 = 5;

/// A response, without its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct XdsResponse {
    pub(super) version: String,
    pub(super) nonce: String,
    /// A hash of the resources, which does not depend on their order.
    pub(super) content: u64,
}

/// What a request says. Its other fields are the same in every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct XdsRequest {
    /// The version of the last accepted response of this stream.
    pub(super) version: String,
    /// The nonce of the answered response.
    pub(super) nonce: String,
    /// Why the response is rejected; `None` accepts it.
    pub(super) error: Option<String>,
}

/// What follows a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum XdsAction {
    /// Apply the resources now.
    Apply,
    /// Apply the resources after this time, unless another response comes before. If the answer to a
    /// response before is held too, its time counts.
    Hold(Duration),
    /// Nothing changes. Send this request.
    Answer(XdsRequest),
}

/// The answer to a response that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) request: XdsRequest,
    /// Send the request after this time, unless another response comes before. `None`: at once.
    pub(super) hold: Option<Duration>,
}

/// Content that was applied.
#[derive(Clone, Copy, Debug)]
struct AppliedContent {
    content: u64,
    is_accepted: bool,
}

/// The state of a client.
#[derive(Debug, Default)]
pub(super) struct XdsSession {
    /// The version and the content of the last accepted response of this stream.
    accepted: Option<(String, u64)>,
    /// The response that has no answer yet.
    unanswered: Option<XdsResponse>,
    /// The last applied content. Other streams count too.
    last_applied: Option<AppliedContent>,
    /// How often that content has come again, if it was rejected.
    repeats: usize,
    /// Rejections since the last accepted response.
    rejections: u32,
}

impl XdsSession {
    /// A new stream has opened: its first request.
    pub(super) fn opened(&mut self) -> XdsRequest {
        self.accepted = None;
        self.unanswered = None;
        XdsRequest::default()
    }

    /// A response has come. It replaces one that was not answered.
    pub(super) fn received(&mut self, response: XdsResponse) -> XdsAction {
        let is_active = self.accepted.as_ref().is_some_and(|(version, content)| {
            *version == response.version && *content == response.content
        });
        let rejected = self.last_applied.filter(|last| !last.is_accepted).map(|last| last.content);
        if is_active && rejected.is_none() {
            let (version, nonce) = (response.version, response.nonce);
            return XdsAction::Answer(XdsRequest { version, nonce, error: None });
        }
        let is_repeated = rejected == Some(response.content);
        self.repeats = if is_repeated { self.repeats + 1 } else { 0 };
        self.unanswered = Some(response);
        match self.repeats {
            0 => XdsAction::Apply,
            times => XdsAction::Hold(HOLDS[(times - 1).min(HOLDS.len() - 1)]),
        }
    }

    /// Whether the response to be answered has other content than the one applied before it.
    pub(super) fn is_new(&self) -> bool {
        let content = self.unanswered.as_ref().map(|response| response.content);
        content != self.last_applied.map(|last| last.content)
    }

    /// The resources were applied; `reasons` are those against them, none if they are accepted. Returns
    /// the answer; `None` without a response to be answered.
    pub(super) fn applied(&mut self, reasons: &[String]) -> Option<Answer> {
        let XdsResponse { version, nonce, content } = self.unanswered.take()?;
        let is_accepted = reasons.is_empty();
        self.last_applied = Some(AppliedContent { content, is_accepted });
        if is_accepted {
            self.accepted = Some((version.clone(), content));
            (self.repeats, self.rejections) = (0, 0);
            return Some(Answer {
                request: XdsRequest { version, nonce, error: None },
                hold: None,
            });
        }
        // Repeated content was held before it was applied.
        let is_held = self.repeats == 0 && self.rejections >= REJECTIONS_WITHOUT_HOLD;
        self.rejections = self.rejections.saturating_add(1);
        let version = self.accepted.as_ref().map(|(version, _)| version.clone());
        let error = Some(reasons.join("\n"));
        let request = XdsRequest { version: version.unwrap_or_default(), nonce, error };
        Some(Answer { request, hold: is_held.then_some(HOLDS[0]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version, content, and whether it is accepted.
    type Responses<'a> = &'a [(&'a str, u64, bool)];

    fn response(version: &str, nonce: &str, content: u64) -> XdsResponse {
        XdsResponse { version: version.to_owned(), nonce: nonce.to_owned(), content }
    }

    fn request(version: &str, nonce: &str, error: Option<&str>) -> XdsRequest {
        let error = error.map(str::to_owned);
        XdsRequest { version: version.to_owned(), nonce: nonce.to_owned(), error }
    }

    /// The answer to the unanswered response, which is accepted.
    fn answer(session: &mut XdsSession) -> Option<XdsRequest> {
        session.applied(&[]).map(|answer| answer.request)
    }

    /// The answers to responses of (version, content, accepted), with the nonces 1, 2, ...
    fn answers(session: &mut XdsSession, responses: Responses<'_>) -> Vec<XdsRequest> {
        let answer = |(index, (version, content, accepted)): (usize, &(&str, u64, bool))| {
            let nonce = (index + 1).to_string();
            if let XdsAction::Answer(request) =
                session.received(response(version, &nonce, *content))
            {
                return request;
            }
            let reasons = if *accepted { Vec::new() } else { vec!["bad".to_owned()] };
            session.applied(&reasons).expect("an answer to the response").request
        };
        responses.iter().enumerate().map(answer).collect()
    }

    #[test]
    fn each_response_is_accepted_or_rejected() {
        let bad = Some("bad");
        let table: [(Responses<'_>, Vec<XdsRequest>); 5] = [
            (&[("1", 1, true)], vec![request("1", "1", None)]),
            // The version is not compared: the content counts.
            (
                &[("1", 1, true), ("1", 2, true)],
                vec![request("1", "1", None), request("1", "2", None)],
            ),
            (&[("1", 1, false)], vec![request("", "1", bad)]),
            (
                &[("1", 1, true), ("2", 2, false), ("3", 3, true)],
                vec![request("1", "1", None), request("1", "2", bad), request("3", "3", None)],
            ),
            (
                &[("1", 1, true), ("1", 1, true), ("2", 1, true)],
                vec![request("1", "1", None), request("1", "2", None), request("2", "3", None)],
            ),
        ];
        for (responses, expected) in table {
            let mut session = XdsSession::default();
            assert_eq!(session.opened(), XdsRequest::default());
            assert_eq!(answers(&mut session, responses), expected, "{responses:?}");
            assert_eq!(session.applied(&[]), None, "each response has one answer");
        }
    }

    #[test]
    fn a_new_stream_has_no_version_and_no_nonce() {
        let mut session = XdsSession::default();
        session.opened();
        answers(&mut session, &[("7", 1, true)]);
        session.received(response("8", "2", 2));
        assert_eq!(session.opened(), request("", "", None));
        assert_eq!(session.applied(&[]), None, "no answer to a response of the last stream");
        // A version of the stream before means nothing.
        let bad = Some("bad");
        assert_eq!(answers(&mut session, &[("1", 3, false)]), [request("", "1", bad)]);
        // Equal content is applied again, because its version may be another one.
        session.opened();
        assert_eq!(session.received(response("7", "1", 1)), XdsAction::Apply);
    }

    #[test]
    fn repeated_rejected_content_is_held() {
        let mut session = XdsSession::default();
        session.opened();
        let mut holds = Vec::new();
        for nonce in 0..7 {
            let next = session.received(response("1", &nonce.to_string(), 1));
            holds.push(match next {
                XdsAction::Hold(time) => time.as_secs(),
                _ => 0,
            });
            assert_eq!(session.is_new(), nonce == 0);
            session.applied(&["bad".to_owned()]);
            if nonce == 4 {
                session.opened();
            }
        }
        assert_eq!(holds, [0, 1, 2, 4, 5, 5, 5], "also on the next stream");
        // Other content is applied at once. If it is accepted, so is the answer, and the holds end.
        assert_eq!(session.received(response("1", "8", 2)), XdsAction::Apply);
        assert_eq!(session.applied(&[]).map(|answer| answer.hold), Some(None));
        assert_eq!(session.received(response("2", "9", 1)), XdsAction::Apply);
    }

    /// A server may push other content before it has an answer. Only the answer waits.
    #[test]
    fn only_answers_to_changing_content_are_held() {
        let mut session = XdsSession::default();
        session.opened();
        let mut content = 0;
        let mut reject = || {
            content += 1;
            assert_eq!(session.received(response("1", "1", content)), XdsAction::Apply);
            session.applied(&["bad".to_owned()]).map(|answer| answer.hold)
        };
        for _ in 0..REJECTIONS_WITHOUT_HOLD {
            assert_eq!(reject(), Some(None));
        }
        for _ in 0..3 {
            assert_eq!(reject(), Some(Some(HOLDS[0])));
        }
    }

    #[test]
    fn equal_content_is_not_new() {
        let mut session = XdsSession::default();
        let table = [("1", 1, true), ("2", 1, false), ("2", 2, true), ("3", 1, true)];
        for (index, (version, content, is_new)) in table.into_iter().enumerate() {
            // Each on its own stream, where it is applied in any case.
            session.opened();
            assert_eq!(session.received(response(version, "1", content)), XdsAction::Apply);
            assert_eq!(session.is_new(), is_new, "response {index}");
            session.applied(&[]);
        }
    }

    /// The content before is active again, so the rejection in between must not count.
    #[test]
    fn accepted_content_after_a_rejection_is_applied() {
        let mut session = XdsSession::default();
        session.opened();
        answers(&mut session, &[("1", 1, true), ("2", 2, false)]);
        assert_eq!(session.received(response("1", "3", 1)), XdsAction::Apply);
        assert_eq!(answer(&mut session), Some(request("1", "3", None)));
        assert_eq!(
            session.received(response("1", "4", 1)),
            XdsAction::Answer(request("1", "4", None)),
            "an equal response changes nothing"
        );
    }

    #[test]
    fn a_response_replaces_one_that_is_held() {
        let mut session = XdsSession::default();
        session.opened();
        answers(&mut session, &[("1", 1, false)]);
        assert_eq!(session.received(response("1", "2", 1)), XdsAction::Hold(HOLDS[0]));
        assert_eq!(session.received(response("2", "3", 2)), XdsAction::Apply);
        assert_eq!(answer(&mut session), Some(request("2", "3", None)));
    }
}
