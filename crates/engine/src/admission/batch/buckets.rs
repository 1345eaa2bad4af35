//! Cost buckets: four per factor of two, from 0.3 ms to 16 s, found from the bits of the number.

/// How many.
pub(in crate::admission) const BUCKETS: usize = 64;
/// log2 of the upper end of the first bucket's octave, seconds.
const LEAST_EXPONENT: i32 = -11;

/// O(1): the exponent names the octave, the two top bits of the fraction the quarter of it.
pub(in crate::admission) fn bucket_of(cost: f64) -> usize {
    let quarter = (cost.max(0.0).to_bits() >> 50) as i64;
    let least = (((LEAST_EXPONENT - 1 + 1023) as i64) << 2) + 1;
    (quarter - least + 1).clamp(0, BUCKETS as i64 - 1) as usize
}

/// (s_k + s_k+1) / 2, seconds.
pub(super) fn bucket_middle(bucket: usize) -> f64 {
    let edge = |at: i64| {
        let quarter = (((LEAST_EXPONENT - 1 + 1023) as i64) << 2) + at;
        f64::from_bits((quarter as u64) << 50)
    };
    if bucket == 0 { edge(1) / 2.0 } else { (edge(bucket as i64) + edge(bucket as i64 + 1)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_lies_within_a_quarter_octave_of_its_buckets_middle() {
        let mut cost = 0.000_31;
        while cost < 15.9 {
            let ratio = bucket_middle(bucket_of(cost)) / cost;
            assert!((0.88..=1.13).contains(&ratio), "{cost}: {ratio}");
            cost *= 1.01;
        }
        assert_eq!((bucket_of(0.0), bucket_of(-1.0), bucket_of(1e9)), (0, 0, BUCKETS - 1));
    }
}
