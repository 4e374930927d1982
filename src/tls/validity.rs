//! The validity of an X.509 certificate (RFC 5280, section 4.1.2.5), for warnings and metrics.
//!
//! rustls rejects expired certificates itself.

use x509_parser::prelude::{FromDer, X509Certificate};

/// The period in which a certificate is valid, in seconds since 1970. Times before 1970 are 0.
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
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let seconds =
            |time: &x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or(0);
        let validity = certificate.validity();
        Some(Validity { begins: seconds(&validity.not_before), ends: seconds(&validity.not_after) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn validity_is_read_from_both_date_forms() {
        let mut params = CertificateParams::new(["weir".to_owned()]).unwrap();
        // X.509 writes years before 2050 with two digits and later years with four.
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 2), date_time_ymd(2051, 3, 4));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der().to_vec();
        let validity = Validity { begins: 1_577_923_200, ends: 2_561_500_800 };
        assert_eq!(Validity::of(&der), Some(validity));
        for length in 0..der.len() {
            assert_eq!(Validity::of(&der[..length]), None, "the first {length} bytes");
        }
    }

    #[test]
    fn years_before_1970_count_as_1970() {
        let mut params = CertificateParams::new(["weir".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1960, 1, 1);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(Validity::of(certificate.der()).map(|validity| validity.begins), Some(0));
    }
}
