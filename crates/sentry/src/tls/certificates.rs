//! Certificates and keys: from PEM to what a handshake shows, by the name that the client asks for.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::settings::provider;

/// The certificates of an application, by the names in them.
#[derive(Debug)]
pub(crate) struct Certificates {
    /// By host, or by what follows the star of `*.example.org`; several where they differ in their kind of key.
    named: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// All, in file order: for who asks for no name, or for one that nobody has.
    all: Vec<Arc<CertifiedKey>>,
}

impl Certificates {
    pub(crate) fn new(all: Vec<Arc<CertifiedKey>>) -> Self {
        Certificates::among(all, std::iter::empty())
    }

    /// The same, with those of `others` for names that are not among its own.
    pub(crate) fn among(all: Vec<Arc<CertifiedKey>>, others: impl Iterator<Item = Arc<CertifiedKey>>) -> Self {
        let mut named: HashMap<String, Vec<Arc<CertifiedKey>>> = HashMap::new();
        for key in all.iter().cloned().chain(others) {
            let parsed = key.end_entity_cert().ok().and_then(|certificate| EndEntityCert::try_from(certificate).ok());
            for name in parsed.iter().flat_map(|parsed| parsed.valid_dns_names()) {
                let name = name.strip_prefix('*').unwrap_or(name).to_ascii_lowercase();
                named.entry(name).or_default().push(key.clone());
            }
        }
        Certificates { named, all }
    }

    /// The candidates for a host, the best first.
    fn candidates(&self, host: Option<&str>) -> &[Arc<CertifiedKey>] {
        let exact = |host: &str| self.named.get(host);
        let below = |host: &str| self.named.get(&host[host.find('.')?..]);
        host.and_then(|host| exact(host).or_else(|| below(host))).map_or(&self.all, Vec::as_slice)
    }
}

impl ResolvesServerCert for Certificates {
    /// The first that the client can verify, as far as it says: with an RSA and an ECDSA certificate for one name, old
    /// clients get the former.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(hello.server_name());
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        candidates.iter().find(usable).or(candidates.first()).cloned()
    }
}

/// A certificate with its key.
///
/// # Errors
/// What is wrong with the files' content.
pub(crate) fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<CertificateDer<'static>> = pem_list(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            "there is no key in it that can be read; it must be PEM, and not encrypted".to_owned()
        }
        error => format!("the key is not PEM: {error}"),
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map(Arc::new).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
        error => format!("they cannot be used: {error}"),
    })
}

/// The certificate and key of a challenge, in one text. What it proves stands in an extension that only authorities
/// read and nobody else may pass over, so it is not held against its key.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn of_challenge(pem: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("the key is not PEM: {error}"))?;
    let key = provider().key_provider.load_private_key(key).map_err(|error| error.to_string())?;
    Ok(Arc::new(CertifiedKey::new(pem_list(pem)?, key)))
}

/// Authorities whose certificates of others are good.
///
/// # Errors
/// What is wrong with the file's content.
pub(crate) fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in pem_list(pem)? {
        roots.add(certificate).map_err(|error| format!("an authority cannot be used: {error}"))?;
    }
    Ok(roots)
}

fn pem_list(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let list = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let list = list.map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if list.is_empty() { Err("there is no certificate in it; it must be PEM".to_owned()) } else { Ok(list) }
}

/// A certificate for this machine's own names, the same for as long as the process lives: to try out.
///
/// # Errors
/// What the library says: no randomness, for example.
pub(crate) fn self_signed() -> Result<Arc<CertifiedKey>, String> {
    static MADE: OnceLock<Result<Arc<CertifiedKey>, String>> = OnceLock::new();
    MADE.get_or_init(make).clone()
}

fn make() -> Result<Arc<CertifiedKey>, String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if own.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)) && !own.is_empty() && own != "localhost" {
        names.push(own);
    }
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let certified = CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider());
    certified.map(Arc::new).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(names: &[&str]) -> Arc<CertifiedKey> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        certified(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).expect("usable")
    }

    #[test]
    fn the_certificate_is_the_one_of_the_name() {
        let (first, shop, wild) = (made(&["first.example"]), made(&["shop.example"]), made(&["*.shop.example"]));
        let all = Certificates::new(vec![first.clone(), shop.clone(), wild.clone()]);
        let of = |host: Option<&str>| all.candidates(host)[0].clone();
        assert!(Arc::ptr_eq(&of(Some("shop.example")), &shop));
        assert!(Arc::ptr_eq(&of(Some("www.shop.example")), &wild));
        assert!(Arc::ptr_eq(&of(Some("a.www.shop.example")), &first), "a star is one label");
        assert!(Arc::ptr_eq(&of(Some("nobody")), &first));
        assert!(Arc::ptr_eq(&of(None), &first));
    }

    #[test]
    fn what_is_wrong_with_files_is_said() {
        let (one, other) = (rcgen::KeyPair::generate().expect("a key"), rcgen::KeyPair::generate().expect("a key"));
        let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("parameters");
        let pem = params.self_signed(&one).expect("a certificate").pem();
        let problem = |cert: &str, key: &str| certified(cert.as_bytes(), key.as_bytes()).expect_err("bad files");
        assert_eq!(problem(&pem, &other.serialize_pem()), "the key is not that of the certificate");
        assert_eq!(problem("", &one.serialize_pem()), "there is no certificate in it; it must be PEM");
        let no_key = "there is no key in it that can be read; it must be PEM, and not encrypted";
        assert_eq!(problem(&pem, &pem), no_key);
        assert!(certified(pem.as_bytes(), one.serialize_pem().as_bytes()).is_ok());
    }

    #[test]
    fn one_process_makes_one_certificate() {
        let (one, other) = (self_signed().expect("made"), self_signed().expect("made"));
        assert!(Arc::ptr_eq(&one, &other));
    }
}
