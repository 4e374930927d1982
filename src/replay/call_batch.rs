//! Batches of recorded calls. A batch owns its texts in one buffer, because one thread reads it and
//! two others decide it. Its buffers are used again, so a call costs no allocation.

use std::ops::Range;

use smallvec::SmallVec;

use super::line_call::{CallDescriptor, EntryPlace, LineCall, TextPlace};
use crate::decision::Code;
use crate::decision_record::{RecordedDescriptor, RecordedRequest};
use crate::descriptor::{Descriptor, Entry, LEASE_KEY, Request, RequestError, TraceContext};
use crate::limit::HITS_END;
use crate::time::Micros;

/// The most calls of a batch. Its texts then fit into a second-level cache.
const CALLS_MAX: usize = 1024;

/// Bytes of texts from which a batch is full. The last line may exceed it by its own length.
const TEXT_BYTES: usize = 1 << 20;

/// The most descriptors of a call: the highest `request.max_descriptors`.
pub(super) const DESCRIPTORS_MAX: usize = 10_000;

/// The most entries of a descriptor: the highest `request.max_entries`.
pub(super) const ENTRIES_MAX: usize = 1_000;

/// The last instant that algorithms count exactly, in the year 2112.
pub(super) const LAST_INSTANT: u64 = (1 << 52) - 1;

/// Calls in the order of the recording.
#[derive(Debug, Default)]
pub(super) struct CallBatch {
    texts: String,
    entries: Vec<EntryPlace>,
    descriptors: Vec<CallDescriptor>,
    calls: Vec<BatchCall>,
}

/// A call of a batch.
#[derive(Debug)]
pub(super) struct BatchCall {
    /// The instant as of which the call is decided.
    pub(super) at: Micros,
    /// The recorded code of the response.
    pub(super) recorded: Option<Code>,
    /// Whether an entry may name a lease that an earlier call has opened.
    pub(super) names_lease: bool,
    domain: TextPlace,
    /// The recorded id of the lease that the call opened.
    lease: Option<TextPlace>,
    hits: u32,
    first_descriptor: u32,
    descriptors_end: u32,
}

