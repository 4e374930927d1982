//! Cuts a large report into smaller ones.
//!
//! A report may have tens of thousands of buckets. Read in one go, it would hold up the other
//! connections of its worker.

use bytes::Bytes;

use crate::proto::wire;

/// The most buckets of a slice.
pub(super) const USAGES_MAX: usize = 64;

/// A slice of this size gets no further bucket.
const BYTES_MAX: usize = 16 * 1024;

/// The numbers of the fields of a `RateLimitQuotaUsageReports`.
const DOMAIN: u32 = 1;
const USAGES: u32 = 2;

/// Encoded reports that together have the buckets of one report. The first one has its domain. The others have
/// none: that of their stream is meant.
pub(super) struct ReportSlices {
    /// What is left of the report.
    rest: Bytes,
    /// The field with the domain, until a slice has it.
    domain: Bytes,
    /// The buckets of a report that is not cut and was not returned.
    whole: Option<usize>,
}

/// An encoded report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReportSlice {
    pub(super) message: Bytes,
    /// The number of its buckets, at least as far as it is valid.
    pub(super) usages: usize,
}

impl ReportSlices {
    /// The slices of an encoded `report`. One that is not valid is not cut.
    pub(super) fn of(report: Bytes) -> ReportSlices {
        let (mut rest, mut usages, mut domain) = (&report[..], 0, Bytes::new());
        let is_valid = loop {
            let at = report.len() - rest.len();
            match wire::next(&mut rest) {
                Ok(Some((USAGES, _))) => usages += 1,
                // Of several values, the last one counts.
                Ok(Some((DOMAIN, _))) => domain = report.slice(at..report.len() - rest.len()),
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let is_large = usages > USAGES_MAX || (usages > 1 && report.len() > BYTES_MAX);
        let is_cut = is_valid && is_large;
        ReportSlices { rest: report, domain, whole: (!is_cut).then_some(usages) }
    }
}

impl Iterator for ReportSlices {
    type Item = ReportSlice;

    fn next(&mut self) -> Option<ReportSlice> {
        if let Some(usages) = self.whole.take() {
            return Some(ReportSlice { message: std::mem::take(&mut self.rest), usages });
        }
        let (mut message, mut usages) = (std::mem::take(&mut self.domain).to_vec(), 0);
        let (bytes_max, mut rest) = (message.len() + BYTES_MAX, &self.rest[..]);
        while usages < USAGES_MAX && message.len() < bytes_max {
            let field = rest;
            let Ok(Some((number, _))) = wire::next(&mut rest) else { break };
            if number == USAGES {
                message.extend_from_slice(&field[..field.len() - rest.len()]);
                usages += 1;
            }
        }
        let read = self.rest.len() - rest.len();
        self.rest = self.rest.slice(read..);
        (usages > 0).then(|| ReportSlice { message: message.into(), usages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;
    use prost::Message;

    use crate::proto::{BucketId, BucketQuotaUsage, RateLimitQuotaUsageReports};

    fn report(domain: &str, buckets: usize) -> RateLimitQuotaUsageReports {
        let usage = |number: usize| BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [("name".to_owned(), number.to_string())].into() }),
            num_requests_allowed: number as u64,
            ..BucketQuotaUsage::default()
        };
        let bucket_quota_usages = (0..buckets).map(usage).collect();
        RateLimitQuotaUsageReports { domain: domain.into(), bucket_quota_usages }
    }

    fn slices(report: impl Into<Bytes>) -> Vec<ReportSlice> {
        ReportSlices::of(report.into()).collect()
    }

    proptest! {
        /// All buckets arrive in order, the first slice has the domain, and no slice is too large.
        #[test]
        fn slices_have_all_buckets(domain in "[a-z]{0,5}", buckets in 0..400_usize) {
            let whole = report(&domain, buckets);
            let slices = slices(whole.encode_to_vec());
            let mut usages = Vec::new();
            for (number, slice) in slices.iter().enumerate() {
                let read = RateLimitQuotaUsageReports::decode(slice.message.clone()).unwrap();
                prop_assert_eq!(&read.domain, if number == 0 { &domain } else { "" });
                prop_assert_eq!(read.bucket_quota_usages.len(), slice.usages);
                prop_assert!(slice.usages <= USAGES_MAX);
                usages.extend(read.bucket_quota_usages);
            }
            prop_assert_eq!(usages, whole.bucket_quota_usages);
            prop_assert_eq!(slices.len(), buckets.div_ceil(USAGES_MAX).max(1));
        }

        /// Nothing is invented from bytes that are no report.
        #[test]
        fn other_bytes_are_one_slice(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let slices = slices(bytes.clone());
            prop_assert_eq!(slices.len(), 1);
            prop_assert_eq!(&slices[0].message[..], &bytes[..]);
        }
    }

    #[test]
    fn an_invalid_end_is_not_lost() {
        let mut bytes = report("d", 100).encode_to_vec();
        bytes.extend([0x12, 0x7f]);
        let slices = slices(bytes.clone());
        assert_eq!(slices.len(), 1);
        assert_eq!(slices[0].message, bytes);
    }

    #[test]
    fn large_buckets_are_cut_apart() {
        let mut large = report("d", 3);
        for usage in &mut large.bucket_quota_usages {
            let id = usage.bucket_id.as_mut().unwrap();
            id.bucket.insert("long".into(), "x".repeat(BYTES_MAX));
        }
        let usages = |report: &RateLimitQuotaUsageReports| -> Vec<usize> {
            slices(report.encode_to_vec()).iter().map(|slice| slice.usages).collect()
        };
        assert_eq!(usages(&large), [1, 1, 1]);
        large.domain = "d".repeat(4 * BYTES_MAX);
        assert_eq!(usages(&large), [1, 1, 1], "the domain counts for no slice");
    }

    #[test]
    fn the_last_domain_counts() {
        let mut bytes = report("first", 100).encode_to_vec();
        bytes.extend(report("last", 0).encode_to_vec());
        let read = |slice: &ReportSlice| {
            RateLimitQuotaUsageReports::decode(slice.message.clone()).unwrap().domain
        };
        let domains: Vec<String> = slices(bytes).iter().map(read).collect();
        assert_eq!(domains, ["last", ""]);
    }
}
