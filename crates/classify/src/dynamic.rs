//! Whether an answer is made for the request, or lies ready in a file: by what the request looks like.

use super::RequestView;

/// Ends of file names behind which a program stands.
const PROGRAMS: [&[u8]; 11] =
    [b".cgi", b".pl", b".py", b".rb", b".php", b".asp", b".aspx", b".jsp", b".do", b".fcgi", b".shtml"];
/// Directories of programs.
const DIRECTORIES: [&[u8]; 2] = [b"/cgi-bin/", b"/fcgi-bin/"];

/// Dynamic is what asks for more than to read (`POST`), what has a query, what lies in a directory of programs, and
/// what has a program's name. `path` is the normal form, without the query; `None`: one that has none.
pub(super) fn is_dynamic(path: Option<&[u8]>, view: &impl RequestView) -> bool {
    let reads = matches!(view.method(), "GET" | "HEAD");
    !reads || view.path().contains('?') || path.is_none_or(names_program)
}

fn names_program(path: &[u8]) -> bool {
    // What follows a program's name in the path is its argument.
    let segments = || path.split(|byte| *byte == b'/');
    let in_directory = DIRECTORIES.iter().any(|directory| path.starts_with(directory));
    in_directory || segments().any(|segment| PROGRAMS.iter().any(|end| segment.len() > end.len() && ends(segment, end)))
}

fn ends(segment: &[u8], end: &[u8]) -> bool {
    segment[segment.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_name_or_place() {
        for path in ["/cgi-bin/search", "/a/b.php", "/a/B.PHP/more", "/x.cgi"] {
            assert!(names_program(path.as_bytes()), "{path}");
        }
        for path in ["/", "/index.html", "/php", "/.php", "/a.phpx", "/images/cgi-bin.png"] {
            assert!(!names_program(path.as_bytes()), "{path}");
        }
    }
}
