//! `traceparent`, as W3C Trace Context (level 1) has it: `00-<trace>-<parent>-<flags>`, in lowercase hexadecimal.

use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

/// Where a request comes from: its trace, the span that asked, and whether spans are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) flags: TraceFlags,
}

impl Context {
    /// Reads a field. What is malformed counts as absent, as the standard wants it.
    pub(super) fn read(field: &[u8]) -> Option<Context> {
        let text = std::str::from_utf8(field).ok()?.trim();
        let version = text.get(..2)?;
        let known = version == "00" && text.len() == LENGTH;
        // A later version may have more after what this one has.
        let later =
            version != "00" && version != "ff" && (text.len() == LENGTH || text.get(LENGTH..=LENGTH) == Some("-"));
        if !(known || later) || !is_lower_hex(version) {
            return None;
        }
        let mut parts = text.get(3..LENGTH)?.split('-');
        let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
        let well_formed = trace.len() == 32 && span.len() == 16 && flags.len() == 2 && text.as_bytes()[2] == b'-';
        if !well_formed || ![trace, span, flags].into_iter().all(is_lower_hex) {
            return None;
        }
        let context = Context {
            trace: TraceId::from_hex(trace).ok()?,
            span: SpanId::from_hex(span).ok()?,
            flags: TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        };
        (context.trace != TraceId::INVALID && context.span != SpanId::INVALID).then_some(context)
    }

    /// The field for whoever is asked next, with `span` as the one that asks.
    pub(super) fn write(&self, span: SpanId) -> String {
        format!("00-{}-{span}-{:02x}", self.trace, self.flags.to_u8() & 1)
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.flags.is_sampled()
    }
}

/// Of version 00.
const LENGTH: usize = 55;

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_field_is_read_and_written() {
        let context = Context::read(GOOD.as_bytes()).expect("well formed");
        assert!(context.is_sampled());
        assert_eq!(context.write(context.span), GOOD);
        let later = format!("01{}-what-comes-later", &GOOD[2..]);
        assert_eq!(Context::read(later.as_bytes()), Some(context));
        assert!(!Context::read(GOOD.replace("-01", "-00").as_bytes()).expect("well formed").is_sampled());
    }

    #[test]
    fn what_is_malformed_is_absent() {
        let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
        let no_parent = "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        let upper = GOOD.to_uppercase();
        let forbidden = format!("ff{}", &GOOD[2..]);
        let longer = format!("{GOOD}-x");
        for bad in ["", "00", "00-x", zeros, no_parent, &upper, &forbidden, &longer, &GOOD[..54], "00-é-é-01"] {
            assert_eq!(Context::read(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Context::read(&[0xff; 55]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, text in "[0-9a-f-]{50,60}") {
            let _ = (Context::read(&bytes), Context::read(text.as_bytes()));
        }
    }
}
