//! The cost that a server states in a header field of its answer.
//!
//! `Tidegate-Cost: cpu=0.0123, io=0.004`: processor time and time waiting for disks and the like, in seconds; `io` may
//! be missing. The field is for the sentry and does not reach the client.

use tidegate_engine::MeasuredCost;

/// No request takes longer, seconds.
const MOST: f64 = 86_400.0;

/// Reads the field's value; `None` when it makes no sense.
pub(crate) fn parse(value: &[u8]) -> Option<MeasuredCost> {
    let text = std::str::from_utf8(value).ok()?;
    let mut cost = MeasuredCost { cpu: -1.0, ..MeasuredCost::default() };
    for part in text.split([',', ';']) {
        let (name, seconds) = part.split_once('=')?;
        let seconds: f64 = seconds.trim().parse().ok()?;
        if !(0.0..=MOST).contains(&seconds) {
            return None;
        }
        match name.trim() {
            "cpu" => cost.cpu = seconds,
            "io" => cost.io = seconds,
            // A later program's.
            _ => {}
        }
    }
    (cost.cpu >= 0.0).then_some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_by_name() {
        let read = |text: &str| parse(text.as_bytes()).map(|cost| (cost.cpu, cost.io));
        assert_eq!(read("cpu=0.25"), Some((0.25, 0.0)));
        assert_eq!(read(" io = 1e-3 ; cpu=0.5, later=3"), Some((0.5, 0.001)));
        for bad in ["", "cpu", "cpu=", "cpu=-1", "cpu=NaN", "cpu=inf", "io=0.1", "cpu=1e9", "cpu=0x1", "\u{fe}"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(parse(&[0xff]), None);
    }
}
