//! From when to when a certificate is good, and for which hosts.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::names::element;

/// The part of a certificate's life after which another one is ordered.
const RENEWED_AT: f64 = 2.0 / 3.0;

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

impl Validity {
    /// That of a certificate; `None`: it cannot be read.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let (0x30, certificate, _) = element(certificate)? else { return None };
        let (0x30, mut rest, _) = element(certificate)? else { return None };
        // Version, where it is said; serial number, algorithm, issuer.
        if rest.first() == Some(&0xa0) {
            rest = element(rest)?.2;
        }
        for _ in 0..3 {
            rest = element(rest)?.2;
        }
        let (0x30, validity, _) = element(rest)? else { return None };
        let (tag, from, rest) = element(validity)?;
        let (until_tag, until, _) = element(rest)?;
        Some(Validity { not_before: time(tag, from)?, not_after: time(until_tag, until)? })
    }

    /// When another one is ordered; `draw`, 0 to 1, makes it up to a twentieth of the life later.
    pub(crate) fn renewed_at(self, draw: f64) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life.mul_f64(RENEWED_AT + draw / 20.0)
    }
}

/// Whether a certificate is for all of these hosts.
pub(crate) fn covers(certificate: &CertificateDer<'_>, hosts: &[String]) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return false };
    let names: Vec<String> = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    hosts.iter().all(|host| names.contains(host))
}

/// `UTCTime` (two digits of the year) or `GeneralizedTime`, both in seconds and UTC (RFC 5280, section 4.1.2.5).
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        0x17 => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        0x18 => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let seconds = days(year, month, day) * 86_400 + part(4)? * 3600 + part(6)? * 60 + part(8)?;
    let epoch = SystemTime::UNIX_EPOCH;
    Some(match u64::try_from(seconds) {
        Ok(seconds) => epoch + Duration::from_secs(seconds),
        Err(_) => epoch,
    })
}

/// Days since 1970-01-01 in the Gregorian calendar: years begin in March, so that leap days are last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, within) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + within * 365 + within / 4 - within / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        let seconds = |tag, text: &str| {
            time(tag, text.as_bytes()).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).expect("later").as_secs())
        };
        assert_eq!(seconds(0x17, "700101000000Z"), Some(0));
        assert_eq!(seconds(0x17, "261124141500Z"), Some(1_795_529_700));
        assert_eq!(seconds(0x18, "20000229235959Z"), Some(951_868_799));
        assert_eq!(seconds(0x18, "20500101000000Z"), Some(2_524_608_000));
        for (tag, bad) in [(0x17, "7001010000Z"), (0x17, "700101000000"), (0x04, "700101000000Z"), (0x18, "Z")] {
            assert_eq!(seconds(tag, bad), None, "{bad}");
        }
    }

    #[test]
    fn a_certificate_s_life_is_read_and_renewed_at_two_thirds() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["shop.example".to_owned(), "www.shop.example".to_owned()];
        let mut params = rcgen::CertificateParams::new(names.clone()).expect("names");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2026, 4, 1));
        let made = params.self_signed(&key).expect("a certificate");
        let validity = Validity::of(made.der()).expect("a validity");
        let day = |at: SystemTime| at.duration_since(validity.not_before).expect("later").as_secs_f64() / 86_400.0;
        assert_eq!(day(validity.not_after), 90.0);
        assert_eq!((day(validity.renewed_at(0.0)).round(), day(validity.renewed_at(1.0)).round()), (60.0, 65.0));
        assert!(covers(made.der(), &names[..1]) && covers(made.der(), &names));
        assert!(!covers(made.der(), &["bank.example".to_owned()]));
        assert_eq!(Validity::of(&CertificateDer::from(vec![0x30, 0x03, 1, 2, 3])), None);
    }
}
