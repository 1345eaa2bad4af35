//! The first bytes of HTTP/2, by which a client says that it knows what is spoken here (RFC 9113, section 3.4).

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether a connection's first bytes are the preface: `Some(false)` if they may become it, `None` if they are
/// something else.
pub(crate) fn begins(bytes: &[u8]) -> Option<bool> {
    let common = bytes.len().min(PREFACE.len());
    (common > 0 && bytes[..common] == PREFACE[..common]).then_some(common == PREFACE.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_preface_and_its_beginnings_are_seen_as_such() {
        assert_eq!(begins(PREFACE), Some(true));
        assert_eq!(begins(&[PREFACE, b"more"].concat()), Some(true));
        for length in 1..PREFACE.len() {
            assert_eq!(begins(&PREFACE[..length]), Some(false));
        }
        assert_eq!(begins(b""), None);
        assert_eq!(begins(b"POST / HTTP/1.1\r\n"), None);
        assert_eq!(begins(b"PRI * HTTP/2.0\r\n\r\nSMALL"), None);
    }
}
