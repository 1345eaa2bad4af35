//! What a client may ask for, ready to be drawn from.

use tidegate_engine::{ClassId, Request, RequestTypeId, UrlKey};
use tidegate_workload::{Rng, uniform};

use super::Flying;
use crate::world::Url;

/// URLs with their weights summed up.
pub(super) struct Menu<'w> {
    pub(super) urls: &'w [Url],
    sums: Vec<f64>,
    class: u8,
}

impl<'w> Menu<'w> {
    pub(super) fn new(class: u8, urls: &'w [Url]) -> Self {
        Menu { urls, sums: sums(urls.iter().map(|url| url.weight)), class }
    }

    /// One of the URLs, by weight.
    pub(super) fn draw(&self, rng: &mut Rng) -> u32 {
        draw(&self.sums, rng)
    }

    /// The request for a URL, as a classifier would make it.
    pub(super) fn request(&self, url: u32) -> Request {
        let url = &self.urls[url as usize];
        Request {
            class: ClassId(self.class),
            request_type: RequestTypeId(url.request_type),
            tags: url.tags,
            url: spread(url.key),
            ..Request::default()
        }
    }
}

/// What a request asks for; `None`: it was given, and is nothing but work.
pub(super) fn url<'w>(menus: &[Menu<'w>], flying: &Flying) -> Option<&'w Url> {
    flying.client.menu().map(|menu| &menus[menu].urls[flying.url as usize])
}

/// Keys of neighbours are far apart, as hashes of paths are.
pub(super) fn spread(key: u64) -> UrlKey {
    UrlKey(key.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

pub(super) fn sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

/// A place, with the probability of its part of the last sum.
pub(super) fn draw(sums: &[f64], rng: &mut Rng) -> u32 {
    let Some(all) = sums.last() else { return 0 };
    let at = uniform(rng) * all;
    (sums.partition_point(|sum| *sum <= at).min(sums.len() - 1)) as u32
}
