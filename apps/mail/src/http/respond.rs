//! How answers and troubles look on the wire.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::{QUALITY, SESSION};
use crate::database::DatabaseError;
use crate::mailbox::SESSION_LASTS;
use crate::pages;
use crate::request::{Answer, Trouble};
use crate::work::Served;

/// What a request got.
pub(super) fn answer(served: Served) -> Response {
    let Served { answer, quality } = served;
    let mut response = match answer {
        Answer::Page(page) => html(StatusCode::OK, page),
        Answer::Bytes { media, bytes } => {
            let mut response = Response::new(Body::from(bytes));
            set(&mut response, header::CONTENT_TYPE, media);
            // A cheaper answer is better asked for again.
            set(&mut response, header::CACHE_CONTROL, if quality < 1.0 { "no-store" } else { "max-age=3600" });
            response
        }
        Answer::SignedIn { token } => with_cookie(&token, SESSION_LASTS.as_secs(), "/folders"),
        Answer::SignedOut => with_cookie("", 0, "/"),
        Answer::Done { see } => see_other(&see),
    };
    if quality < 1.0 {
        set(&mut response, HeaderName::from_static(QUALITY), &format!("{quality:.2}"));
    }
    response
}

/// Why it got nothing, as a page that says what to do.
pub(super) fn trouble(trouble: &Trouble) -> Response {
    let text = sentence(&trouble.to_string());
    let page = |title, hint: &str| pages::trouble(title, &text, hint);
    match trouble {
        Trouble::Busy { stage, reason, retry_after, .. } => {
            let seconds = whole_seconds(*retry_after);
            let hint = format!("Please try again in {seconds} s. Nothing was changed.");
            let mut response = html(StatusCode::SERVICE_UNAVAILABLE, page("Please try again soon", &hint));
            set(&mut response, header::RETRY_AFTER, &seconds.to_string());
            set(&mut response, STAGE, &format!("{stage}; reason={reason}"));
            response
        }
        Trouble::SignedOut => html(StatusCode::UNAUTHORIZED, pages::sign_in(Some("Please sign in first."))),
        Trouble::NoSuchAccount(_) => html(StatusCode::UNAUTHORIZED, pages::sign_in(Some(&text))),
        Trouble::Missing(_) => html(StatusCode::NOT_FOUND, page("Not found", "It may have been moved or deleted.")),
        Trouble::Bad(_) => html(StatusCode::BAD_REQUEST, page("That cannot be read", "")),
        Trouble::Database(error @ DatabaseError::Unreachable(_)) => {
            let hint = "Please try again in a moment. What was being changed just now may or may not have happened.";
            let mut response = html(StatusCode::SERVICE_UNAVAILABLE, page("The mail cannot be reached", hint));
            set(&mut response, header::RETRY_AFTER, "1");
            set(&mut response, STAGE, "database; reason=unreachable");
            eprintln!("warning: {error}");
            response
        }
        Trouble::Database(DatabaseError::TimedOut(_)) => {
            let hint = "Please try again. What was being changed just now may or may not have happened.";
            let mut response = html(StatusCode::GATEWAY_TIMEOUT, page("That took too long", hint));
            set(&mut response, STAGE, "database; reason=timed-out");
            response
        }
        Trouble::Database(DatabaseError::Refused { .. }) | Trouble::Failed(_) => {
            eprintln!("error: {trouble}");
            let text = "Something in the service failed; its log says what.";
            html(StatusCode::INTERNAL_SERVER_ERROR, pages::trouble("That went wrong", text, ""))
        }
    }
}

/// A page.
pub(super) fn html(status: StatusCode, page: String) -> Response {
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(&mut response, header::CACHE_CONTROL, "no-store");
    set(&mut response, header::CONTENT_SECURITY_POLICY, "default-src 'self'; style-src 'self' 'unsafe-inline'");
    response
}

fn see_other(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    set(&mut response, header::LOCATION, path);
    response
}

fn with_cookie(token: &str, seconds: u64, see: &str) -> Response {
    let mut response = see_other(see);
    let cookie = format!("{SESSION}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax");
    set(&mut response, header::SET_COOKIE, &cookie);
    response
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    // Of our own making, so always allowed; an exotic one is better left out than a panic.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Whole seconds, rounded up, never "at once".
fn whole_seconds(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let start = chars.next().map(char::to_uppercase);
    let mut sentence: String = start.into_iter().flatten().chain(chars).collect();
    sentence.push('.');
    sentence
}

/// The stage that refused, and why.
const STAGE: HeaderName = HeaderName::from_static("tidegate-stage");
