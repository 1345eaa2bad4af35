//! Deadlines on their way through: the server is told how long the client still waits, less the time spent here, as
//! Envoy and gRPC do it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate_classify::due::{DeadlineBy, ENVOY_TIMEOUT, GRPC_TIMEOUT, read_envoy, read_grpc, write_grpc};

/// Less than this is not worth another header.
const LEAST: Duration = Duration::from_millis(1);

/// Takes the time that was spent here, `spent`, from what the request says. What cannot be read passes as it is.
pub(crate) fn take_off(headers: &mut HeaderMap, by: &DeadlineBy, spent: Duration) {
    if spent < LEAST {
        return;
    }
    if by.well_known {
        replace(headers, &HeaderName::from_static(GRPC_TIMEOUT), |value| {
            Some(write_grpc(read_grpc(value)?.saturating_sub(spent)))
        });
        replace(headers, &HeaderName::from_static(ENVOY_TIMEOUT), |value| {
            // 0 would mean no deadline.
            Some(read_envoy(value)?.saturating_sub(spent).as_millis().max(1).to_string())
        });
    }
    let Some(own) = &by.own else { return };
    let Ok(name) = HeaderName::from_bytes(own.header.as_bytes()) else { return };
    replace(headers, &name, |value| {
        let left = own.read(value)?.saturating_sub(spent);
        // 0 would mean no deadline here, too.
        Some(own.write(value, left.max(LEAST.max(own.unit))))
    });
}

fn replace(headers: &mut HeaderMap, name: &HeaderName, change: impl Fn(&[u8]) -> Option<String>) {
    let Some(value) = headers.get_mut(name) else { return };
    let changed = change(value.as_bytes().trim_ascii()).and_then(|text| HeaderValue::try_from(text).ok());
    if let Some(changed) = changed {
        *value = changed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_classify::due::OwnDeadline;

    fn left(name: &'static str, value: &'static str, spent_ms: u64) -> String {
        let own = OwnDeadline { header: "x-patience".into(), unit: Duration::from_millis(1) };
        let by = DeadlineBy { well_known: true, own: Some(own) };
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        take_off(&mut headers, &by, Duration::from_millis(spent_ms));
        headers[name].to_str().expect("text").to_owned()
    }

    #[test]
    fn servers_are_told_what_is_left() {
        assert_eq!(left("grpc-timeout", "2S", 500), "1500000u");
        assert_eq!(left("grpc-timeout", "2S", 0), "2S", "as it came");
        assert_eq!(left("grpc-timeout", "100m", 200), "0u");
        assert_eq!(left("x-envoy-expected-rq-timeout-ms", "250", 100), "150");
        assert_eq!(left("x-envoy-expected-rq-timeout-ms", "250", 400), "1");
        assert_eq!(left("x-patience", "900", 100), "800");
        assert_eq!(left("x-patience", "1s", 100), "900ms");
        assert_eq!(left("x-patience", "900", 2000), "1");
        for nonsense in ["soon", "0", "-5"] {
            assert_eq!(left("x-patience", nonsense, 100), nonsense);
            assert_eq!(left("x-envoy-expected-rq-timeout-ms", nonsense, 100), nonsense);
        }
    }
}
