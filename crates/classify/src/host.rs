//! The normal form of a host: lower case, no port, no final dot.

/// The longest name the DNS allows is 253 bytes; whatever is longer names no host of ours.
pub(super) const LONGEST_HOST: usize = 255;

/// A host in normal form, in place when it is so already.
pub(super) struct HostBuffer([u8; LONGEST_HOST]);

impl HostBuffer {
    pub(super) const fn new() -> Self {
        HostBuffer([0; LONGEST_HOST])
    }

    /// The normal form of `authority`; `None` when it is longer than any name.
    pub(super) fn lower<'a>(&'a mut self, authority: &'a str) -> Option<&'a str> {
        let host = without_port(authority);
        let buffer = self.0.get_mut(..host.len())?;
        buffer.copy_from_slice(host.as_bytes());
        buffer.make_ascii_lowercase();
        core::str::from_utf8(buffer).ok()
    }
}

/// The host of `host:port`, without the dot that marks a name as complete.
pub(super) fn without_port(authority: &str) -> &str {
    let host = match authority.rfind([':', ']']) {
        Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Whether a host is in lower case already, so that no copy is needed.
pub(super) fn is_lower(host: &str) -> bool {
    !host.bytes().any(|b| b.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_case_and_final_dot_play_no_part() {
        for authority in ["shop.example", "Shop.Example", "SHOP.EXAMPLE:8080", "shop.example.", "shop.example.:80"] {
            assert_eq!(HostBuffer::new().lower(authority), Some("shop.example"), "{authority}");
        }
        assert_eq!(without_port("[::1]:80"), "[::1]");
        assert_eq!(without_port("[::1]"), "[::1]");
        assert_eq!(without_port(""), "");
    }

    #[test]
    fn an_endless_host_is_no_host() {
        let long = "a".repeat(300);
        assert_eq!(HostBuffer::new().lower(&long), None);
    }
}
