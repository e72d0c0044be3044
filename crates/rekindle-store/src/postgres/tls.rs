//! Encryption of connections, with ring.

use std::sync::Arc;

use rekindle_core::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::settings::Trust;

/// What encrypts connections to a server that is trusted so.
pub(super) fn connector(trust: &Trust) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid("encryption cannot be set up").because(error))?;
    let config = match trust {
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth()
        }
        Trust::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
        Trust::File(path) => builder.with_root_certificates(roots_in(path)?).with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn system_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(Error::invalid("the system has no certificates to check the server's by")
            .hint("name a file with `sslrootcert=`, or install the package ca-certificates")),
        false => Ok(roots),
    }
}

fn roots_in(path: &str) -> Result<RootCertStore> {
    let unreadable = |error: rustls::pki_types::pem::Error| {
        Error::invalid(format!("the certificates in `{path}` cannot be read")).because(error)
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
        roots
            .add(certificate.map_err(unreadable)?)
            .map_err(|error| Error::invalid(format!("a certificate in `{path}` is not legal")).because(error))?;
    }
    match roots.is_empty() {
        true => Err(Error::invalid(format!("there is no certificate in `{path}`"))),
        false => Ok(roots),
    }
}

/// Takes any certificate; the server still has to hold its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
