//! The dashboard's files, as they were when the program was built, and the headers that keep pages in their place.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use axum::routing::get;

/// Only our own scripts and styles run, nothing is loaded from elsewhere, and no text becomes markup (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($($path:literal $kind:expr => $file:literal,)*) => {
        /// Path, media type, content.
        const FILES: &[(&str, &str, &[u8])] =
            &[$(($path, $kind, include_bytes!(concat!("../../../../dashboard/", $file))),)*];
    };
}

files! {
    "/" "text/html; charset=utf-8" => "index.html",
    "/dashboard/style.css" STYLE => "style.css",
    "/dashboard/icon.svg" "image/svg+xml" => "icon.svg",
    "/dashboard/main.js" SCRIPT => "main.js",
    "/dashboard/actions.js" SCRIPT => "actions.js",
    "/dashboard/charts.js" SCRIPT => "charts.js",
    "/dashboard/dom.js" SCRIPT => "dom.js",
    "/dashboard/events.js" SCRIPT => "events.js",
    "/dashboard/feed.js" SCRIPT => "feed.js",
    "/dashboard/format.js" SCRIPT => "format.js",
    "/dashboard/store.js" SCRIPT => "store.js",
    "/dashboard/summary.js" SCRIPT => "summary.js",
    "/dashboard/tables.js" SCRIPT => "tables.js",
    "/dashboard/vendor/uPlot.iife.min.js" SCRIPT => "vendor/uPlot.iife.min.js",
    "/dashboard/vendor/uPlot.min.css" STYLE => "vendor/uPlot.min.css",
    "/dashboard/vendor/uPlot.LICENSE" "text/plain; charset=utf-8" => "vendor/uPlot.LICENSE",
}

/// The dashboard. Its files hold no secrets, so that a page can ask for the token.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], content) }))
    })
}

/// Adds the headers that every answer carries.
pub(super) async fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // A new version of the program must not meet the old one's scripts.
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        let size: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(size < 300_000, "{size} bytes");
        for (path, _, content) in FILES.iter().filter(|(path, ..)| !path.contains("/vendor/")) {
            let text = std::str::from_utf8(content).expect("text");
            // An XML name space is a name and not fetched.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for elsewhere in ["http://", "https://", "src=\"//", "innerHTML", "eval("] {
                assert!(!text.contains(elsewhere), "{path} contains {elsewhere}");
            }
        }
    }

    #[test]
    fn every_file_that_the_dashboard_asks_for_is_served() {
        let names: Vec<&str> = FILES.iter().map(|(path, ..)| *path).collect();
        for (path, _, content) in FILES.iter().filter(|(path, ..)| !path.contains("/vendor/")) {
            let text = std::str::from_utf8(content).expect("text");
            for quoted in text.split('"').skip(1).step_by(2) {
                if let Some(file) = quoted.strip_prefix("./").filter(|file| file.ends_with(".js")) {
                    assert!(names.contains(&format!("/dashboard/{file}").as_str()), "{path} imports {quoted}");
                }
                if quoted.starts_with("/dashboard/") {
                    assert!(names.contains(&quoted), "{path} asks for {quoted}");
                }
            }
        }
    }
}
