//! The names in a client's certificate, which rustls has found good.

use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Its alternative names, of hosts and as URIs; where it has none, the common name of its subject.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    // A certificate that rustls accepted can be parsed.
    let Ok(parsed) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let hosts = parsed.valid_dns_names().map(str::to_ascii_lowercase);
    let mut names: Vec<String> = hosts.chain(parsed.valid_uri_names().map(str::to_owned)).collect();
    if names.is_empty() {
        names.extend(common_name(parsed.subject()));
    }
    names
}

/// `:BASE64:`, the item of RFC 9440, section 2.
pub(super) fn header(certificate: &CertificateDer<'_>) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!(":{}:", base64(certificate))).ok()
}

/// The attribute type of a common name, 2.5.4.3, as DER has it.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// The last common name in a subject: `SEQUENCE OF SET OF SEQUENCE { type, value }`.
fn common_name(subject: &[u8]) -> Option<String> {
    let mut rest = match element(subject) {
        // With the outer sequence, or without.
        Some((0x30, inside, [])) => inside,
        _ => subject,
    };
    let mut found = None;
    while let Some((_, set, after)) = element(rest) {
        let mut attributes = set;
        while let Some((_, attribute, further)) = element(attributes) {
            if let Some(value) = attribute.strip_prefix(&COMMON_NAME) {
                found = element(value).and_then(|(_, text, _)| String::from_utf8(text.to_vec()).ok()).or(found);
            }
            attributes = further;
        }
        rest = after;
    }
    found
}

/// The first element: its tag, what is in it, and what follows.
pub(super) fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        _ => return None,
    };
    rest.split_at_checked(length).map(|(inside, after)| (tag, inside, after))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |i: usize| u32::from(three.get(i).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let fills = digit > three.len();
            out.push(if fills { '=' } else { char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn a_certificate_without_alternative_names_has_its_common_one() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Shop");
        params.distinguished_name.push(rcgen::DnType::CommonName, "billing \u{e9}");
        let certificate = params.self_signed(&key).expect("a certificate");
        assert_eq!(names(certificate.der()), ["billing \u{e9}"]);
        let named = vec!["A.Internal".to_owned(), "b.internal".to_owned()];
        let certificate =
            rcgen::CertificateParams::new(named).expect("names").self_signed(&key).expect("a certificate");
        assert_eq!(names(certificate.der()), ["a.internal", "b.internal"]);
    }

    proptest! {
        #[test]
        fn any_subject_is_read_to_its_end(subject in proptest::collection::vec(any::<u8>(), 0..64)) {
            common_name(&subject);
        }
    }
}
