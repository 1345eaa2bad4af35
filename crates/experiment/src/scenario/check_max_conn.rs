//! Whether what is said of Web users, and of what a server can hold, makes sense.

use tidegate_config::Step::{Index, Key};

use super::check::{Checker, classes};

impl Checker<'_> {
    pub(super) fn sessions(&mut self) {
        let s = self.scenario;
        let known: Vec<&str> = s.requests.iter().map(|request| request.name.as_str()).collect();
        let keys = ["static", "dynamic_light", "dynamic_cpu", "dynamic_cpu_and_disk"];
        for (at, sessions) in s.sessions.iter().enumerate() {
            let place = |key| vec![Key("sessions"), Index(at), Key(key)];
            self.known(place("class"), "class", &sessions.class, &classes(s));
            for (key, name) in keys.into_iter().zip(sessions.types()) {
                self.known(place(key), "request type", name, &known);
            }
            let comes = sessions.rate.expected_until(s.duration) > 0.0;
            self.demand(comes, &place("rate"), "is 0 for the whole duration: nobody would come");
            if let Err(error) = sessions.surge.check() {
                self.add(&place("surge"), &error.to_string());
            }
        }
    }

    pub(super) fn max_conn(&mut self) {
        let s = self.scenario;
        self.names("max_conn", s.max_conn.iter().map(|kind| kind.name.as_str()));
        let known: Vec<&str> = s.requests.iter().map(|request| request.name.as_str()).collect();
        for (at, kind) in s.max_conn.iter().enumerate() {
            let place = |key| vec![Key("max_conn"), Index(at), Key(key)];
            self.demand(!kind.requests.is_empty(), &place("requests"), "needs at least one request type");
            for name in &kind.requests {
                self.known(place("requests"), "request type", name, &known);
                let twice = s.max_conn[..at].iter().any(|other| other.requests.contains(name));
                self.demand(!twice, &place("requests"), &format!("\"{name}\" is of another kind already"));
            }
            let good = kind.within_target.is_finite() && kind.within_target > 0.0;
            self.demand(good, &place("within_target"), "must be more than 0");
            let good = kind.most.is_finite() && kind.most >= kind.within_target;
            self.demand(good, &place("most"), "must be at least `within_target`");
        }
    }
}
