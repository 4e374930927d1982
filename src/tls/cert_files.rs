//! The PEM files of an endpoint: authorities, certificate chain and private key.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{TlsError, Validity, crypto_provider};
use crate::bounded_file;

/// A PEM file and the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFile {
    /// The name of the setting for error messages, such as `grpc.tls_cert`.
    pub setting: &'static str,
    /// The path of the file.
    pub path: PathBuf,
}

/// The certificate files of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertFiles {
    /// Certificates of the authorities that sign the peers' certificates.
    pub authorities: Option<PemFile>,
    /// This endpoint's certificate chain, and its private key in PKCS#8, PKCS#1 or SEC1 form.
    pub identity: Option<(PemFile, PemFile)>,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
pub(super) struct CertBytes {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The parsed files.
pub struct TrustAndIdentity {
    /// The authorities, if configured.
    pub authorities: Option<RootCertStore>,
    /// This endpoint's certificate and key, if configured.
    pub identity: Option<Identity>,
}

/// A certificate chain with its private key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The chain and the key, for rustls.
    pub key: Arc<CertifiedKey>,
    /// The validity of the first certificate of the chain.
    pub validity: Validity,
    file: PemFile,
}

impl PemFile {
    /// The file at `path`, named by `setting`.
    pub fn new(setting: &'static str, path: impl Into<PathBuf>) -> PemFile {
        PemFile { setting, path: path.into() }
    }

    /// An error that names the setting, the path and `problem`.
    pub fn error(&self, problem: impl Display) -> TlsError {
        TlsError::new(format!("{}: {}: {problem}", self.setting, self.path.display()))
    }

    fn read(&self) -> Result<Vec<u8>, TlsError> {
        bounded_file::read(&self.path).map_err(|error| self.error(error))
    }

    fn certificates(&self, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let all = all.map_err(|error| self.error(error))?;
        if all.is_empty() {
            return Err(self.error("holds no certificate in PEM form"));
        }
        Ok(all)
    }

    fn private_key(&self, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                self.error("holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1)")
            }
            // Other errors of the parser can quote a line of the key.
            _ => self.error("is not a private key in PEM form"),
        })
    }
}

impl CertFiles {
    /// The paths of all files, for a file watcher.
    pub fn paths(&self) -> Vec<PathBuf> {
        let identity = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        identity.chain(&self.authorities).map(|file| file.path.clone()).collect()
    }

    /// Reads all files.
    ///
    /// # Errors
    ///
    /// A file that is missing, not a regular file or larger than 1 MiB.
    pub(super) fn read(&self) -> Result<CertBytes, TlsError> {
        let authorities = self.authorities.as_ref().map(PemFile::read).transpose()?;
        let pair = |(cert, key): &(PemFile, PemFile)| Ok((cert.read()?, key.read()?));
        let identity = self.identity.as_ref().map(pair).transpose()?;
        Ok(CertBytes { authorities, identity })
    }

    /// Parses the result of [`CertFiles::read`].
    ///
    /// # Errors
    ///
    /// A file without valid PEM, a certificate that is not X.509, or a key that does not match its
    /// certificate.
    pub(super) fn parse(&self, bytes: &CertBytes) -> Result<TrustAndIdentity, TlsError> {
        let authorities = match self.authorities.as_ref().zip(bytes.authorities.as_deref()) {
            Some((file, pem)) => Some(authorities(file, pem)?),
            None => None,
        };
        let identity = match self.identity.as_ref().zip(bytes.identity.as_ref()) {
            Some(((cert, key), (cert_pem, key_pem))) => {
                Some(Identity::new((cert, cert_pem), (key, key_pem))?)
            }
            None => None,
        };
        Ok(TrustAndIdentity { authorities, identity })
    }
}

fn authorities(file: &PemFile, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in file.certificates(pem)? {
        store.add(certificate).map_err(|error| file.error(error))?;
    }
    Ok(store)
}

/// Remaining validity, in seconds, below which a certificate gets a warning: two weeks.
const SOON: u64 = 14 * DAY;
const DAY: u64 = 24 * 3600;

impl Identity {
    fn new(
        (cert, cert_pem): (&PemFile, &[u8]),
        (key, key_pem): (&PemFile, &[u8]),
    ) -> Result<Identity, TlsError> {
        let chain = cert.certificates(cert_pem)?;
        let validity =
            Validity::of(&chain[0]).ok_or_else(|| cert.error("is not an X.509 certificate"))?;
        let private_key = key.private_key(key_pem)?;
        let certified = CertifiedKey::from_der(chain, private_key, &crypto_provider());
        let certified = certified.map_err(|error| {
            let key = format!("{}: {}", key.setting, key.path.display());
            cert.error(format_args!("does not work with {key}: {error}"))
        })?;
        Ok(Identity { key: Arc::new(certified), validity, file: cert.clone() })
    }

    /// A warning if the certificate is not valid at `now` or expires within two weeks. `now` is in
    /// seconds since 1970.
    ///
    /// The certificate is used in any case: the peer decides, and some peers do not check the
    /// dates.
    pub fn warning(&self, now: u64) -> Option<String> {
        let Validity { begins, ends } = self.validity;
        let problem = if now < begins {
            "is not valid yet; check the clock of this machine".to_owned()
        } else if now >= ends {
            "has expired; peers will refuse it".to_owned()
        } else if ends - now < SOON {
            format!("expires in {} days", (ends - now) / DAY)
        } else {
            return None;
        };
        Some(self.file.error(format_args!("the certificate {problem}")).to_string())
    }
}
