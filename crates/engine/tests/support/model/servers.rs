//! What the model makes of servers: whose they are, how their cores are divided, and what a change of setup does.

use tidegate_engine::{Role, ServerId, Setup};

use super::rules::{equal, longest_target, may_use, require};
use super::{Checked, Model, Step, View};

impl Model {
    /// Cores are divided at data servers only, as the snapshot says, and the data service keeps one.
    pub(super) fn isolates(&self, step: &Step, server: ServerId, cores: u32) -> Checked {
        let shown = step.after.snapshot.dispatching.facts("stealing").and_then(|stealing| stealing.count("cores"));
        let is_data = step.after.servers[server.index()].role == Role::Data;
        let sound = is_data && cores < 4 && shown == Some(u64::from(cores));
        require(sound, || format!("{server:?} is to give {cores} cores, shown are {shown:?}"))
    }

    pub(super) fn reconfigure(&mut self, setup: &Setup) {
        let old: Vec<&str> = self.setup.classes.iter().map(|class| class.name.as_str()).collect();
        let name = |class: usize| setup.classes.iter().position(|new| new.name == old[class]);
        for live in self.live.values_mut() {
            live.class = name(live.class).unwrap_or(setup.classes.len() - 1);
        }
        let before = |new: &str| old.iter().position(|name| *name == new).map(|at| self.classes[at]);
        self.classes = setup.classes.iter().map(|class| before(&class.name).unwrap_or_default()).collect();
        self.shadow = setup.shadow;
        self.longest_target = self.longest_target.max(longest_target(setup));
        self.setup = setup.clone();
    }

    /// Every class has servers while there are any, every server is in one partition, and nothing is held by nobody.
    pub(super) fn divided(&self, view: &View) -> Checked {
        let taking = self.taking(view);
        for class in 0..self.classes.len() {
            let has = taking.is_empty() || taking.iter().any(|id| may_use(view, class, *id));
            require(has, || format!("class {} has no server of {taking:?}", class + 1))?;
        }
        let partitions = &view.snapshot.partitions;
        let divided = taking.iter().filter(|id| view.servers[id.index()].role == Role::Application).count();
        equal("servers in partitions", partitions.iter().map(|p| p.servers).sum(), divided)?;
        let held: u32 = partitions.iter().flat_map(|p| &p.held).map(|held| held.in_flight).sum();
        require(held as usize <= self.live.len(), || format!("{held} held, {} in flight", self.live.len()))
    }
}
