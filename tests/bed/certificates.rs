//! Certificates for one test: an authority, a server on loopback and a client, made when asked for.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A folder with `ca.crt`, `server.crt`, `server.key`, `client.crt` and `client.key`.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    /// Fresh ones.
    pub(crate) fn new() -> Certificates {
        let folder = Certificates(tempfile::tempdir().expect("a folder for temporary files"));
        let key = || KeyPair::generate().expect("a key");
        let mut authority = CertificateParams::new([]).expect("no names");
        // Its own name, or what it signs looks as if it had signed itself.
        authority.distinguished_name.push(DnType::CommonName, "weir test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = key();
        let signed = authority.self_signed(&authority_key).expect("a certificate");
        folder.write("ca.crt", &signed.pem());
        let issuer = Issuer::new(authority, authority_key);
        for (name, names) in [("server", vec!["localhost", "127.0.0.1"]), ("client", vec!["weir"])]
        {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let (params, key) = (CertificateParams::new(names).expect("names"), key());
            let signed = params.signed_by(&key, &issuer).expect("a certificate");
            folder.write(&format!("{name}.crt"), &signed.pem());
            folder.write(&format!("{name}.key"), &key.serialize_pem());
        }
        folder
    }

    /// Where one of the files is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is ours");
    }
}
