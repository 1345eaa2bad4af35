//! Inputs since the last state, and their end when another control plane takes over.
//!
//! *Intuition.* An input is added to the last chapter by a write that names its version, and when that one is full, it
//! begins the next, which must not be there yet. Whoever takes over writes the mark of the end in the very place where
//! the next input would have to go: of the two writes one is refused. Where that place is, the chapters themselves say.
//!
//! *Awkward cases.* The chapter that only has the mark is deleted when the new leader has written its state, and one
//! that stood still for long could begin it once more: whoever begins a chapter looks at the state afterwards. If that
//! is still its own, the mark was not yet deleted when the chapter was made; it was not there.

use k8s_openapi::api::core::v1::ConfigMap;

use super::layout::{Chapter, Ends, Meta, Writer};
use super::{ClusterStore, TRIES};
use crate::backend::{Leader, StoreError};
use crate::kubernetes::ApiError;

impl ClusterStore {
    /// Writes an input behind the others.
    pub(super) fn append(&mut self, text: String) -> Result<(), StoreError> {
        self.guard()?;
        let writer = self.writer;
        let before = self.chapter.clone().unwrap_or_else(|| Chapter::new(self.next));
        let mut after = before.with(text);
        for _ in 0..TRIES {
            match self.put(&after.object(&self.names, writer)) {
                Ok(version) => after.version = Some(version),
                Err(ApiError::Conflict(_) | ApiError::Missing(_)) => {
                    let Some(there) = self.chapter_at(writer, after.first)? else {
                        self.still_mine()?;
                        return Err(self.gone(&self.names.chapter(writer, after.first)));
                    };
                    let is_done = there.inputs == after.inputs;
                    after.version.clone_from(&there.version);
                    match there.ends {
                        Some(Ends::Sealed(leader)) => return Err(self.deposed(Some(leader))),
                        // Not answered before, and given again.
                        _ if is_done => {}
                        _ if there.inputs == before.inputs => continue,
                        _ => return Err(self.failed(format!("input {} is there already, and another one", self.next))),
                    }
                }
                Err(error) => return Err(self.unheard(error)),
            }
            if before.version.is_none() {
                self.still_mine()?;
                self.chapters.push(self.names.chapter(writer, after.first));
            }
            self.chapter = Some(after).filter(|chapter| chapter.ends.is_none());
            return Ok(());
        }
        Err(StoreError::Away(format!("the journal of {} changes all the time", self.place())))
    }

    /// The chapters after a state; `seal`: and none after them, for this one takes over.
    pub(super) fn journal(&self, meta: &Meta, seal: Option<&Leader>) -> Result<Vec<Chapter>, StoreError> {
        let mut chapters: Vec<Chapter> = Vec::new();
        let mut refused = 0;
        loop {
            let first = chapters.last().map_or(meta.since, Chapter::next);
            let there = self.chapter_at(meta.writer, first)?;
            let (is_last, is_sealed) = match &there {
                Some(chapter) => (chapter.ends != Some(Ends::Full), chapter.is_sealed()),
                None => (true, false),
            };
            match (there, seal) {
                (Some(chapter), _) if !is_last => chapters.push(chapter),
                (there, Some(me)) if !is_sealed => {
                    let sealed = there.unwrap_or_else(|| Chapter::new(first)).sealed(me);
                    self.guard()?;
                    match self.put(&sealed.object(&self.names, meta.writer)) {
                        Ok(_) => {
                            chapters.push(sealed);
                            return Ok(chapters);
                        }
                        // The one before was faster: what it wrote counts.
                        Err(ApiError::Conflict(_) | ApiError::Missing(_)) if refused < TRIES * 10 => refused += 1,
                        Err(error) => return Err(self.unheard(error)),
                    }
                }
                (there, _) => {
                    chapters.extend(there);
                    return Ok(chapters);
                }
            }
        }
    }

    /// Whether the state is still the one that this leader wrote.
    pub(super) fn still_mine(&self) -> Result<(), StoreError> {
        match self.read_meta()? {
            Some((meta, _)) if meta.writer == self.writer => Ok(()),
            Some(_) => Err(self.deposed(None)),
            None => Err(self.gone(&self.names.state())),
        }
    }

    fn chapter_at(&self, writer: Writer, first: u64) -> Result<Option<Chapter>, StoreError> {
        let object: Option<ConfigMap> =
            self.server.get(&self.names.chapter(writer, first)).map_err(|error| self.unheard(error))?;
        object.map(|object| Chapter::read(object).map_err(|problem| self.failed(problem))).transpose()
    }
}
