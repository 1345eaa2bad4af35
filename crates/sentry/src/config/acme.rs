//! Certificates that are ordered from an authority, by ACME (RFC 8555).

use std::path::PathBuf;

/// A certificate that is ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The names that it is for, in lower case; not empty.
    pub domains: Vec<String>,
    /// Where the authority writes to.
    pub email: Option<String>,
    /// The address of the authority's directory: `https://...`.
    pub directory: String,
    /// The authorities that the directory's own certificate may be of; `None`: those of this machine.
    pub ca: Option<PathBuf>,
    /// The folder for what is kept.
    pub cache: PathBuf,
    /// How the authority finds out whose the names are.
    pub challenge: AcmeChallenge,
    /// What clients get before the first one is here.
    pub until: UntilIssued,
}

impl Acme {
    /// Where the certificate is kept, with its key.
    pub fn certificate(&self) -> PathBuf {
        let all = hash(self.domains.iter().map(String::as_str).chain([&*self.directory]));
        let first = self.domains.first().map_or("", String::as_str);
        self.cache.join(format!("{first}-{all:016x}.pem"))
    }

    /// Where the account with the authority is kept: its address and its key.
    pub(crate) fn account(&self) -> PathBuf {
        self.cache.join(format!("account-{:016x}.json", hash([&*self.directory].into_iter())))
    }

    /// Where challenges are kept while they are under way, for all sentries that share the folder.
    pub(crate) fn challenges(&self) -> PathBuf {
        self.cache.join("challenges")
    }
}

/// FNV-1a: names of files are to be the same with every version of the program.
fn hash<'a>(parts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = parts.flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// How the authority finds out whose the names are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By a handshake at port 443 (RFC 8737).
    #[default]
    TlsAlpn,
    /// By a request at port 80.
    Http,
}

impl AcmeChallenge {
    /// Every choice, in the order of messages.
    pub const ALL: [AcmeChallenge; 2] = [AcmeChallenge::TlsAlpn, AcmeChallenge::Http];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            AcmeChallenge::TlsAlpn => "tls-alpn-01",
            AcmeChallenge::Http => "http-01",
        }
    }
}

/// What clients get before the first certificate is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UntilIssued {
    /// One of the process's own making, which no client trusts.
    #[default]
    SelfSigned,
    /// No handshake succeeds.
    Refuse,
}

impl UntilIssued {
    /// Every choice, in the order of messages.
    pub const ALL: [UntilIssued; 2] = [UntilIssued::SelfSigned, UntilIssued::Refuse];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            UntilIssued::SelfSigned => "self-signed",
            UntilIssued::Refuse => "refuse",
        }
    }
}
