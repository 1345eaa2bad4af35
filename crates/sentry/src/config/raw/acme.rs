//! What is typed of certificates that are ordered.

use tidegate_config::{List, section};

section! {
    pub(in crate::config) struct RawAcme ("in [application.tls.acme]") {
        /// The names that the certificate is for, none with `*`. Required.
        domains: List<String>,
        /// Where the authority writes to when something is wrong. Default: none.
        email: String,
        /// The authority: the address of its ACME directory. To order from it is to agree to its terms of service.
        /// Default: `"https://acme-v02.api.letsencrypt.org/directory"`.
        directory: String,
        /// PEM file with the authorities that the directory's own certificate may be of. Default: those of this
        /// machine.
        ca: String,
        /// Folder for the account's key, certificates and challenges; made if it is not there. Sentries that share it
        /// share [all of these](tls.md#several-sentries). Required.
        cache: String,
        /// How the authority finds out whose the names are: `"tls-alpn-01"`, by a handshake at port 443, or
        /// `"http-01"`, by a request at port 80. Default: `"tls-alpn-01"`.
        challenge: String,
        /// What clients get before the first certificate is here: `"self-signed"`, or `"refuse"`, no handshake
        /// succeeds. Default: `"self-signed"`.
        until: String,
    }
}
