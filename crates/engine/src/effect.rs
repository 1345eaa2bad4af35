//! Effects: what policies want done beside deciding about requests; the controller carries them out.

use crate::request::RequestTypeId;

/// Something a policy wants done. Saying it again changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Answers to requests of a type should be so good, 0 to 1; `None`: to all requests.
    Quality {
        /// The request type; `None`: all requests.
        request_type: Option<RequestTypeId>,
        /// Quality of the answers, 0 to 1.
        quality: f64,
    },
    /// The driver lets in so many new connections per second; `None`: all. In shadow mode all.
    Connections {
        /// Connections per second.
        rate: Option<f64>,
        /// How many may come at once.
        depth: f64,
    },
    /// Every data server lends so much from now on.
    Lend(Lending),
}

/// What each data server lends to application work. Nothing is the default: only a policy that asks for it gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lending {
    /// The most requests it may have in flight.
    pub limit: u32,
    /// How many of its cores application work has to itself; `None`: cores are not divided.
    pub cores: Option<u32>,
}

/// What was said last, so that it is said once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said<T>(Option<T>);

impl<T: Clone + PartialEq> Said<T> {
    /// What everybody takes for granted until something else is said.
    pub(crate) const fn already(what: T) -> Said<T> {
        Said(Some(what))
    }

    /// Whether it is something else than what was said last; from now on it is the last.
    pub(crate) fn is_news(&mut self, what: &T) -> bool {
        let is_news = self.0.as_ref() != Some(what);
        if is_news {
            self.0 = Some(what.clone());
        }
        is_news
    }

    /// Who was told may have forgotten it: the same is news again.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_no_news_until_it_is_forgotten() {
        let mut said = Said::already(None);
        let news = [None, Some(1), Some(1), None].map(|rate| said.is_news(&rate));
        assert_eq!(news, [false, true, false, true]);
        said.forget();
        assert!(said.is_news(&None));
    }
}
