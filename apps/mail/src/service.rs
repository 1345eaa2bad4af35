//! The whole service: admission control in front of the work.

use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};

use crate::request::{Request, Trouble};
use crate::work::{Served, Work};

/// The running service.
pub struct Service {
    work: Work,
    classes: Classes,
    timeout: Duration,
}

/// How a request's class is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// How many there are.
    pub count: u8,
    /// Whether the header `Tidegate-Class` is believed. Only where clients cannot set it, or nobody minds.
    pub by_header: bool,
}

impl Service {
    /// A service that admits everything.
    pub fn new(work: Work, classes: Classes, timeout: Duration) -> Service {
        Service { work, classes, timeout }
    }

    /// Answers a request, or says why not.
    ///
    /// # Errors
    /// What [`Trouble`] lists.
    pub async fn serve(&self, request: Request) -> Result<Served, Trouble> {
        self.work.answer(request, 1.0).await
    }

    /// How classes are known.
    pub fn classes(&self) -> Classes {
        self.classes
    }

    /// A request's time, seconds.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Drawing and table of the running stages, as HTML.
    pub fn drawing(&self) -> (String, String) {
        (String::new(), String::new())
    }

    /// Everything about the running stages and the connections.
    pub fn state(&self) -> Value {
        json!({ "database": self.work.pool().state() })
    }
}

impl Classes {
    /// The class of a request: what the header says, where it is believed; else the account's, which the session's
    /// token begins with; else the last. A token with a forged class belongs to no session, and gets nothing for it.
    pub fn of(self, headers: &HeaderMap, token: Option<&str>) -> u8 {
        let header = headers.get("tidegate-class").filter(|_| self.by_header).and_then(|value| value.to_str().ok());
        let said = header.or_else(|| token?.split_once('-').map(|(class, _)| class));
        said.and_then(|class| class.trim().parse().ok()).map_or(self.count, |class: u8| class.clamp(1, self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_header_and_token() {
        let headers: HeaderMap = [("tidegate-class".parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        let classes = Classes { count: 2, by_header: true };
        assert_eq!(classes.of(&headers, Some("2-x")), 1);
        assert_eq!(Classes { by_header: false, ..classes }.of(&headers, Some("2-x")), 2);
        assert_eq!(classes.of(&HeaderMap::new(), Some("1-x")), 1);
        assert_eq!(classes.of(&HeaderMap::new(), Some("9-x")), 2);
        assert_eq!(classes.of(&HeaderMap::new(), None), 2);
    }
}
