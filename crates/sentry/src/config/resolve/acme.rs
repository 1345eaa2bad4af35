//! `[application.tls.acme]`: whose certificate is ordered where, and what is there of it already.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use tidegate_config::{At, List};

use super::super::raw::RawAcme;
use super::super::{Acme, AcmeChallenge, UntilIssued};
use super::Resolver;
use crate::tls::certificates;

/// Where nobody says another one.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

impl Resolver<'_, '_, '_> {
    pub(super) fn acme(&mut self, given: At<RawAcme>) -> Option<Acme> {
        let At { value: raw, span } = given;
        let domains = self.domains(raw.domains, &span);
        let directory = raw.directory.map_or_else(|| LETS_ENCRYPT.to_owned(), |given| self.directory(given));
        if let Some(email) = raw.email.as_ref().filter(|email| !is_email(&email.value)) {
            let message = format!("email = \"{}\" is not an address; write \"name@example.org\"", email.value);
            self.report.error(&email.span, message);
        }
        let ca = raw.ca.as_ref().and_then(|file| {
            let pem = self.pem("ca", file)?;
            match certificates::authorities(&pem) {
                Ok(_) => Some(self.world.absolute(Path::new(&file.value))),
                Err(problem) => {
                    self.report.error(&file.span, format!("ca \"{}\": {problem}", file.value));
                    None
                }
            }
        });
        let challenge = self.choice("challenge", raw.challenge, AcmeChallenge::ALL, AcmeChallenge::name);
        let until = self.choice("until", raw.until, UntilIssued::ALL, UntilIssued::name);
        let Some(cache) = raw.cache else {
            self.missing(&span, "where are the account's key and certificates kept? add cache = \"FOLDER\"");
            return None;
        };
        let cache = self.world.absolute(Path::new(&cache.value));
        let email = raw.email.map(|email| email.value);
        (!domains.is_empty()).then_some(Acme { domains, email, directory, ca, cache, challenge, until })
    }

    fn domains(&mut self, given: Option<At<List<String>>>, span: &Range<usize>) -> Vec<String> {
        let list = given.map(|list| list.value.0).unwrap_or_default();
        if list.is_empty() {
            self.missing(span, "for which names is the certificate? add domains = [\"shop.example\"]");
        }
        let mut domains: Vec<String> = Vec::new();
        for At { value, span } in list {
            let name = value.to_ascii_lowercase();
            if name.starts_with("*.") {
                let message = format!(
                    "\"{value}\": authorities give certificates with * only to who can change the DNS; name each host, \
                     or use files that another program orders"
                );
                self.report.error(&span, message);
            } else if !is_domain(&name) {
                self.report.error(&span, format!("\"{value}\" is not a host's name; write \"shop.example\""));
            } else if domains.contains(&name) {
                self.report.error(&span, format!("\"{value}\" is there twice"));
            } else {
                domains.push(name);
            }
        }
        domains
    }

    fn directory(&mut self, given: At<String>) -> String {
        let uri = given.value.parse::<http::Uri>().ok();
        if !uri.is_some_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some()) {
            let message = format!("directory = \"{}\": write it like \"{LETS_ENCRYPT}\"", given.value);
            self.report.error(&given.span, message);
        }
        given.value
    }

    /// The certificate that is in force: the one that was issued, or what there is until then.
    pub(super) fn issued(&mut self, acme: &Acme, span: &Range<usize>) -> Option<Arc<CertifiedKey>> {
        let path = acme.certificate();
        if let Ok(pem) = self.world.read(&path) {
            match certificates::certified(&pem, &pem) {
                Ok(certified) => return Some(certified),
                // Another one is ordered, so that this mends itself.
                Err(problem) => self.report.warn(span, format!("{}: {problem}", path.display())),
            }
        }
        match acme.until {
            UntilIssued::Refuse => None,
            UntilIssued::SelfSigned => {
                let made = certificates::self_signed();
                made.map_err(|problem| self.report.error(span, format!("no certificate can be made: {problem}"))).ok()
            }
        }
    }
}

fn is_domain(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_address = || name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(label) && !is_address()
}

fn is_email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && is_domain(&host.to_ascii_lowercase()))
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}
