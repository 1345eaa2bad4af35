//! The functions of `tidegate.h`, which says what they do. Here is only what the boundary asks for: pointers are
//! turned into values and back, and a panic into a number.
//!
//! What a caller must hold to is said once, here: a pointer that is not null points to what the header says it does,
//! of the length that goes with it, valid for the call and not written to by others meanwhile. Null, what is not
//! aligned, numbers out of range, and handles and tickets of any value are errors. No reference to a caller's memory is
//! made, except to texts: input and output may overlap, and output need not be initialised.

#![expect(unsafe_code, reason = "a C ABI is made of pointers and of names that the linker sees")]

use std::ffi::{CString, c_char};

use crate::app::App;
use crate::failure::{Failure, guard};
use crate::types::{ABI_VERSION, Counts, Decision, End, Request};
use crate::{registry, say};

/// [`ABI_VERSION`].
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_abi_version() -> u32 {
    ABI_VERSION
}

/// The library's own version.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// What a negative number that a function returned means; of another number, that it is no error.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_error(code: i32) -> *const c_char {
    let failure = Failure::ALL.into_iter().find(|failure| failure.code() == code);
    failure.map_or(c"no error", Failure::c_text).as_ptr()
}

/// Opens an application.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_open(
    config: *const c_char,
    length: usize,
    seed: u64,
    app: *mut u64,
    problem: *mut *mut c_char,
) -> i32 {
    guard(|| {
        // SAFETY: the caller says so of its pointers; see the module.
        unsafe {
            clear(problem)?;
            check(app)?;
            let opened = text(config, length).and_then(|text| App::open(text, seed));
            let opened = or_problem(opened, problem)?;
            write(app, registry::enter(opened)?)?;
        }
        Ok(0)
    })
}

/// Puts another configuration in force.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_reload(
    app: u64,
    now_ns: u64,
    config: *const c_char,
    length: usize,
    problem: *mut *mut c_char,
) -> i32 {
    guard(|| {
        // SAFETY: the caller says so of its pointers; see the module.
        unsafe {
            clear(problem)?;
            // Outside the lock: reading takes longer than a decision.
            let setup = or_problem(text(config, length).and_then(App::read), problem)?;
            let told = registry::with(app, |app| Ok(app.reload(now_ns, setup)))?;
            or_problem(told, problem)
        }
    })
}

/// Closes an application.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_close(app: u64) -> i32 {
    guard(|| registry::remove(app).map(|_app| 0))
}

/// A request arrives.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_arrive(
    app: u64,
    now_ns: u64,
    request: *const Request,
    decision: *mut Decision,
) -> i32 {
    // SAFETY: the caller says so of its pointers; see the module.
    unsafe { tidegate_arrive_many(app, now_ns, request, 1, decision) }
}

/// Requests arrive.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_arrive_many(
    app: u64,
    now_ns: u64,
    requests: *const Request,
    count: usize,
    decisions: *mut Decision,
) -> i32 {
    guard(|| {
        check_many(requests, count)?;
        check_many(decisions.cast_const(), count)?;
        registry::with(app, |app| {
            for at in 0..count {
                // SAFETY: `at` is within what the caller says is there.
                app.check(&unsafe { requests.add(at).read() })?;
            }
            for at in 0..count {
                // SAFETY: as before. It is read before the decision is written, which may lie in the same place.
                let request = unsafe { requests.add(at).read() };
                let decision = app.arrive(now_ns, app.check(&request)?, request.user);
                // SAFETY: `at` is within what the caller says is there.
                unsafe { decisions.add(at).write(decision) };
            }
            Ok(app.follow())
        })
    })
}

/// An admitted request ended.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_complete(app: u64, now_ns: u64, end: *const End) -> i32 {
    // SAFETY: the caller says so of its pointers; see the module.
    unsafe { tidegate_complete_many(app, now_ns, end, 1) }
}

/// Admitted requests ended.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_complete_many(app: u64, now_ns: u64, ends: *const End, count: usize) -> i32 {
    guard(|| {
        check_many(ends, count)?;
        registry::with(app, |app| {
            let mut wrong = None;
            for at in 0..count {
                // SAFETY: `at` is within what the caller says is there.
                let end = unsafe { ends.add(at).read() };
                wrong = wrong.or(app.complete(now_ns, &end).err());
            }
            let next = app.follow();
            wrong.map_or(Ok(next), Err)
        })
    })
}

