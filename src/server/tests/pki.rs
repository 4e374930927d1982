//! Certificate authorities and their certificates, for tests.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use crate::server::TlsConfig;

/// The algorithm of a key, and its PEM form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Ed25519,
    P256,
    P384,
    /// P-256 in SEC1 form, as `openssl ec` writes it.
    Sec1,
    Rsa,
    /// RSA in PKCS#1 form, as `openssl rsa -traditional` writes it.
    Pkcs1,
}

pub(super) const EVERY_KEY: [Kind; 6] =
    [Kind::Ed25519, Kind::P256, Kind::P384, Kind::Sec1, Kind::Rsa, Kind::Pkcs1];

/// A leaf certificate: its parameters, and after `issue` its PEM texts.
#[derive(Clone)]
pub(super) struct Leaf {
    names: Vec<String>,
    kind: Kind,
    expired: bool,
    pub(super) cert: String,
    pub(super) key: String,
}

impl Leaf {
    /// The first valid second of all leaves, in seconds since 1970: the first day of 2020.
    pub(super) const BEGINS: u64 = 1_577_836_800;
    /// The end of validity of all leaves, in seconds since 1970: the first day of 2050.
    pub(super) const ENDS: u64 = 2_524_608_000;

    pub(super) fn server() -> Leaf {
        Leaf::client(&["weir.example"])
    }

    pub(super) fn client(names: &[&str]) -> Leaf {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let (cert, key) = Default::default();
        Leaf { names, kind: Kind::P256, expired: false, cert, key }
    }

    pub(super) fn kind(self, kind: Kind) -> Leaf {
        Leaf { kind, ..self }
    }

    pub(super) fn expired(self) -> Leaf {
        Leaf { expired: true, ..self }
    }
}

/// A certificate authority, and a folder for its files.
pub(super) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(super) fn new() -> Authority {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        let name = folder.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(folder.path().join("ca.crt"), &pem).unwrap();
        Authority { folder, issuer: Issuer::new(params, key), pem }
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        roots
    }

    pub(super) fn issue(&self, leaf: Leaf) -> Leaf {
        let (key, written) = key(leaf.kind);
        let mut params = CertificateParams::default();
        for name in &leaf.names {
            let name_of_kind = match name.contains("://") {
                true => SanType::URI(name.as_str().try_into().unwrap()),
                false => SanType::DnsName(name.as_str().try_into().unwrap()),
            };
            params.subject_alt_names.push(name_of_kind);
        }
        let ends = if leaf.expired { 2021 } else { 2050 };
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(ends, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf { cert, key: written, ..leaf }
    }

    /// Writes `leaf` to files, for a server that admits clients without a certificate.
    pub(super) fn files(&self, leaf: &Leaf) -> TlsConfig {
        let files = TlsConfig {
            cert: self.path("tls.crt"),
            key: self.path("tls.key"),
            ..TlsConfig::default()
        };
        fs::write(&files.cert, &leaf.cert).unwrap();
        fs::write(&files.key, &leaf.key).unwrap();
        files
    }

    /// The ClientHello of a client that trusts this authority.
    pub(super) fn client_hello(&self) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        let name = "weir.example".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    }
}

/// A new key, and its PEM text.
fn key(kind: Kind) -> (KeyPair, String) {
    let generate = |algorithm| {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let written = key.serialize_pem();
        (key, written)
    };
    match kind {
        Kind::Ed25519 => generate(&rcgen::PKCS_ED25519),
        Kind::P256 => generate(&rcgen::PKCS_ECDSA_P256_SHA256),
        Kind::P384 => generate(&rcgen::PKCS_ECDSA_P384_SHA384),
        Kind::Sec1 => {
            let (key, written) = generate(&rcgen::PKCS_ECDSA_P256_SHA256);
            (key, with_label("EC PRIVATE KEY", openssl(&["ec"], &written)))
        }
        Kind::Rsa | Kind::Pkcs1 => {
            let options = ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
            let written = openssl(&[&["genpkey"], &options[..]].concat(), "");
            let key = KeyPair::from_pem(&written).unwrap();
            let written = match kind {
                Kind::Pkcs1 => {
                    with_label("RSA PRIVATE KEY", openssl(&["rsa", "-traditional"], &written))
                }
                _ => with_label("BEGIN PRIVATE KEY", written),
            };
            (key, written)
        }
    }
}

/// `pem`, which must have this label.
fn with_label(label: &str, pem: String) -> String {
    assert!(pem.contains(label), "openssl wrote another form than {label}");
    pem
}

/// The output of `openssl` for `input`.
fn openssl(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}
