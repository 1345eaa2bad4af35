//! Web users: pages of sessions arrive, whatever becomes of those before.

use tidegate_engine::Timestamp;
use tidegate_workload::{Asked, Rng, SurgePage, SurgePages, rng};

use super::clients::{Client, task};
use super::menu::Menu;
use super::{Happening, Run};
use crate::agenda::{Agenda, SlotId};
use crate::park::in_billionths;
use crate::world::Sessions;

/// The sessions of one kind of users.
pub(super) struct Source<'w> {
    sessions: &'w Sessions,
    pages: SurgePages,
    /// The next page.
    next: Option<SurgePage>,
    slot: SlotId,
    /// The first kind's menu.
    first_menu: u16,
    rng: Rng,
}

/// Streams of random numbers for sessions begin here; see `clients.rs` for the others.
const SESSIONS: u64 = 1 << 33;

impl<'w> Source<'w> {
    pub(super) fn all(
        world: &'w crate::world::World,
        seed: u64,
        menus: &mut Vec<Menu<'w>>,
        plans: &mut Agenda<Happening>,
    ) -> Vec<Source<'w>> {
        let mut sources = Vec::new();
        for (at, sessions) in world.sessions.iter().enumerate() {
            let first_menu = menus.len() as u16;
            menus.extend(sessions.urls.iter().map(|urls| Menu::new(sessions.class, urls)));
            let numbers = SESSIONS + 2 * at as u64;
            sources.push(Source {
                sessions,
                pages: sessions.source.pages(at, world.duration, seed),
                next: None,
                slot: plans.slot(Happening::Page { source: at as u16 }),
                first_menu,
                rng: rng(seed, numbers + 1),
            });
        }
        sources
    }
}

impl Run<'_> {
    /// Plans the next page of a source, unless it is after the end.
    pub(super) fn plan_page(&mut self, source: usize) {
        let source = &mut self.clients.sources[source];
        source.next = source.pages.next().filter(|page| Timestamp::ZERO + page.at <= self.end);
        if let Some(page) = source.next {
            self.plans.plan(source.slot, Timestamp::ZERO + page.at);
        }
    }

    /// A page is asked for.
    pub(super) fn ask_for_page(&mut self, now: Timestamp, at: u16) {
        let source = &mut self.clients.sources[usize::from(at)];
        let Some(page) = source.next.take() else { return };
        let menu = source.first_menu + tidegate_workload::Sessions::position(page.kind) as u16;
        let urls = &self.clients.menus[usize::from(menu)];
        let url = urls.draw(&mut source.rng);
        let mut task = task(&urls.urls[url as usize], &mut source.rng);
        task.work += in_billionths(source.sessions.source.work(page.objects, page.bytes));
        // Two each: pages from files, and pages made on demand.
        let first = (self.world.streams.len() + self.world.users.len()) as u16 + 2 * at;
        let course = first + u16::from(page.kind != Asked::Static);
        let class = source.sessions.class;
        let flying = self.flying(now, Client::Page { menu }, class, course, url, task);
        self.plan_page(usize::from(at));
        self.come(now, flying);
    }
}
