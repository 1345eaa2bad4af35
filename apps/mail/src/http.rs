//! HTTP: which page is where, what a request brings along, and how answers and troubles look.

mod listen;
mod respond;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::pages;
use crate::request::{Call, Request, Trouble};
use crate::service::Service;

pub use listen::{Limits, listen, serve};
use respond::{answer, html, trouble};

/// The service's pages.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/login", get(sign_in_page).post(sign_in))
        .route("/logout", post(sign_out))
        .route("/folders", get(folders))
        .route("/folder/{id}", get(folder))
        .route("/message/{id}", get(message))
        .route("/message/{id}/delete", post(delete))
        .route("/message/{id}/refile", post(refile))
        .route("/search", get(search))
        .route("/render/{name}", get(render))
        .route("/static/{name}", get(file))
        .route("/stages", get(stages))
        .route("/api/stages", get(api_stages))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || trouble(&Trouble::Missing("page")))
        .method_not_allowed_fallback(async || {
            let text = "This page is asked for in another way.";
            html(StatusCode::METHOD_NOT_ALLOWED, pages::trouble("Not like this", text, ""))
        })
        .layer(DefaultBodyLimit::max(64 * 1024))
        .with_state(service)
}

type Shared = State<Arc<Service>>;

async fn home(headers: HeaderMap) -> Response {
    if token(&headers).is_some() { Redirect::to("/folders").into_response() } else { sign_in_page().await }
}

async fn sign_in_page() -> Response {
    html(StatusCode::OK, pages::sign_in(None))
}

#[derive(Deserialize)]
struct SignIn {
    #[serde(default)]
    name: String,
}

async fn sign_in(service: Shared, headers: HeaderMap, form: FormOf<SignIn>) -> Response {
    run(&service, &headers, form.map(|Form(form)| Call::SignIn { name: form.name.trim().to_owned() }).map_err(bad))
        .await
}

async fn sign_out(service: Shared, headers: HeaderMap) -> Response {
    run(&service, &headers, Ok(Call::SignOut)).await
}

#[derive(Deserialize)]
struct Notice {
    #[serde(default)]
    done: String,
    #[serde(default)]
    message: i64,
}

async fn folders(service: Shared, headers: HeaderMap, notice: QueryOf<Notice>) -> Response {
    match (serve_one(&service, &headers, Ok(Call::Folders)).await, notice) {
        (Ok(mut served), Ok(Query(notice))) => {
            if let crate::request::Answer::Page(page) = &mut served.answer {
                *page = pages::with_notice(page, &notice.done, notice.message);
            }
            answer(served)
        }
        (served, _) => served.map_or_else(|error| trouble(&error), answer),
    }
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    first: i64,
    count: Option<i64>,
    show: Option<String>,
}

async fn folder(service: Shared, headers: HeaderMap, id: Path<String>, part: QueryOf<Part>) -> Response {
    let call = || {
        let Query(part) = part.map_err(bad)?;
        let all = part.show.is_some_and(|show| show == "all");
        let count = (!all).then(|| part.count.unwrap_or(pages::PER_PAGE));
        Ok(Call::Messages { folder: number(&id, "folder")?, first: part.first.max(0), count })
    };
    run(&service, &headers, call()).await
}

async fn message(service: Shared, headers: HeaderMap, id: Path<String>) -> Response {
    run(&service, &headers, number(&id, "message").map(|id| Call::Message { id })).await
}

async fn delete(service: Shared, headers: HeaderMap, id: Path<String>) -> Response {
    run(&service, &headers, number(&id, "message").map(|id| Call::Delete { id })).await
}

#[derive(Deserialize)]
struct Refile {
    #[serde(default)]
    folder: String,
}

async fn refile(service: Shared, headers: HeaderMap, id: Path<String>, form: FormOf<Refile>) -> Response {
    let call = || {
        let Form(form) = form.map_err(bad)?;
        Ok(Call::Refile { id: number(&id, "message")?, folder: number(&form.folder, "folder")? })
    };
    run(&service, &headers, call()).await
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
    #[serde(default)]
    folder: String,
}

async fn search(service: Shared, headers: HeaderMap, search: QueryOf<Search>) -> Response {
    let call = || {
        let Query(search) = search.map_err(bad)?;
        let words = search.q.trim().to_owned();
        if words.is_empty() {
            return Err(Trouble::Bad("there is no word to search for".to_owned()));
        }
        Ok(Call::Search { folder: number(&search.folder, "folder")?, words })
    };
    run(&service, &headers, call()).await
}

async fn render(service: Shared, headers: HeaderMap, name: Path<String>) -> Response {
    let name = name.strip_suffix(".png").unwrap_or(&name).to_owned();
    run(&service, &headers, Ok(Call::Render { name })).await
}

async fn file(service: Shared, headers: HeaderMap, name: Path<String>) -> Response {
    run(&service, &headers, Ok(Call::Static { name: name.0 })).await
}

async fn stages(service: Shared) -> Response {
    html(StatusCode::OK, pages::stages(&service.drawing(), &service.table()))
}

async fn api_stages(service: Shared) -> Response {
    axum::Json(service.state()).into_response()
}

async fn metrics(service: Shared) -> Response {
    ([(header::CONTENT_TYPE, tidegate_stage::METRICS_CONTENT_TYPE)], service.metrics()).into_response()
}

type FormOf<T> = Result<Form<T>, axum::extract::rejection::FormRejection>;
type QueryOf<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

async fn run(service: &Service, headers: &HeaderMap, call: Result<Call, Trouble>) -> Response {
    serve_one(service, headers, call).await.map_or_else(|error| trouble(&error), answer)
}

async fn serve_one(
    service: &Service,
    headers: &HeaderMap,
    call: Result<Call, Trouble>,
) -> Result<crate::work::Served, Trouble> {
    let token = token(headers);
    let class = service.classes().of(headers, token.as_deref());
    let deadline = Instant::now() + service.timeout();
    service.serve(Request { call: call?, token, class, quality: quality(headers), deadline }).await
}

fn bad(error: impl ToString) -> Trouble {
    Trouble::Bad(error.to_string())
}

fn number(text: &str, what: &'static str) -> Result<i64, Trouble> {
    text.parse().map_err(|_| Trouble::Missing(what))
}

/// The session's token out of the cookies.
fn token(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == SESSION && !value.is_empty()).map(|(_, value)| value.to_owned())
}

/// How good the answer should be, as the sentry asks for it; anything else is best.
fn quality(headers: &HeaderMap) -> f64 {
    let asked = headers.get(QUALITY).and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    asked.filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or(1.0)
}

/// The cookie.
const SESSION: &str = "session";

/// How good an answer should be, and how good it is.
const QUALITY: &str = "tidegate-quality";

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        assert_eq!(token(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("theme=dark; session="));
        assert_eq!(token(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; session=1-abc; c=d"));
        assert_eq!(token(&headers).as_deref(), Some("1-abc"));
    }

    #[test]
    fn a_quality_that_is_none_is_the_best() {
        for (text, wanted) in [("0.25", 0.25), ("1", 1.0), ("7", 1.0), ("-1", 1.0), ("NaN", 1.0), ("x", 1.0)] {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static(QUALITY), HeaderValue::from_static(text))]);
            assert_eq!(quality(&headers), wanted, "{text}");
        }
    }
}
