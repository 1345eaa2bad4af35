//! Giving back the memory that starting took and running does not need: a nucleus is part of a program that can do much
//! more, most of whose code it runs once, if at all.

use std::fs;

/// Gives the program's own code back to the page cache: pages that are needed again come back by themselves, as they
/// did at first. What cannot be given back stays.
#[expect(unsafe_code, reason = "`madvise` of what is mapped already")]
pub(crate) fn give_code_back() {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for (from, to) in maps.lines().filter_map(code) {
        // SAFETY: the range is a mapping of this process as the kernel itself says, from a file and not writable, so it
        // holds nothing but what is in the file; dropping its pages changes no content.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_DONTNEED) };
    }
}

/// The range of a mapping of code from a file, which nothing can have written to.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let file = fields.nth(3)?;
    let (from, to) = range.split_once('-')?;
    let is_code = permissions == "r-xp" && file.starts_with('/');
    let range = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    (is_code && range.0 < range.1).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_meant() {
        let line = "55d0-56d0 r-xp 00000000 fe:00 123   /usr/bin/tidegate";
        assert_eq!(code(line), Some((0x55d0, 0x56d0)));
        for other in [
            "55d0-56d0 rw-p 00000000 fe:00 123   /usr/bin/tidegate",
            "55d0-56d0 r--p 00000000 fe:00 123   /usr/bin/tidegate",
            "55d0-56d0 r-xp 00000000 00:00 0   [vdso]",
            "55d0-56d0 r-xp 00000000 00:00 0",
            "nonsense",
            "",
        ] {
            assert_eq!(code(other), None, "{other}");
        }
    }

    #[test]
    fn the_program_goes_on_without_its_pages() {
        give_code_back();
        assert!(fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.lines().any(|line| code(line).is_some())));
    }
}