/// The answer to an admitted request began.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_first_byte(app: u64, now_ns: u64, ticket: u64) -> i32 {
    guard(|| registry::with(app, |app| app.first_byte(now_ns, ticket).map(|()| app.follow())))
}

/// Nobody wants the answer, and nobody works on it.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_cancel(app: u64, now_ns: u64, ticket: u64) -> i32 {
    guard(|| registry::with(app, |app| app.cancel(now_ns, ticket).map(|()| app.follow())))
}

/// Nobody wants the answer, and somebody works on it.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_abandon(app: u64, now_ns: u64, ticket: u64, by: u32, is_watched: i32) -> i32 {
    guard(|| registry::with(app, |app| app.abandon(now_ns, ticket, by, is_watched != 0).map(|()| app.follow())))
}

/// Decisions about requests that waited.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_poll(app: u64, decisions: *mut Decision, most: usize) -> i32 {
    guard(|| {
        check_many(decisions.cast_const(), most)?;
        registry::with(app, |app| {
            let most = most.min(i32::MAX as usize);
            let mut count = 0;
            while count < most
                && let Some(decision) = app.poll()
            {
                // SAFETY: `count` is within what the caller says is there.
                unsafe { decisions.add(count).write(decision) };
                count += 1;
            }
            Ok(count as i32)
        })
    })
}

/// Does what is due.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_tick(app: u64, now_ns: u64, next_ns: *mut u64) -> i32 {
    guard(|| {
        check(next_ns)?;
        let (next, flags) = registry::with(app, |app| Ok((app.tick(now_ns), app.follow())))?;
        // SAFETY: the caller says so of its pointers; see the module.
        unsafe { write(next_ns, next) }?;
        Ok(flags)
    })
}

/// A server came up, went down, or drains.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_server(app: u64, now_ns: u64, server: u16, state: u32) -> i32 {
    guard(|| registry::with(app, |app| app.set_server(now_ns, server, state).map(|()| app.follow())))
}

/// Turns shadow mode on or off.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_shadow(app: u64, now_ns: u64, on: i32) -> i32 {
    guard(|| {
        registry::with(app, |app| {
            app.set_shadow(now_ns, on != 0);
            Ok(app.follow())
        })
    })
}

/// The number of a class.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_class_named(app: u64, name: *const c_char, length: usize) -> i32 {
    // SAFETY: the caller says so of its pointers; see the module.
    unsafe { named(app, name, length, App::class_named) }
}

/// The number of a request type.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_type_named(app: u64, name: *const c_char, length: usize) -> i32 {
    // SAFETY: the caller says so of its pointers; see the module.
    unsafe { named(app, name, length, App::type_named) }
}

/// The number of a server.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_server_named(app: u64, name: *const c_char, length: usize) -> i32 {
    // SAFETY: the caller says so of its pointers; see the module.
    unsafe { named(app, name, length, App::server_named) }
}

/// What became of a class's requests.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_count(app: u64, now_ns: u64, class: u8, counts: *mut Counts) -> i32 {
    guard(|| {
        check(counts)?;
        let told = registry::with(app, |app| app.counts(now_ns, class))?;
        // SAFETY: the caller says so of its pointers; see the module.
        unsafe { write(counts, told) }.map(|()| 0)
    })
}

/// Everything there is to see, as JSON.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_snapshot(app: u64, now_ns: u64, json: *mut *mut c_char) -> i32 {
    guard(|| {
        check(json)?;
        let snapshot = registry::with(app, |app| Ok(app.snapshot(now_ns)))?;
        // Outside the lock: it takes longer than a decision.
        let text = serde_json::to_string(&snapshot).map_err(|_| Failure::Broken)?;
        // SAFETY: the caller says so of its pointers; see the module.
        unsafe { write(json, given(text)) }.map(|()| 0)
    })
}

