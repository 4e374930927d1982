//! The signature methods of a rustls certificate verifier, delegated to a verifier of rustls.
//!
//! The traits of client and server verifiers have the same three signature methods. One macro
//! writes them for both.

/// Implements the three methods by delegating to the verifier that the method `$inner` returns.
macro_rules! delegate_signatures {
    ($inner:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner().verify_tls12_signature(message, cert, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner().verify_tls13_signature(message, cert, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.$inner().supported_verify_schemes()
        }
    };
}

pub(crate) use delegate_signatures;
