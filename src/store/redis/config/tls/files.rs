//! The files of certificates, read for every handshake, so that they can be exchanged while weir
//! runs. Files that are no good change nothing.

use std::sync::{Arc, Mutex, PoisonError};

use fred::rustls::client::ResolvesClientCert;
use fred::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use fred::rustls::crypto::{CryptoProvider, ring};
use fred::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use fred::rustls::sign::CertifiedKey;
use fred::rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::certificates::{Bytes, Certificates};
use super::{RedisConfigError, RedisTls};

/// The files, and what was good of them last.
pub(super) struct Files {
    tls: RedisTls,
    provider: Arc<CryptoProvider>,
    last: Mutex<Last>,
}

struct Last {
    good: Certificates,
    /// What `good` was made of.
    bytes: Bytes,
    /// What the files were found to be that are no good; told already.
    told: Option<RedisConfigError>,
}

impl Files {
    /// Reads them for the first time.
    ///
    /// # Errors
    ///
    /// Tells what to mend when they cannot be used.
    pub(super) fn open(tls: RedisTls) -> Result<Files, RedisConfigError> {
        let provider = Arc::new(ring::default_provider());
        let bytes = Bytes::read(&tls)?;
        let good = Certificates::of(&bytes, &tls, &provider)?;
        Ok(Files { tls, provider, last: Mutex::new(Last { good, bytes, told: None }) })
    }

    /// What does the arithmetic.
    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        Arc::clone(&self.provider)
    }

    /// The last that were good.
    fn known(&self) -> Certificates {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).good.clone()
    }

    /// Those that are in the files now, or the last that were good.
    fn now(&self) -> Certificates {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Bytes::read(&self.tls).and_then(|bytes| {
            if bytes == last.bytes {
                return Ok(None);
            }
            let good = Certificates::of(&bytes, &self.tls, &self.provider)?;
            Ok(Some((good, bytes)))
        });
        match fresh {
            Ok(None) => last.told = None,
            Ok(Some((good, bytes))) => {
                tracing::info!("certificates for Redis read again: new connections use them");
                *last = Last { good, bytes, told: None };
            }
            Err(error) if last.told.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(%error, "certificates for Redis not read: those in use stay");
                last.told = Some(error);
            }
        }
        last.good.clone()
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What they hold is secret in part.
        f.debug_struct("Files").field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Files {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = self.now().chain;
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is the last thing that is looked at, so all else was in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.tls.skip_hostname_check => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known().chain.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.known().chain.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known().chain.supported_verify_schemes()
    }
}

impl ResolvesClientCert for Files {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.now().own
    }

    fn has_certs(&self) -> bool {
        self.known().own.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["weir".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn every_handshake_gets_the_pair_in_the_files_or_the_last_good_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let [(first, first_key), (second, second_key)] = [pair(), pair()];
        let write = |name: &str, text: &str| fs::write(path(name), text).unwrap();
        write("crt", &first);
        write("key", &first_key);
        let tls = RedisTls {
            ca: Some(path("crt")),
            cert: Some(path("crt")),
            key: Some(path("key")),
            skip_hostname_check: false,
        };
        let files = Files::open(tls.clone()).unwrap();
        let shown = || files.resolve(&[], &[]).unwrap().cert[0].to_vec();
        let before = shown();
        write("crt", &second);
        assert_eq!(shown(), before, "the key is not its own yet");
        write("key", &second_key);
        let after = shown();
        assert_ne!(after, before);
        for bad in ["", "no key"] {
            write("key", bad);
            assert_eq!(shown(), after);
            assert!(Files::open(tls.clone()).is_err(), "nothing was good before");
        }
        fs::remove_file(path("crt")).unwrap();
        assert_eq!(shown(), after);
        write("crt", &first);
        write("key", &first_key);
        assert_eq!(shown(), before);
        let debug = format!("{files:?}");
        assert!(debug.contains("crt") && !debug.contains("PRIVATE"), "{debug}");
    }
}
