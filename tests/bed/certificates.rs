//! Certificates for one test: an authority, a server on loopback and a client, made when asked for.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A folder with `ca.crt`, `server.crt`, `server.key`, `client.crt` and `client.key`.
pub(crate) struct Certificates {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Fresh ones.
    pub(crate) fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let key = || KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new([]).expect("no names");
        // Its own name, or what it signs looks as if it had signed itself.
        authority.distinguished_name.push(DnType::CommonName, "weir test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = key();
        let signed = authority.self_signed(&authority_key).expect("a certificate");
        let certificates = Certificates { folder, issuer: Issuer::new(authority, authority_key) };
        certificates.write("ca.crt", &signed.pem());
        for (name, names) in
            [("server", &["localhost", "127.0.0.1"][..]), ("client", &["weir"][..])]
        {
            let (cert, key) = certificates.issue(names);
            certificates.write(&format!("{name}.crt"), &cert);
            certificates.write(&format!("{name}.key"), &key);
        }
        certificates
    }

    /// Another certificate of the same authority, and its key.
    pub(crate) fn issue(&self, names: &[&str]) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        (signed.pem(), key.serialize_pem())
    }

    /// Where one of the files is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is ours");
    }
}
