//! One order: from a list of names to a certificate with its key.

use std::path::Path;
use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Error, Identifier, KeyAuthorization, NewAccount,
    NewOrder, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use super::cache::{self, Kind, Posted};
use super::http::Client;
use crate::config::{Acme, AcmeChallenge};
use crate::tls::certificates;

/// Other sentries that share the folder look at it once a second: then all of them answer.
const UNTIL_SEEN: Duration = Duration::from_secs(2);

/// How the order's progress is asked for.
const PATIENCE: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(Duration::from_secs(120));

/// Orders a certificate: it and its key, PEM. `put_up` is called whenever challenges are put up.
///
/// # Errors
/// Why there is none, in words.
pub(super) async fn order(acme: &Acme, put_up: &(dyn Fn() + Send + Sync)) -> Result<String, String> {
    let account = account(acme).await?;
    let names: Vec<Identifier> = acme.domains.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await.map_err(|error| refused(acme, &error))?;
    let posted = post_all(acme, &mut order).await?;
    put_up();
    if !posted.is_empty() {
        tokio::time::sleep(UNTIL_SEEN).await;
    }
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(told)?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut challenge) = authorization.challenge(wanted(acme))
        {
            challenge.set_ready().await.map_err(told)?;
        }
    }
    if order.poll_ready(&PATIENCE).await.map_err(told)? != OrderStatus::Ready {
        return Err(why_not(&mut order).await);
    }
    drop(posted);
    put_up();
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let mut params = CertificateParams::new(acme.domains.clone()).map_err(|error| error.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|error| error.to_string())?;
    order.finalize_csr(request.der()).await.map_err(told)?;
    let chain = order.poll_certificate(&PATIENCE).await.map_err(told)?;
    Ok(format!("{}{chain}", key.serialize_pem()))
}

/// Puts up what the authority is going to ask for, of every name that it does not know yet as ours.
async fn post_all(acme: &Acme, order: &mut instant_acme::Order) -> Result<Vec<Posted>, String> {
    let mut posted = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(told)?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            status => return Err(format!("the authority says of {}: {status:?}", authorization.identifier())),
        }
        let host = authorization.identifier().to_string();
        let name = acme.challenge.name();
        let challenge = authorization
            .challenge(wanted(acme))
            .ok_or_else(|| format!("the authority offers no {name} for {host}; give another challenge"))?;
        let posting = post(acme, &host, &challenge.token, &challenge.key_authorization());
        posted.push(posting.map_err(|error| format!("{}: {error}", acme.challenges().display()))?);
    }
    Ok(posted)
}

fn wanted(acme: &Acme) -> ChallengeType {
    match acme.challenge {
        AcmeChallenge::TlsAlpn => ChallengeType::TlsAlpn01,
        AcmeChallenge::Http => ChallengeType::Http01,
    }
}

/// Why there is no order. An account that the authority has forgotten is of no use any more.
fn refused(acme: &Acme, error: &Error) -> String {
    let forgotten = |problem: &str| problem.ends_with(":accountDoesNotExist");
    match error {
        Error::Api(problem) if problem.r#type.as_deref().is_some_and(forgotten) => {
            let path = acme.account();
            match std::fs::remove_file(&path) {
                Ok(()) => format!("{problem}; another account is made at the next try"),
                Err(error) => format!("{problem}; remove {} ({error})", path.display()),
            }
        }
        error => error.to_string(),
    }
}

/// The account with the authority: the one that is kept, or a new one.
async fn account(acme: &Acme) -> Result<Account, String> {
    let roots = match &acme.ca {
        None => None,
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some(certificates::authorities(&pem)?)
        }
    };
    let builder = Account::builder_with_http(Box::new(Client::new(roots)?));
    let path = acme.account();
    if let Ok(kept) = std::fs::read(&path) {
        let credentials: AccountCredentials = serde_json::from_slice(&kept).map_err(|error| {
            format!("{}: {error}; if it cannot be mended, remove it and another account is made", path.display())
        })?;
        return builder.from_credentials(credentials).await.map_err(told);
    }
    let contact = acme.email.as_ref().map(|email| format!("mailto:{email}"));
    let contact: Vec<&str> = contact.as_deref().into_iter().collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder.create(&new, acme.directory.clone(), None).await.map_err(told)?;
    let kept = serde_json::to_vec(&credentials).map_err(|error| error.to_string())?;
    cache::write(&path, &kept).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(account)
}

/// Puts up what a challenge asks for.
fn post(acme: &Acme, host: &str, token: &str, authorization: &KeyAuthorization) -> std::io::Result<Posted> {
    let folder = acme.challenges();
    match acme.challenge {
        AcmeChallenge::Http => {
            // It becomes the name of a file.
            if !is_token(token) {
                return Err(std::io::Error::other("the authority's token is none (RFC 8555, section 8.3)"));
            }
            cache::post(&folder, token, Kind::Http, authorization.as_str())
        }
        AcmeChallenge::TlsAlpn => {
            let pem = shown(host, authorization.digest().as_ref()).map_err(std::io::Error::other)?;
            cache::post(&folder, host, Kind::Tls, &pem)
        }
    }
}

fn is_token(token: &str) -> bool {
    (1..=200).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// What is shown in the handshake of a validation: a certificate with the challenge's digest (RFC 8737, section 3).
fn shown(host: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    Ok(format!("{}{}", key.serialize_pem(), params.self_signed(&key)?.pem()))
}

/// What the authority says of the challenges that failed.
async fn why_not(order: &mut instant_acme::Order) -> String {
    let mut all = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            break;
        }
        let host = authorization.identifier().to_string();
        let errors = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        all.extend(errors.map(|problem| format!("{host}: {problem}")));
    }
    if all.is_empty() { "the authority does not say why".to_owned() } else { all.join("; ") }
}

fn told(error: Error) -> String {
    error.to_string()
}

/// Whether a path's folder is there to be written to, with what to do otherwise.
pub(super) fn prepare(folder: &Path) -> Result<(), String> {
    cache::make(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_shown_although_its_extension_is_critical() {
        let pem = shown("shop.example", &[7; 32]).expect("a certificate");
        assert!(certificates::of_challenge(pem.as_bytes()).is_ok());
        assert!(certificates::certified(pem.as_bytes(), pem.as_bytes()).is_err(), "as for requests it cannot be used");
    }

    #[test]
    fn a_token_names_a_file_in_the_folder_and_no_other() {
        assert!(is_token("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"));
        for bad in ["", "..", "a/b", "a.b", "a b", &"x".repeat(201)] {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
