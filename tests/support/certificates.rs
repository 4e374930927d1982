//! Certificates for one test: an authority, a server on loopback and a client.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;
use tonic::transport::{Certificate, ClientTlsConfig};

/// Keys of RSA with 2048 bits, which ring cannot make: `openssl genrsa 2048`. `SERVICE_PKCS1` is
/// `SERVICE_KEY` in the form PKCS#1 (`openssl genrsa -traditional 2048`, then `openssl pkcs8 -topk8
/// -nocrypt` for the other form). They are used in tests only.
const AUTHORITY_KEY: &str = include_str!("../data/rsa/authority.pkcs8.key");
const SERVICE_KEY: &str = include_str!("../data/rsa/service.pkcs8.key");
const SERVICE_PKCS1: &str = include_str!("../data/rsa/service.pkcs1.key");

/// A folder with `ca.crt`, `server.crt`, `server.key`, `client.crt` and `client.key`. All users can
/// read it.
pub(crate) struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Issues new certificates.
    pub(crate) fn new() -> Certificates {
        let (certificates, cert) = Certificates::signed_by(KeyPair::generate().expect("a key"));
        certificates.write_all(&cert);
        certificates
    }

    /// Certificates like those of Envoy Gateway: RSA, keys in the form PKCS#1, and no extended key
    /// usage. `client` is what the service and Envoy have, with the name of a namespace. `server` is
    /// for a server of rules on loopback.
    pub(crate) fn of_envoy_gateway() -> Certificates {
        let key = |text| KeyPair::from_pem(text).expect("an RSA key");
        let (certificates, cert) = Certificates::signed_by(key(AUTHORITY_KEY));
        certificates.write("ca.crt", &cert);
        let names = [&["localhost", "127.0.0.1"][..], &["*.envoy-gateway-system"][..]];
        for (name, names) in ["server", "client"].into_iter().zip(names) {
            let cert = certificates.sign(names, &key(SERVICE_KEY));
            certificates.write(&format!("{name}.crt"), &cert);
            certificates.write(&format!("{name}.key"), SERVICE_PKCS1);
        }
        certificates
    }

    /// An empty folder and a new authority with `key`. Returns the certificate of the authority too.
    fn signed_by(key: KeyPair) -> (Certificates, String) {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let all = Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), all).expect("the folder is ours");
        let (issuer, cert) = authority(key);
        (Certificates { folder, issuer }, cert)
    }

    /// Replaces all files by certificates of a new authority.
    pub(crate) fn renew(&mut self) {
        let (issuer, cert) = authority(KeyPair::generate().expect("a key"));
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
        let key = KeyPair::generate().expect("a key");
        (self.sign(names, &key), key.serialize_pem())
    }

    /// A certificate of the authority for `key`.
    fn sign(&self, names: &[&str], key: &KeyPair) -> String {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        params.signed_by(key, &self.issuer).expect("a certificate").pem()
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

/// A new authority, which may only sign certificates, and its certificate.
fn authority(key: KeyPair) -> (Issuer<'static, KeyPair>, String) {
    let mut authority = CertificateParams::new([]).expect("no names");
    // Without a distinct name for the authority, the certificates that it signs look self-signed.
    authority.distinguished_name.push(DnType::CommonName, "weir test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let signed = authority.self_signed(&key).expect("a certificate").pem();
    (Issuer::new(authority, key), signed)
}
