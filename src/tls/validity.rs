//! The validity of an X.509 certificate (RFC 5280, section 4.1.2.5), for warnings and metrics.
//!
//! rustls checks it where trust depends on it.

use super::der;

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The instants between which a certificate is valid, in seconds since 1970; earlier ones are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first valid second.
    pub begins: u64,
    /// The last valid second.
    pub ends: u64,
}

impl Validity {
    /// The validity of a certificate in DER; `None` if it is not an X.509 certificate.
    pub(super) fn of(certificate: &[u8]) -> Option<Validity> {
        let mut instants = der::elements(der::validity(certificate)?);
        let mut next = || instants.next().and_then(|(tag, text)| instant(tag, text));
        Some(Validity { begins: next()?, ends: next()? })
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`. Before 1970: 0.
fn instant(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    let parts: Option<Vec<i64>> = rest.chunks(2).map(number).collect();
    let [month @ 1..=12, day, hour, minute, second] = parts?[..] else { return None };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(u64::try_from(seconds).unwrap_or(0))
}

fn number(digits: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(digits).ok()?;
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Days since 1970 of a Gregorian date. Years begin in March here, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let of_years = 365 * year + year / 4 - year / 100 + year / 400;
    of_years + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn both_date_forms_are_read() {
        let table: [(u8, &[u8], Option<u64>); 9] = [
            (UTC_TIME, b"700101000000Z", Some(0)),
            (UTC_TIME, b"000229235959Z", Some(951_868_799)),
            (UTC_TIME, b"491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, b"20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, b"99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, b"500101000000Z", Some(0)),
            (UTC_TIME, b"7001010000Z", None),
            (UTC_TIME, b"70010100000xZ", None),
            (0, b"700101000000Z", None),
        ];
        for (tag, text, seconds) in table {
            assert_eq!(instant(tag, text), seconds, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn validity_is_read_from_whole_certificates_only() {
        let mut params = CertificateParams::new(["weir".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 2), date_time_ymd(2051, 3, 4));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der().to_vec();
        let validity = Validity { begins: 1_577_923_200, ends: 2_561_500_800 };
        assert_eq!(Validity::of(&der), Some(validity));
        for length in 0..der.len() {
            assert_eq!(Validity::of(&der[..length]), None, "its first {length} bytes");
            assert_eq!(der::names(&der[..length]).next(), None, "its first {length} bytes");
        }
        assert_eq!(der::names(&der).collect::<Vec<_>>(), [(0x82, "weir")]);
    }
}
