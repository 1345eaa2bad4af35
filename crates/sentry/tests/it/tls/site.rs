//! Authorities, their certificates as files, a sentry with them, and clients that believe them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_sentry::Sentry;
use tidegate_sentry::config::Config;
use tidegate_sentry::record::NoRecords;

use crate::support::{PATIENCE, RawServer, Running, ok};

/// An authority, and what it signs.
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub(crate) pem: String,
    der: CertificateDer<'static>,
}

pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Authority { issuer: rcgen::Issuer::new(params, key), pem, der }
    }

    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Pair { cert: certificate.pem(), key: key.serialize_pem() }
    }

    /// Clients that believe it.
    pub(crate) fn clients(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        self.clients_of(own, &[&rustls::version::TLS13, &rustls::version::TLS12])
    }

    pub(crate) fn clients_of(
        &self,
        own: Option<&Pair>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> Arc<ClientConfig> {
        use rustls::pki_types::pem::PemObject;
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions).expect("versions");
        let builder = builder.with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).expect("PEM")];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(chain, key).expect("a certificate")
            }
        })
    }
}

/// Files of one test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("writes");
        path
    }

    pub(crate) fn pair(&self, name: &str, pair: &Pair) {
        self.write(&format!("{name}.pem"), &pair.cert);
        self.write(&format!("{name}.key"), &pair.key);
    }

    /// An application on a port of its own, with more keys.
    pub(crate) fn config(&self, servers: &[impl std::fmt::Display], keys: &str) -> Config {
        let servers: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
        let text = format!(
            "[sentry]\nworkers = 1\n[[application]]\nname = \"app\"\nlisten = \"127.0.0.1:0\"\nservers = [{}]\n\
             admission = \"none\"\nhealth.interval = \"1h\"\n{keys}\n",
            servers.join(", ")
        );
        match Config::parse(&text, &self.0.join("tidegate.toml")) {
            Ok(checked) => checked.config,
            Err(errors) => panic!("{errors}"),
        }
    }

    pub(crate) fn refused(&self, keys: &str) -> String {
        let text = format!("[[application]]\nservers = \"127.0.0.1:1\"\n{keys}\n");
        Config::parse(&text, Path::new(&self.0.join("tidegate.toml"))).expect_err("a bad file").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Temporary: what is left harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn start(config: Config) -> Running {
    let handle = Sentry::start(config, Arc::new(NoRecords)).expect("a sentry");
    let address = handle.addresses("app")[0];
    Running { handle, address }
}

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Secure {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let io = TcpStream::connect(address).expect("a connection");
    io.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    io.set_nodelay(true).expect("a socket");
    StreamOwned::new(ClientConnection::new(config.clone(), name).expect("a client"), io)
}

/// One request, and the connection until its end.
pub(crate) fn ask(mut io: Secure, host: &str, path: &str) -> std::io::Result<(String, Secure)> {
    write!(io, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    io.read_to_string(&mut answer)?;
    Ok((answer, io))
}

pub(crate) fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

/// Shows the head of the request that it got.
pub(crate) fn mirror() -> RawServer {
    RawServer::answering(|asked| ok(&asked.head))
}

pub(crate) fn read_answer(io: &mut impl Read) -> String {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        io.read_exact(&mut byte).expect("a head");
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.parse().expect("a number")];
    io.read_exact(&mut body).expect("a body");
    head + &String::from_utf8_lossy(&body)
}
