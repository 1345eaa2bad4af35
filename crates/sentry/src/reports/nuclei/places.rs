//! Which names lead to which server, after servers have come and gone.

use std::collections::HashMap;

use tidegate_engine::LoadReport;

use super::{Entry, Nuclei, NucleusState};

impl Nuclei {
    /// Servers may have come and gone.
    pub(super) fn follow_reloads(&mut self) {
        let generations: Vec<u64> = self.apps.iter().map(|app| app.generation()).collect();
        if generations == self.generations {
            return;
        }
        self.generations = generations;
        self.divides = self.apps.iter().any(|app| app.live().config.setup.demands().cores);
        self.takes_signals = self.apps.iter().map(|app| app.live().config.setup.demands().signals).collect();
        self.next_sweep = 0;
        let mut old: HashMap<String, Entry> =
            std::mem::take(&mut self.entries).into_iter().map(|entry| (entry.address.clone(), entry)).collect();
        self.names.clear();
        let mut by_name: HashMap<String, Option<usize>> = HashMap::new();
        for (index, app) in self.apps.iter().enumerate() {
            let live = app.live();
            for server in live.servers() {
                if !live.config.setup.demands().cores {
                    server.want_cores(None);
                }
                let at = *self.names.entry(server.address.clone()).or_insert_with(|| {
                    let mut entry = old.remove(&server.address).unwrap_or_default();
                    entry.address.clone_from(&server.address);
                    entry.places.clear();
                    self.entries.push(entry);
                    self.entries.len() - 1
                });
                self.entries[at].places.push((index, server.id, server.name.clone()));
                self.names.insert(format!("{}/{}", app.name(), server.name), at);
                let same = |known: &mut Option<usize>| *known = known.filter(|&other| other == at);
                by_name.entry(server.name.clone()).and_modify(same).or_insert(Some(at));
            }
        }
        for (name, at) in by_name.into_iter().filter_map(|(name, at)| Some((name, at?))) {
            self.names.entry(name).or_insert(at);
        }
        for at in 0..self.entries.len() {
            self.exclude(at);
            // Its place may be new, or another's until now.
            let can = self.entries[at].cores.can_lend();
            for (app, server, _) in &self.entries[at].places {
                self.told[*app].reports.push(LoadReport::Lends { server: *server, can });
            }
            // A server at a new address may have been known at its old one: what its nucleus said there is over.
            if self.entries[at].state == NucleusState::Never {
                for (app, id, _) in &self.entries[at].places {
                    self.told[*app].reports.push(LoadReport::Silent(*id));
                }
            }
        }
    }
}