impl CallBatch {
    /// Removes all calls, and keeps the buffers.
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.entries.clear();
        self.descriptors.clear();
        self.calls.clear();
    }

    /// Whether it has as many calls or texts as a batch should have.
    pub(super) fn is_full(&self) -> bool {
        self.calls.len() >= CALLS_MAX || self.texts.len() >= TEXT_BYTES
    }

    /// The calls.
    pub(super) fn calls(&self) -> &[BatchCall] {
        &self.calls
    }

    /// The number of the descriptors of all calls.
    pub(super) fn descriptor_count(&self) -> usize {
        self.descriptors.len()
    }

    /// Adds a call, which is in `line` and decided as of `at`.
    pub(super) fn push_line(&mut self, line: &str, call: &LineCall, at: Micros) {
        let domain = self.push_domain(call.domain.of(line));
        let lease = call.lease.map(|place| self.push_text(place.of(line)));
        let first_entry = self.entries.len() as u32;
        let first_descriptor = self.descriptors.len() as u32;
        for descriptor in &call.descriptors {
            let places = &call.entries[descriptor.entries()];
            if let (Some(first), Some(last)) = (places.first(), places.last()) {
                // The entries are next to each other in the line, so one copy has all of them.
                let (start, end) = (first.key.start, last.value.end);
                let copy = self.push_text(TextPlace { start, end }.of(line)).start;
                self.entries.extend(places.iter().map(|place| place.moved(start, copy)));
            }
            self.descriptors.push(CallDescriptor {
                first_entry: first_entry + descriptor.first_entry,
                entries_end: first_entry + descriptor.entries_end,
                ..*descriptor
            });
        }
        self.calls.push(BatchCall {
            at,
            recorded: call.code,
            names_lease: call.names_lease,
            domain,
            lease,
            hits: call.hits,
            first_descriptor,
            descriptors_end: self.descriptors.len() as u32,
        });
    }

    /// Adds a call that [`problem`] accepts, decided as of `at`.
    pub(super) fn push(&mut self, call: &RecordedRequest<'_>, at: Micros) {
        let domain = self.push_domain(&call.domain);
        let lease = call.descriptors.iter().find_map(|one| one.lease.as_deref());
        let lease = lease.map(|id| self.push_text(id));
        let first_descriptor = self.descriptors.len() as u32;
        let mut names_lease = false;
        for descriptor in &call.descriptors {
            names_lease |= self.push_descriptor(descriptor);
        }
        self.calls.push(BatchCall {
            at,
            recorded: call.code,
            names_lease,
            domain,
            lease,
            hits: call.hits,
            first_descriptor,
            descriptors_end: self.descriptors.len() as u32,
        });
    }

    /// Adds a descriptor. Returns whether it has a `lease` entry.
    fn push_descriptor(&mut self, descriptor: &RecordedDescriptor<'_>) -> bool {
        let first_entry = self.entries.len() as u32;
        let mut names_lease = false;
        for entry in &descriptor.entries {
            let Entry { key, value } = entry.as_entry();
            names_lease |= key == LEASE_KEY;
            let (key, value) = (self.push_text(key), self.push_text(value));
            self.entries.push(EntryPlace { key, value });
        }
        self.descriptors.push(CallDescriptor {
            first_entry,
            entries_end: self.entries.len() as u32,
            limit: descriptor.limit,
            hits_addend: descriptor.hits,
            is_negative_hits: descriptor.negative,
            recorded: descriptor.code,
        });
        names_lease
    }

    /// Adds the domain of a call. Nearly all calls have that of the call before.
    fn push_domain(&mut self, domain: &str) -> TextPlace {
        match self.calls.last() {
            Some(before) if before.domain.of(&self.texts) == domain => before.domain,
            _ => self.push_text(domain),
        }
    }

    /// Adds a text. A batch has less than 4 GiB of them, because a line has a bound.
    fn push_text(&mut self, text: &str) -> TextPlace {
        let start = self.texts.len() as u32;
        self.texts.push_str(text);
        TextPlace { start, end: self.texts.len() as u32 }
    }

    fn entry(&self, place: &EntryPlace) -> Entry<'_> {
        Entry { key: place.key.of(&self.texts), value: place.value.of(&self.texts) }
    }

    /// The domain of a call.
    pub(super) fn domain(&self, call: &BatchCall) -> &str {
        call.domain.of(&self.texts)
    }

    /// The recorded id of the lease that a call opened. It may be hashed.
    pub(super) fn lease(&self, call: &BatchCall) -> Option<&str> {
        call.lease.map(|place| place.of(&self.texts))
    }

    /// The entries of descriptor number `index` of the batch.
    pub(super) fn entries_of(&self, index: usize) -> Vec<Entry<'_>> {
        let places = self.descriptors[index].entries();
        self.entries[places].iter().map(|place| self.entry(place)).collect()
    }

    /// Calls `decide` with the request of a call, and returns its result. A request of a few entries needs
    /// no allocation.
    pub(super) fn with_request<T>(
        &self,
        call: &BatchCall,
        decide: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        let descriptors = &self.descriptors[call.descriptors()];
        let first = descriptors.first().map_or(0, |one| one.first_entry as usize);
        let end = descriptors.last().map_or(first, |one| one.entries_end as usize);
        let entries: SmallVec<[Entry<'_>; 8]> =
            self.entries[first..end].iter().map(|place| self.entry(place)).collect();
        let descriptor = |one: &CallDescriptor| {
            let places = one.entries();
            Descriptor {
                entries: &entries[places.start - first..places.end - first],
                limit: one.limit,
                hits_addend: one.hits_addend,
                is_negative_hits: one.is_negative_hits,
            }
        };
        let descriptors: SmallVec<[Descriptor<'_>; 2]> =
            descriptors.iter().map(descriptor).collect();
        decide(&Request {
            domain: self.domain(call),
            descriptors: &descriptors,
            hits_addend: call.hits,
            timeout: None,
            trace: TraceContext::default(),
            must_decide: None,
        })
    }

    /// The hits that descriptor number `index` of the batch, which is one of `call`, takes; 0 for a peek,
    /// and for hits that are given back.
    pub(super) fn taken_hits(&self, call: &BatchCall, index: usize) -> u64 {
        let descriptor = &self.descriptors[index];
        if descriptor.is_negative_hits {
            return 0;
        }
        descriptor.hits_addend.unwrap_or(u64::from(call.hits.max(1)))
    }

    /// The recorded code of descriptor number `index` of the batch.
    pub(super) fn recorded_code(&self, index: usize) -> Option<Code> {
        self.descriptors[index].recorded
    }
}

impl BatchCall {
    /// The numbers of its descriptors in the batch.
    pub(super) fn descriptors(&self) -> Range<usize> {
        self.first_descriptor as usize..self.descriptors_end as usize
    }
}

/// Why a recorded call cannot be decided: no server would have decided it.
pub(super) fn problem(call: &RecordedRequest<'_>) -> Option<String> {
    if call.at > LAST_INSTANT {
        let at = call.at;
        return Some(format!("`at` {at} is after the year 2112; write microseconds since 1970"));
    }
    let error = if call.domain.is_empty() {
        RequestError::EmptyDomain
    } else if call.descriptors.is_empty() {
        RequestError::NoDescriptors
    } else if call.descriptors.len() > DESCRIPTORS_MAX {
        let sent = call.descriptors.len();
        RequestError::TooManyDescriptors { sent, max: DESCRIPTORS_MAX }
    } else {
        let mut descriptors = call.descriptors.iter().enumerate();
        descriptors.find_map(|(index, one)| descriptor_error(index, one))?
    };
    Some(error.to_string())
}

fn descriptor_error(index: usize, descriptor: &RecordedDescriptor<'_>) -> Option<RequestError> {
    let sent = descriptor.entries.len();
    if sent > ENTRIES_MAX {
        return Some(RequestError::TooManyEntries { index, sent, max: ENTRIES_MAX });
    }
    if descriptor.entries.iter().any(|entry| entry.0.is_empty()) {
        return Some(RequestError::EmptyKey { index });
    }
    let sent = descriptor.hits.filter(|hits| *hits >= HITS_END)?;
    Some(RequestError::TooManyHits { index, sent })
}

#[cfg(test)]
mod tests;