/// What a refused client is told.
///
/// # Safety
/// As the module says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_say(app: u64, decision: *const Decision, form: u32, said: *mut *mut c_char) -> i32 {
    guard(|| {
        check(decision.cast_mut())?;
        check(said)?;
        // SAFETY: the caller says so of its pointers; see the module.
        let decision = unsafe { decision.read() };
        let text = registry::with(app, |app| app.say(&decision, form))?;
        // SAFETY: as before.
        unsafe { write(said, given(text)) }.map(|()| 0)
    })
}

/// A reason's name.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_reason(reason: u32) -> *const c_char {
    say::words(reason).map_or(c"", |words| &words.name).as_ptr()
}

/// A reason in a sentence.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_reason_text(reason: u32) -> *const c_char {
    say::words(reason).map_or(c"", |words| &words.explanation).as_ptr()
}

/// Frees a text.
///
/// # Safety
/// `text` is null, or a function of this library gave it and it was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: `given` made it, and the caller says that it is freed once.
        drop(unsafe { CString::from_raw(text) });
    }
}

fn check<T>(pointer: *mut T) -> Result<(), Failure> {
    let is_good = !pointer.is_null() && pointer.is_aligned();
    is_good.then_some(()).ok_or(Failure::Argument)
}

/// As [`check`] for a list; an empty one may be anywhere.
fn check_many<T>(pointer: *const T, count: usize) -> Result<(), Failure> {
    let is_too_long = count > isize::MAX as usize / size_of::<T>().max(1);
    match count {
        0 => Ok(()),
        _ if is_too_long => Err(Failure::Argument),
        _ => check(pointer.cast_mut()),
    }
}

/// Writes through a pointer that is good.
///
/// # Safety
/// Where it is neither null nor badly aligned, it can be written through.
unsafe fn write<T>(pointer: *mut T, value: T) -> Result<(), Failure> {
    check(pointer)?;
    // SAFETY: the caller says so.
    unsafe { pointer.write(value) };
    Ok(())
}

/// A caller's text.
///
/// # Safety
/// `length` bytes can be read from `bytes`, unless that is null, and nobody writes there while the text is used.
unsafe fn text<'a>(bytes: *const c_char, length: usize) -> Result<&'a str, String> {
    let told = "configuration: the text is null or too long; give a pointer to it and its length in bytes";
    if length == 0 {
        return Ok("");
    }
    if bytes.is_null() || length > isize::MAX as usize {
        return Err(told.to_owned());
    }
    // SAFETY: the caller says so.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    std::str::from_utf8(bytes).map_err(|_| "configuration: is not UTF-8 text; a configuration is TOML".to_owned())
}

/// Says that there is no problem yet, if the caller wants to know.
///
/// # Safety
/// `problem` can be written through, unless it is null or badly aligned.
unsafe fn clear(problem: *mut *mut c_char) -> Result<(), Failure> {
    // SAFETY: the caller says so.
    if problem.is_null() { Ok(()) } else { unsafe { write(problem, std::ptr::null_mut()) } }
}

/// Passes a problem with a configuration on, if the caller wants to know it.
///
/// # Safety
/// [`clear`] took `problem`.
unsafe fn or_problem<T>(told: Result<T, String>, problem: *mut *mut c_char) -> Result<T, Failure> {
    told.map_err(|text| {
        if !problem.is_null() {
            // SAFETY: the caller says so.
            unsafe { problem.write(given(text)) };
        }
        Failure::Config
    })
}

/// Looks a name up.
///
/// # Safety
/// As of [`text`].
unsafe fn named(app: u64, name: *const c_char, length: usize, find: impl Fn(&App, &str) -> Option<usize>) -> i32 {
    guard(|| {
        // SAFETY: the caller says so.
        let name = unsafe { text(name, length) }.map_err(|_| Failure::Argument)?;
        let at = registry::with(app, |app| find(app, name).ok_or(Failure::Argument))?;
        i32::try_from(at).map_err(|_| Failure::Argument)
    })
}

/// A text for the caller, who frees it with [`tidegate_free`].
fn given(text: String) -> *mut c_char {
    // A name in a configuration may hold a null character, at which C would take the text to end.
    CString::new(text.replace('\0', "?")).unwrap_or_default().into_raw()
}
