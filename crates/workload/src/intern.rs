//! Tables that small, copied values refer to.
//!
//! A distribution or an arrival process is copied into every stream and every server that uses it, so it should be a
//! few numbers. The rare one with a table (measured values, a chain of states) keeps it here: equal tables are kept
//! once, and for the life of the program. Programs read a handful of scenarios, so the pool stays small.

use std::sync::{Mutex, PoisonError};

/// The tables of one type.
pub(crate) struct Pool<T: 'static>(Mutex<Vec<&'static T>>);

impl<T: PartialEq> Pool<T> {
    pub(crate) const fn new() -> Self {
        Pool(Mutex::new(Vec::new()))
    }

    /// The table equal to `table`, which is kept when it is the first.
    pub(crate) fn keep(&self, table: T) -> &'static T {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| ***known == table) {
            return known;
        }
        let table: &'static T = Box::leak(Box::new(table));
        kept.push(table);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tables_are_kept_once() {
        static POOL: Pool<Vec<f64>> = Pool::new();
        let first = POOL.keep(vec![1.0, 2.0]);
        assert!(std::ptr::eq(first, POOL.keep(vec![1.0, 2.0])));
        assert!(!std::ptr::eq(first, POOL.keep(vec![2.0])));
    }
}
