use std::io::{Cursor, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

const COUNTS: &str = "period,count\n1998-04-30 21:30:00,2\n1998-04-30 21:31:00,11\n1998-04-30 21:33:00,7\n";
const SIZES: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n\
                     2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:17:04.0319600,110,27\r\n";
const LOG: &str = "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a.gif?x=1 HTTP/1.0\" 200 2326\n\
    10.0.0.9 - - [10/Oct/2000:13:55:35 -0700] \"GET /say/\\\"hi\\\" HTTP/1.1\" 404 - \"http://a/\" \"Mozilla/4.08 [en]\"\n";

fn reader(bytes: &[u8], options: &TraceOptions) -> Result<TraceReader, TraceError> {
    TraceReader::new(Box::new(Cursor::new(bytes.to_vec())), "t", options)
}

fn entries(text: &str) -> Vec<Entry> {
    reader(text.as_bytes(), &TraceOptions::default()).unwrap().map(Result::unwrap).collect()
}

/// The first error, however far it is.
fn error(bytes: &[u8], options: &TraceOptions) -> String {
    match reader(bytes, options) {
        Err(error) => error.to_string(),
        Ok(reader) => reader.filter_map(Result::err).next().map_or_else(String::new, |error| error.to_string()),
    }
}

fn play(text: &str, options: PlaybackOptions) -> Vec<Timed> {
    let reader = reader(text.as_bytes(), &TraceOptions::default()).unwrap();
    Playback::new(reader, options).map(Result::unwrap).collect()
}

fn zipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn counts() {
    let found = entries(COUNTS);
    assert_eq!(found.len(), 3);
    assert_eq!((found[1].what.clone(), found[1].line), (What::Count(11), 3));
    assert_eq!(found[1].at.since(found[0].at), Duration::from_secs(60));
}

#[test]
fn requests_with_sizes() {
    let read = reader(SIZES.as_bytes(), &TraceOptions::default()).unwrap();
    assert_eq!((read.shape(), read.columns().join(" ")), (Shape::Requests, "ContextTokens GeneratedTokens".to_owned()));
    let found: Vec<Entry> = read.map(Result::unwrap).collect();
    assert_eq!(found[0].at.to_string(), "2023-11-16 18:17:03.97996");
    let What::Request(traced) = &found[2].what else { panic!("no request: {found:?}") };
    assert_eq!(traced.sizes.as_slice(), [110.0, 27.0]);
}

#[test]
fn a_column_that_names_the_class_and_times_in_milliseconds() {
    let options = TraceOptions { class_column: Some("tier".to_owned()), time_unit: 1e-3, ..TraceOptions::default() };
    let text = "ms,tier,bytes\n500,\"gold, old\",3\n1500,rest,4\n";
    let found: Vec<Entry> = reader(text.as_bytes(), &options).unwrap().map(Result::unwrap).collect();
    let What::Request(traced) = &found[0].what else { panic!("no request: {found:?}") };
    assert_eq!((traced.label.as_deref(), traced.sizes.as_slice()), (Some("gold, old"), &[3.0][..]));
    assert_eq!(found[1].at.since(found[0].at), Duration::from_secs(1));
    let unknown = TraceOptions { class_column: Some("tyre".to_owned()), ..options };
    assert!(error(text.as_bytes(), &unknown).contains("no column \"tyre\""), "{}", error(text.as_bytes(), &unknown));
}

#[test]
fn access_logs_are_put_in_order() {
    let found = entries(LOG);
    assert_eq!(found[0].at.to_string(), "2000-10-10 20:55:35");
    let What::Request(first) = &found[0].what else { panic!("no request: {found:?}") };
    let What::Request(second) = &found[1].what else { panic!("no request: {found:?}") };
    assert_eq!((first.label.as_deref(), first.sizes.as_slice()), (Some("/say/\\\"hi\\\""), &[0.0][..]));
    assert_eq!((second.label.as_deref(), second.sizes.as_slice()), (Some("/a.gif"), &[2326.0][..]));
}

#[test]
fn gzip_is_read_as_plain_text_is() {
    for text in [COUNTS, SIZES, LOG] {
        let read = reader(&zipped(text), &TraceOptions::default()).unwrap();
        assert_eq!(read.map(Result::unwrap).collect::<Vec<_>>(), entries(text));
    }
    let two = [zipped("time,count\n0,5\n"), zipped("60,7\n")].concat();
    assert_eq!(reader(&two, &TraceOptions::default()).unwrap().count(), 2);
}

#[test]
fn errors_say_file_line_and_reason() {
    for (text, said) in [
        ("", "t: there is no request in it"),
        ("time,count\n", "t: there is no request in it"),
        ("time,count\n0,1\n60,-4\n", "t:3: \"-4\" is no count; write a whole number, 0 or more"),
        ("time,count\n0,1\n60,2.5\n", "t:3: \"2.5\" is no count"),
        ("time,count\n0,1\nsoon,2\n", "t:3: \"soon\" is no time"),
        ("time,count\n0,1\n60,2,3\n", "t:3: 3 columns where 2 were expected"),
        ("time,count\n60,1\n0,2\n", "t:3: 0 s comes after 60 s: lines must be in order of time"),
        ("time,count\n60,1\n60,2\n", "t:3: 60 s is there twice"),
        ("time,size\n60,1\n0,2\n", "t:3: 0 s comes after 60 s: lines must be in order of time; sort the file"),
        ("time,size\n1,-2\n", "t:2: size = \"-2\" is no size"),
        ("time,size\n1,NaN\n", "t:2: size = \"NaN\" is no size"),
        ("1,2\n2,3\n", "t:1: there is no header that tells whether the second column is a count or a size"),
    ] {
        let found = error(text.as_bytes(), &TraceOptions::default());
        assert!(found.starts_with(said), "{text:?}: {found}");
    }
    let log = TraceOptions { shape: Some(Shape::AccessLog), ..TraceOptions::default() };
    for (line, said) in [
        ("hello", "t:1: not a line of an access log: there is no [time]"),
        (
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 20 1",
            "t:1: not a line of an access log: there is no status",
        ),
        (
            "h - - [10/Oct/2000:13:55:36] \"GET / HTTP/1.0",
            "t:1: not a line of an access log: the request's closing quote",
        ),
        ("h - - [yesterday] \"GET / HTTP/1.0\" 200 1", "t:1: \"yesterday\" is no time"),
    ] {
        assert!(error(line.as_bytes(), &log).starts_with(said), "{}", error(line.as_bytes(), &log));
    }
}

#[test]
fn truncated_and_damaged_gzip() {
    let text: String = (0..5000).map(|at| format!("{at},{}\n", at * 7919 % 1000)).collect();
    let whole = zipped(&format!("time,count\n{text}"));
    assert!(error(&whole[..whole.len() / 2], &TraceOptions::default()).contains("file is truncated"));
    assert!(error(&whole[..whole.len() - 3], &TraceOptions::default()).contains("file is truncated"));
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(0xaa);
    let lenient = TraceOptions { lenient: true, ..TraceOptions::default() };
    assert!(error(&damaged, &lenient).contains("damaged"), "{}", error(&damaged, &lenient));
}

#[test]
fn a_lenient_reader_counts_what_it_leaves_out() {
    let long = "x".repeat(100_000);
    let text = format!("time,count\n0,1\noops\n60,-1\n{long}\n60,5\n0,2\n60,9\n120,3\n");
    assert!(error(text.as_bytes(), &TraceOptions::default()).starts_with("t:3:"));
    let lenient = TraceOptions { lenient: true, ..TraceOptions::default() };
    let mut read = reader(text.as_bytes(), &lenient).unwrap();
    let counts: Vec<What> = read.by_ref().map(|entry| entry.unwrap().what).collect();
    assert_eq!(counts, [1, 5, 3].map(What::Count));
    assert_eq!(read.skipped(), 5);
    assert_eq!(error(b"time,count\na,b\n", &lenient), "t: there is no request in it, only 1 bad lines");
}

#[test]
fn evenly_spread_counts_are_the_counts() {
    let options = PlaybackOptions { spread: Spread::Even, ..PlaybackOptions::default() };
    let times: Vec<f64> = play(COUNTS, options).iter().map(|timed| timed.at.as_secs_f64()).collect();
    assert_eq!(times.len(), 20);
    let within = |from: f64, to: f64| times.iter().filter(|time| (from..to).contains(*time)).count();
    // The minute without a line had no request; 7 are in the one that begins at 3 min.
    assert_eq!((within(0.0, 60.0), within(60.0, 120.0), within(120.0, 180.0), within(180.0, 240.0)), (2, 11, 0, 7));
    let scaled = PlaybackOptions { rate: 10.0, speed: 60.0, ..options };
    let times: Vec<f64> = play(COUNTS, scaled).iter().map(|timed| timed.at.as_secs_f64()).collect();
    assert_eq!((times.len(), times.iter().filter(|time| (1.0..2.0).contains(*time)).count()), (200, 110));
}

#[test]
fn spread_as_poisson_the_counts_are_means() {
    let text: String = (0..2000).map(|at| format!("{},50\n", at * 10)).collect();
    let played = play(&format!("time,count\n{text}"), PlaybackOptions { rate: 0.5, ..PlaybackOptions::default() });
    let mut counts = vec![0.0f64; 2000];
    played.iter().for_each(|timed| counts[(timed.at.as_secs_f64() / 10.0) as usize] += 1.0);
    let mean = counts.iter().sum::<f64>() / 2000.0;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 2000.0;
    assert!((mean - 25.0).abs() < 0.5 && (variance / 25.0 - 1.0).abs() < 0.15, "{mean} {variance}");
}

#[test]
fn windows_and_scaled_requests() {
    let text: String = (0..10_000).map(|at| format!("{}.5,{at}\n", 100 + at)).collect();
    let text = format!("time,size\n{text}");
    let at = |seconds: i64| Some(Instant::from_nanos(seconds * 1_000_000_000));
    let window = Window { from: at(1100), to: at(3100) };
    let plain = PlaybackOptions { window, ..PlaybackOptions::default() };
    let same = play(&text, plain);
    assert_eq!(
        (same.len(), same[0].at, same[0].traced.sizes.as_slice()),
        (2000, Duration::from_millis(500), &[1000.0][..])
    );
    let fewer = play(&text, PlaybackOptions { rate: 0.25, ..plain });
    assert!((400..600).contains(&fewer.len()), "{}", fewer.len());
    let more = play(&text, PlaybackOptions { rate: 2.5, speed: 2.0, ..plain });
    assert!((4900..5100).contains(&more.len()), "{}", more.len());
    assert!(more.is_sorted_by_key(|timed| timed.at) && more.last().unwrap().at <= Duration::from_secs(1000));
    assert!(more.iter().all(|timed| timed.at.as_secs_f64() >= (timed.traced.sizes.as_slice()[0] - 1000.0) / 2.0));
    assert_eq!(more, play(&text, PlaybackOptions { rate: 2.5, speed: 2.0, ..plain }));
}

#[test]
fn a_scan_finds_the_peak() {
    let scan = |text: &str, window| {
        let read = reader(text.as_bytes(), &TraceOptions::default()).unwrap();
        let work = |traced: &Traced| traced.sizes.as_slice().first().map_or(0.5, |size| size / 1000.0);
        Scan::of(read, window, Duration::from_secs(10), None, work)
    };
    let counts = scan(COUNTS, Window::default()).unwrap();
    assert_eq!(
        (counts.requests, counts.bin, counts.duration()),
        (20, Duration::from_secs(60), Duration::from_secs(240))
    );
    assert_eq!((counts.peak_at.to_string().as_str(), counts.peak_rate), ("1998-04-30 21:31:00", 11.0 / 60.0));
    assert!((counts.peak_work - 5.5 / 60.0).abs() < 1e-12);
    let sizes = scan(SIZES, Window::default()).unwrap();
    assert_eq!((sizes.requests, sizes.peak_rate), (3, 0.3));
    assert!((sizes.peak_work - 0.8098).abs() < 1e-9);
    let nothing = scan(COUNTS, Window::day_of(counts.first.next_day())).unwrap_err();
    assert_eq!(nothing.flaw, Flaw::Empty(0));
}

#[test]
fn one_interval_has_no_length_and_overlapping_ones_have_two() {
    let first_error = |text: &str, interval| {
        let read = reader(text.as_bytes(), &TraceOptions::default()).unwrap();
        let mut played = Playback::new(read, PlaybackOptions { interval, ..PlaybackOptions::default() });
        played.find_map(Result::err).map(|error| error.to_string())
    };
    assert!(first_error("time,count\n0,9\n", None).unwrap().contains("state it"));
    assert_eq!(first_error("time,count\n0,9\n", Some(Duration::from_secs(5))), None);
    let overlap = first_error("time,count\n0,9\n60,9\n90,9\n", None).unwrap();
    assert!(
        overlap.starts_with("t:4: the interval of the line before lasts 60 s and is not over after 30 s"),
        "{overlap}"
    );
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), lenient: bool, zip: bool) {
        survive(&bytes, lenient, zip);
    }

    #[test]
    fn broken_traces_never_panic(which in 0usize..3, at in 0usize..300, with in prop::collection::vec(any::<u8>(), 0..6), lenient: bool, zip: bool) {
        let mut bytes = [COUNTS, SIZES, LOG][which].as_bytes().to_vec();
        let at = at.min(bytes.len());
        let end = (at + with.len()).min(bytes.len());
        bytes.splice(at..end, with);
        survive(&bytes, lenient, zip);
    }

    #[test]
    fn text_of_a_trace_s_letters_never_panics(text in "[0-9,:.\\-\\n \"\\[\\]/A-Zt]{0,200}", lenient: bool) {
        survive(text.as_bytes(), lenient, false);
    }
}

/// Reads the bytes in every way there is. A lenient reader meets no error of a single line.
fn survive(bytes: &[u8], lenient: bool, zip: bool) {
    let packed = if zip { [&[0x1f, 0x8b, 8, 0], bytes].concat() } else { bytes.to_vec() };
    for shape in [None, Some(Shape::Counts), Some(Shape::Requests), Some(Shape::AccessLog)] {
        let options = TraceOptions { shape, lenient, ..TraceOptions::default() };
        let Ok(read) = reader(&packed, &options) else { continue };
        for entry in read {
            assert!(!lenient || entry.as_ref().err().is_none_or(|error| !error.flaw.is_of_one_line()), "{entry:?}");
        }
        let Ok(read) = reader(&packed, &options) else { continue };
        let options = PlaybackOptions { rate: 1.5, ..PlaybackOptions::default() };
        let times: Vec<Duration> =
            Playback::new(read, options).take(500).map_while(|timed| Some(timed.ok()?.at)).collect();
        assert!(times.is_sorted());
    }
}
