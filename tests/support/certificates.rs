//! Certificates for one test: an authority, a server on loopback and a client.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tonic::transport::{Certificate, ClientTlsConfig};

/// A folder with `ca.crt`, `server.crt`, `server.key`, `client.crt` and `client.key`.
pub(crate) struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Issues new certificates.
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let (issuer, cert) = authority();
        let certificates = Certificates { folder, issuer };
        certificates.write_all(&cert);
        certificates
    }

    /// Replaces all files by certificates of a new authority.
    pub(crate) fn renew(&mut self) {
        let (issuer, cert) = authority();
        self.issuer = issuer;
        self.write_all(&cert);
    }

    fn write_all(&self, authority: &str) {
        self.write("ca.crt", authority);
        for (name, names) in
            [("server", &["localhost", "127.0.0.1"][..]), ("client", &["weir"][..])]
        {
            let (cert, key) = self.issue(names);
            self.write(&format!("{name}.crt"), &cert);
            self.write(&format!("{name}.key"), &key);
        }
    }

    /// Issues another certificate of the same authority. Returns it with its key.
    pub(crate) fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        (signed.pem(), key.serialize_pem())
    }

    /// The path of one of the files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is ours");
    }
}

/// The TLS settings of a client that trusts `authority`.
pub(crate) fn trusting(authority: &Certificates) -> ClientTlsConfig {
    let ca = std::fs::read_to_string(authority.path("ca.crt")).expect("a certificate");
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name("localhost")
}

/// A new authority and its certificate.
fn authority() -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new([]).expect("no names");
    // Without a distinct name for the authority, the certificates that it signs look self-signed.
    authority.distinguished_name.push(DnType::CommonName, "weir test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&key).expect("a certificate").pem();
    (Issuer::new(authority, key), signed)
}
