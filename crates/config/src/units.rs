//! The grammar of quantities: the same text means the same in every file and on every command line.
//!
//! Times, rates and sizes are read by the engine, whose policies have them in their settings. `tidegate-workload` reads
//! times and rates once more, within its notation of rates over time, and says the column of a mistake. It imports
//! nothing of ours, so a test here holds the two together.

pub use tidegate_engine::units::{format_duration, parse_duration, parse_rate, parse_size};

/// Reads a share of a whole, such as `"20%"`.
///
/// # Errors
/// A sentence that says what is wrong and shows the right form.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number.map_or_else(
        || Err(format!("\"{text}\" is not a share; write it like \"20%\"")),
        |percent| share(percent / 100.0),
    )
}

/// A share that was written as a plain number.
///
/// # Errors
/// When it does not lie between 0 and 1.
pub(crate) fn share(number: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err(format!("{number} is not a share; write a number from 0 to 1, or \"20%\"")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_workload::Rate;

    use super::*;

    /// Numbers, good and bad, with units, good and bad, and spaces where there may be some.
    fn quantities() -> impl Strategy<Value = String> {
        let number = prop_oneof!["[0-9]{1,5}", "[0-9]{0,3}[.][0-9]{0,3}", "[0-9_.]{0,4}", "9{300,310}"];
        let unit = prop_oneof!["ns|us|µs|ms|s|m|min|h|d", "(k|M)?/(ns|us|ms|s|min|h|d)", "[a-zµ/%]{0,3}"];
        (number, " ?", unit, " ?").prop_map(|(number, space, unit, end)| format!("{number}{space}{unit}{end}"))
    }

    proptest! {
        #[test]
        fn the_same_text_is_the_same_time_and_rate_everywhere(text in quantities()) {
            prop_assert_eq!(parse_duration(&text).ok(), tidegate_workload::parse_duration(&text).ok());
            let rate = text.parse::<Rate>().ok().map(Rate::per_second);
            prop_assert_eq!(parse_rate(&text).ok(), rate);
        }
    }

    #[test]
    fn what_only_one_of_the_two_knew_means_the_same_in_both() {
        for (text, nanos) in [("1d", 86_400_000_000_000), ("7ns", 7), ("3µs", 3_000), ("0", 0), ("1_000 us", 1_000_000)]
        {
            assert_eq!(parse_duration(text).expect(text).as_nanos(), nanos, "{text}");
            assert_eq!(tidegate_workload::parse_duration(text).expect(text).as_nanos(), nanos, "{text}");
        }
        for (text, per_second) in [("2/ms", 2e3), ("86_400/d", 1.0), ("1.5k/s", 1.5e3)] {
            assert_eq!(parse_rate(text), Ok(per_second), "{text}");
            assert_eq!(text.parse::<Rate>().expect(text).per_second(), per_second, "{text}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(parse_share("20 %"), Ok(0.2));
        assert!(parse_share("120%").is_err() && parse_share("0.2").is_err());
    }
}
