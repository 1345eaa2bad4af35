//! Maps of fields that nobody uses now. A request and its answer need one each, of the size that those before them had:
//! to ask the allocator for both of a map's tables, and to give them back, costs more than to empty them.

use std::cell::RefCell;

use http::HeaderMap;

/// Maps that are kept for each thread: as many requests as begin before the answers of those before them are out.
const KEPT: usize = 64;

/// A map with room for more fields than this is not kept.
const LARGE: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
}

/// An empty map with room for `fields`.
pub(crate) fn take(fields: usize) -> HeaderMap {
    let mut headers = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    headers.reserve(fields);
    headers
}

/// Keeps the map for the next who needs one.
pub(crate) fn give(mut headers: HeaderMap) {
    if !(1..=LARGE).contains(&headers.capacity()) {
        return;
    }
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            headers.clear();
            spare.push(headers);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, header};

    #[test]
    fn a_map_comes_back_empty_and_with_its_room() {
        let mut headers = take(10);
        headers.insert(header::HOST, HeaderValue::from_static("a"));
        headers.append(header::VIA, HeaderValue::from_static("b"));
        headers.append(header::VIA, HeaderValue::from_static("c"));
        let room = headers.capacity();
        give(headers);
        let again = take(0);
        assert!(again.is_empty() && again.capacity() == room && again.get(header::VIA).is_none());
    }

    #[test]
    fn neither_large_maps_are_kept_nor_many() {
        give(HeaderMap::with_capacity(1000));
        for _ in 0..2 * KEPT {
            give(HeaderMap::with_capacity(2));
        }
        let rooms: Vec<usize> = (0..2 * KEPT).map(|_| take(0).capacity()).collect();
        assert_eq!(rooms.iter().filter(|&&room| room > 0).count(), KEPT);
        assert!(rooms.iter().all(|&room| room <= LARGE));
    }
}
