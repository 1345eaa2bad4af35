//! How much clients may make the process hold, where nobody says: by the memory that there is.
//!
//! A quarter of it, in equal parts by application. Clients can make it a quarter more, and those who have few streams
//! of HTTP/2 are refused none for what all take; the rest is for that, for the process itself, for what the allocator
//! cannot give to others, and for whatever else runs on the machine.

use rustix::process::{Resource, getrlimit};
use tidegate_nucleus::memory_limit;

/// One part of so many.
const PARTS: u64 = 4;

/// For all applications together: whoever has more memory has others that need it.
const MOST: u64 = 1 << 30;

/// For one application, however many there are, unless that is more than the part.
const LEAST: u64 = 16 << 20;

/// Where the system does not say how much there is.
const UNKNOWN: u64 = 256 << 20;

/// Bytes that the clients of each of so many applications may make the process hold.
pub(crate) fn held_each(applications: usize) -> u64 {
    let bounds = [Resource::Data, Resource::As].map(|resource| getrlimit(resource).current);
    let least = bounds.into_iter().chain([memory_limit()]).flatten().min();
    each(least.unwrap_or(UNKNOWN), applications)
}

fn each(memory: u64, applications: usize) -> u64 {
    let part = (memory / PARTS).min(MOST);
    (part / applications.max(1) as u64).max(LEAST.min(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_a_part_of_what_there_is() {
        let mib = |count: u64| count << 20;
        assert_eq!(each(mib(256), 1), mib(64));
        assert_eq!(each(mib(256), 2), mib(32));
        assert_eq!(each(mib(256), 100), mib(16), "for one, however many there are");
        assert_eq!(each(mib(40), 100), mib(10), "but not more than the part");
        assert_eq!(each(mib(100_000), 1), mib(1024));
        assert!(held_each(1) >= 1 << 20);
    }
}
