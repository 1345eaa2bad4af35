//! Which applications there are: a handle is a number that names a place here and who has it.
//!
//! A pointer as a handle is undefined behaviour when it is used after its end, and in a language with several threads
//! that is easily done. A number is looked up: where its place is empty, or has another application by now, the call
//! fails. It costs two comparisons, and the lock of the place is the application's own, which a call needs anyway.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

use crate::app::App;
use crate::failure::Failure;

/// The most applications at once in a process.
pub const MOST: usize = 1024;

/// Where an application is. Places never share a cache line, nor a prefetched pair of them.
#[repr(align(128))]
struct Place(Mutex<Tenancy>);

/// Who has a place.
struct Tenancy {
    /// Counts the applications that had the place, so that an old handle is told from a new one.
    generation: u32,
    app: Option<Box<App>>,
}

static PLACES: [Place; MOST] = [const { Place(Mutex::new(Tenancy { generation: 0, app: None })) }; MOST];

/// The places that are free: those that were given back, and all from a number on.
static FREE: Mutex<Free> = Mutex::new(Free { returned: Vec::new(), fresh: 0 });

struct Free {
    returned: Vec<usize>,
    fresh: usize,
}

/// Enters an application and gives its handle, which is not 0.
///
/// # Errors
/// [`Failure::Full`] where there are [`MOST`] already.
pub fn enter(app: App) -> Result<u64, Failure> {
    let at = {
        let mut free = unpoisoned(FREE.lock());
        match free.returned.pop() {
            Some(at) => at,
            None if free.fresh < MOST => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return Err(Failure::Full),
        }
    };
    let mut place = unpoisoned(PLACES[at].0.lock());
    // After four milliards of applications in one place the first handles mean something again.
    place.generation = place.generation.wrapping_add(1).max(1);
    place.app = Some(Box::new(app));
    Ok(u64::from(place.generation) << 32 | at as u64)
}

/// Calls with the application of that handle, while nobody else does.
///
/// # Errors
/// [`Failure::Handle`] where there is none, [`Failure::Broken`] where a call has panicked, and what `call` returns.
pub fn with<T>(handle: u64, call: impl FnOnce(&mut App) -> Result<T, Failure>) -> Result<T, Failure> {
    let place = PLACES.get(index(handle)).ok_or(Failure::Handle)?;
    match place.0.lock() {
        Ok(mut place) => call(place.of(handle)?),
        Err(poisoned) => {
            poisoned.into_inner().of(handle)?;
            Err(Failure::Broken)
        }
    }
}

/// Takes the application of that handle out, once no other call is in it.
///
/// # Errors
/// [`Failure::Handle`] where there is none.
pub fn remove(handle: u64) -> Result<Box<App>, Failure> {
    let place = &PLACES.get(index(handle)).ok_or(Failure::Handle)?.0;
    let app = {
        let mut tenancy = unpoisoned(place.lock());
        tenancy.of(handle)?;
        tenancy.app.take().ok_or(Failure::Handle)?
    };
    place.clear_poison();
    unpoisoned(FREE.lock()).returned.push(index(handle));
    Ok(app)
}

impl Tenancy {
    fn of(&mut self, handle: u64) -> Result<&mut App, Failure> {
        match &mut self.app {
            Some(app) if (handle >> 32) as u32 == self.generation => Ok(app),
            _ => Err(Failure::Handle),
        }
    }
}

fn index(handle: u64) -> usize {
    (handle & 0xffff_ffff) as usize
}

/// What is guarded is whole whatever happened to who had the lock.
fn unpoisoned<T>(lock: LockResult<MutexGuard<'_, T>>) -> MutexGuard<'_, T> {
    lock.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn app() -> App {
        App::open("", 1).expect("a configuration of nothing")
    }

    #[test]
    fn a_handle_that_was_closed_means_nothing_even_when_its_place_is_taken_again() {
        let first = enter(app()).expect("there is room");
        assert_eq!(with(first, |app| Ok(app.classes())), Ok(1));
        remove(first).expect("it is there");
        let later: Vec<u64> = (0..3).map(|_| enter(app()).expect("there is room")).collect();
        assert_eq!(with(first, |_| Ok(())), Err(Failure::Handle));
        assert_eq!(remove(first).err(), Some(Failure::Handle));
        for handle in later {
            assert_eq!(with(handle, |_| Ok(())), Ok(()));
            remove(handle).expect("it is there");
        }
    }

    #[test]
    fn numbers_that_are_no_handles_are_told() {
        for handle in [0, 1, MOST as u64, u64::MAX, 7 << 32, u64::from(u32::MAX)] {
            assert_eq!(with(handle, |_| Ok(())), Err(Failure::Handle), "{handle}");
            assert_eq!(remove(handle).err(), Some(Failure::Handle), "{handle}");
        }
    }

    #[test]
    fn a_panic_breaks_its_application_and_no_other_and_it_can_be_closed() {
        let [broken, whole] = [(); 2].map(|()| enter(app()).expect("there is room"));
        let panicked = catch_unwind(AssertUnwindSafe(|| with::<()>(broken, |_| panic!("as a mistake would"))));
        assert!(panicked.is_err());
        assert_eq!(with(broken, |_| Ok(())), Err(Failure::Broken));
        assert_eq!(with(whole, |_| Ok(())), Ok(()));
        remove(broken).expect("it can be closed");
        assert_eq!(with(broken, |_| Ok(())), Err(Failure::Handle), "and then it is closed");
        let next = enter(app()).expect("there is room");
        assert_eq!(with(next, |_| Ok(())), Ok(()), "its place can be used");
        for handle in [whole, next] {
            remove(handle).expect("it is there");
        }
    }
}
