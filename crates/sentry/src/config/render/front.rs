//! Listeners and TLS as TOML.

use toml::{Table, Value};

use super::super::{Application, CertificateFiles, ClientCertificates, Listen, ProxyIn, ServerFile, ServerTls, Tls};
use super::{acme, put, put_some};

/// The short form where it says all.
pub(super) fn listeners(app: &Application) -> Vec<Value> {
    let listener = |listen: &Listen| {
        if listen.tls == app.tls.is_some()
            && listen.proxy == ProxyIn::Off
            && listen.redirect.is_none()
            && listen.socket.is_none()
        {
            return Value::from(listen.to_string());
        }
        let mut out = Table::new();
        put(&mut out, "address", listen.to_string());
        put_some(&mut out, "mode", listen.socket.map(|socket| format!("{:04o}", socket.mode)));
        put(&mut out, "tls", listen.tls);
        put(&mut out, "proxy", listen.proxy.name());
        put_some(&mut out, "redirect", listen.redirect.map(|port| i64::from(port.get())));
        Value::from(out)
    };
    app.listen.iter().map(listener).collect()
}

/// The files, not what is in them.
pub(super) fn tls(given: &Tls) -> Table {
    let certificate = |pair: &CertificateFiles| {
        let mut out = Table::new();
        put(&mut out, "cert", pair.cert.display().to_string());
        put(&mut out, "key", pair.key.display().to_string());
        Value::from(out)
    };
    let mut out = Table::new();
    put_some(&mut out, "acme", given.acme.as_ref().map(acme::acme));
    if given.self_signed {
        put(&mut out, "self_signed", true);
    } else if !given.certificates.is_empty() {
        put(&mut out, "certificate", given.certificates.iter().map(certificate).collect::<Vec<_>>());
    }
    put(&mut out, "min_version", given.min_version.name());
    if given.clients != ClientCertificates::Off {
        put(&mut out, "clients", given.clients.name());
    }
    put_some(&mut out, "client_ca", given.client_ca.as_ref().map(|path| path.display().to_string()));
    put(&mut out, "match_host", given.match_host);
    out
}

pub(super) fn server_tls(given: &ServerTls) -> Table {
    let mut out = Table::new();
    put_some(&mut out, "ca", given.ca.as_ref().map(|path| path.display().to_string()));
    put_some(&mut out, "name", given.name.clone());
    if let Some(pair) = &given.certificate {
        put(&mut out, "cert", pair.cert.display().to_string());
        put(&mut out, "key", pair.key.display().to_string());
    }
    put(&mut out, "verify", given.verify);
    out
}

/// The file, not what is in it.
pub(super) fn server_file(given: &ServerFile) -> Value {
    let mut out = Table::new();
    put(&mut out, "file", given.path.display().to_string());
    Value::from(out)
}
