//! `[application.tls]`: from names of files to what handshakes need.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use tidegate_config::{At, List};

use super::super::raw::{RawCertificate, RawServerTls, RawTls};
use super::super::{CertificateFiles, ClientCertificates, Server, ServerTls, Spoken, Tls, TlsVersion};
use super::Resolver;
use crate::tls::certificates::{self, Certificates};
use crate::tls::client::{self, ToServer};
use crate::tls::settings;

impl Resolver<'_, '_, '_> {
    pub(super) fn tls(&mut self, raw: At<RawTls>, http2: bool) -> Option<Tls> {
        let At { value: raw, span } = raw;
        let errors = self.report.errors();
        let self_signed = raw.self_signed.is_some_and(|given| given.value);
        let acme = raw.acme.and_then(|given| self.acme(given));
        let has_acme = acme.is_some();
        let (files, mut keys) = self.certificates(raw.certificate, self_signed, has_acme, &span);
        keys.extend(acme.as_ref().and_then(|acme| self.issued(acme, &span)));
        let min_version = match raw.min_version.as_ref().map(|given| given.value.as_str()) {
            None | Some("1.2") => TlsVersion::V12,
            Some("1.3") => TlsVersion::V13,
            Some(other) => {
                let message = format!("min_version = \"{other}\": write \"1.2\" or \"1.3\"; older ones are not safe");
                self.report.error(&raw.min_version.as_ref().map_or(span.clone(), |given| given.span.clone()), message);
                TlsVersion::V12
            }
        };
        let clients = self.choice("clients", raw.clients, ClientCertificates::ALL, ClientCertificates::name);
        let authorities = self.authorities(clients, raw.client_ca, &span);
        if self.report.errors() > errors {
            return None;
        }
        let asks = authorities
            .as_ref()
            .map_or(0, |(_, _, pem)| client::identity(&[Some(clients.name().as_bytes()), Some(pem)]));
        let (client_ca, roots) = authorities.map(|(path, roots, _)| (path, roots)).unzip();
        let clients_of = roots.map(|roots| (roots, clients));
        match settings::server(Certificates::new(keys.clone()), min_version, clients_of, http2) {
            Ok(server) => Some(Tls {
                certificates: files,
                self_signed,
                acme,
                min_version,
                clients,
                client_ca,
                match_host: raw.match_host.is_none_or(|given| given.value),
                keys,
                asks,
                server,
            }),
            Err(problem) => {
                self.report.error(&span, format!("this cannot be used for TLS: {problem}"));
                None
            }
        }
    }

    /// The certificates with their keys, all that can be read.
    fn certificates(
        &mut self,
        given: Option<At<List<RawCertificate>>>,
        self_signed: bool,
        has_acme: bool,
        span: &Range<usize>,
    ) -> (Vec<CertificateFiles>, Vec<Arc<CertifiedKey>>) {
        let given = given.map(|list| list.value.0).unwrap_or_default();
        match (self_signed, given.is_empty()) {
            (true, _) if has_acme => self.report.error(span, "give \"acme\" or self_signed = true, not both"),
            (true, true) => match certificates::self_signed() {
                Ok(key) => return (Vec::new(), vec![key]),
                Err(problem) => self.report.error(span, format!("no certificate can be made: {problem}")),
            },
            (true, false) => self.report.error(span, "give \"certificate\" or self_signed = true, not both"),
            (false, true) if !has_acme => self.missing(
                span,
                "which certificate? add certificate = { cert = \"FILE\", key = \"FILE\" }, or acme = { ... } to order one, or \
                 self_signed = true to try out",
            ),
            (false, _) => {}
        }
        given.into_iter().filter_map(|pair| self.certificate(pair)).unzip()
    }

    fn certificate(
        &mut self,
        At { value: raw, span }: At<RawCertificate>,
    ) -> Option<(CertificateFiles, Arc<CertifiedKey>)> {
        let (Some(cert), Some(key)) = (raw.cert, raw.key) else {
            self.missing(&span, "a certificate needs two files; give cert = \"FILE\" and key = \"FILE\"");
            return None;
        };
        let (chain_pem, key_pem) = (self.pem("cert", &cert), self.pem("key", &key));
        self.secret(Path::new(&key.value), &key.span);
        let (chain_pem, key_pem) = (chain_pem?, key_pem?);
        match certificates::certified(&chain_pem, &key_pem) {
            Ok(certified) => {
                let path = |file: &str| self.world.absolute(Path::new(file));
                Some((CertificateFiles { cert: path(&cert.value), key: path(&key.value) }, certified))
            }
            Err(problem) => {
                let message = format!("cert \"{}\" with key \"{}\": {problem}", cert.value, key.value);
                self.report.error(&span, message);
                None
            }
        }
    }

    /// How servers are spoken to, where any of them speaks TLS; `also_secure`: for checks or copies, at least.
    pub(super) fn server_tls<'s>(
        &mut self,
        given: Option<At<RawServerTls>>,
        mut servers: impl Iterator<Item = &'s Server>,
        also_secure: bool,
        app: &Range<usize>,
    ) -> Option<ServerTls> {
        let secure = also_secure || servers.any(|server| Spoken::of(&server.address).0.tls);
        let (span, raw) = match given {
            Some(At { value, span }) if secure || self.is_governed => (span, value),
            Some(At { span, .. }) => {
                self.report.warn(
                    &span,
                    "server_tls is for servers with addresses such as \"https://host:port\" or \"h2://host:port\", and there is none",
                );
                return None;
            }
            None if secure => (app.clone(), RawServerTls::default()),
            None => return None,
        };
        let errors = self.report.errors();
        let verify = raw.verify.is_none_or(|given| given.value);
        if !verify {
            self.report.warn(&span, "verify = false: any server is believed, and so is anybody in between");
        }
        let own = match (raw.cert, raw.key) {
            (None, None) => None,
            (cert, key) => self.certificate(At { value: RawCertificate { cert, key }, span: span.clone() }),
        };
        let ca_pem = raw.ca.as_ref().and_then(|file| self.pem("ca", file));
        let roots = match &ca_pem {
            _ if !verify => Ok(None),
            Some(pem) => certificates::authorities(pem).map(|roots| Some(Arc::new(roots))),
            None => client::of_this_machine().map(Some),
        };
        let (certificate, own) = own.unzip();
        let shown: Vec<u8> = own.iter().flat_map(|own| own.cert.iter().flat_map(|der| der.to_vec())).collect();
        let built = roots.and_then(|roots| client::client(roots, own));
        if self.report.errors() > errors {
            return None;
        }
        let name = raw.name.map(|name| name.value);
        let verifies: &[u8] = if verify { b"verify" } else { b"" };
        let identity =
            client::identity(&[ca_pem.as_deref(), name.as_deref().map(str::as_bytes), Some(&shown), Some(verifies)]);
        let ca = raw.ca.map(|file| self.world.absolute(Path::new(&file.value)));
        let settings = built.map(|client| ServerTls { ca, name, certificate, verify, client, identity });
        let checked = settings.and_then(|settings| {
            let spoken = servers.map(|server| Spoken::of(&server.address));
            let secure = spoken.filter_map(|(spoken, at)| spoken.tls.then_some((spoken.http2, at)));
            secure.map(|(http2, at)| ToServer::new(Some(&settings), at, http2)).collect::<Result<Vec<_>, _>>()?;
            Ok(settings)
        });
        checked.map_err(|problem| self.report.error(&span, format!("TLS to servers: {problem}"))).ok()
    }

    /// The authorities for clients' certificates, where these are asked for.
    fn authorities(
        &mut self,
        clients: ClientCertificates,
        given: Option<At<String>>,
        span: &Range<usize>,
    ) -> Option<(PathBuf, RootCertStore, Vec<u8>)> {
        let Some(file) = given else {
            if clients != ClientCertificates::Off {
                let name = clients.name();
                self.missing(
                    span,
                    &format!(
                        "clients = \"{name}\" needs to know whose certificates are good; add client_ca = \"FILE\""
                    ),
                );
            }
            return None;
        };
        if clients == ClientCertificates::Off {
            self.report.error(&file.span, "client_ca is not used without clients = \"optional\" or \"required\"");
            return None;
        }
        let pem = self.pem("client_ca", &file)?;
        match certificates::authorities(&pem) {
            Ok(roots) => Some((self.world.absolute(Path::new(&file.value)), roots, pem)),
            Err(problem) => {
                self.report.error(&file.span, format!("client_ca \"{}\": {problem}", file.value));
                None
            }
        }
    }

    pub(super) fn pem(&mut self, key: &str, file: &At<String>) -> Option<Vec<u8>> {
        match self.world.read(Path::new(&file.value)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.report.error(&file.span, format!("{key} \"{}\" cannot be read: {error}", file.value));
                None
            }
        }
    }

    /// One of a list by its name; the first where none is given.
    pub(super) fn choice<T: Copy + Default, const N: usize>(
        &mut self,
        key: &str,
        given: Option<At<String>>,
        all: [T; N],
        name: impl Fn(T) -> &'static str,
    ) -> T {
        let Some(At { value, span }) = given else { return T::default() };
        all.into_iter().find(|choice| name(*choice) == value).unwrap_or_else(|| {
            let names: Vec<String> = all.iter().map(|choice| format!("\"{}\"", name(*choice))).collect();
            self.report.error(&span, format!("{key} = \"{value}\": write {}", names.join(" or ")));
            T::default()
        })
    }
}
