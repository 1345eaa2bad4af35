//! The screen of `tidegate top`, drawn from its state.

use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};

use super::state::{Application, Class, Server, State};
use super::trail::{Rates, Trail};

/// What is told of a class.
const COLUMNS: [&str; 9] = ["offered", "admitted", "refused", "goodput", "in flight", "waiting", "p50", "p95", "p99"];

/// What is told of a class where there is little room, so that its name has some.
const NARROW: &[&str] = &["offered", "admitted", "refused", "goodput", "p95"];

/// From so many columns on everything has room.
const WIDE: u16 = 105;

/// What is drawn.
pub(super) struct View<'a> {
    pub trail: &'a Trail,
    /// Index of the application that is shown.
    pub chosen: usize,
    /// Why the last look failed: the figures are old.
    pub problem: Option<&'a str>,
    /// The picture is held.
    pub held: bool,
}

impl View<'_> {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let Some(state) = self.trail.last() else { return };
        let Some(app) = state.applications.get(self.chosen).or(state.applications.first()) else {
            return frame.render_widget(Paragraph::new("The sentry has no application."), frame.area());
        };
        let rows = |count: usize, most: u16| u16::try_from(count).unwrap_or(most).min(most) + 3;
        let [head, figures, classes, lines, servers, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(5),
            Constraint::Length(rows(app.classes.len(), 12)),
            Constraint::Min(5),
            Constraint::Length(rows(app.servers.len(), 8)),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(state, app)), head);
        frame.render_widget(Paragraph::new(self.figures(app)).block(Block::bordered().title(" now ")), figures);
        self.classes(frame, classes, app);
        self.lines(frame, lines, app);
        servers_table(frame, servers, app);
        frame.render_widget(Paragraph::new(self.foot()).dim(), foot);
    }

    /// The picture as text, without trailing blanks.
    pub(super) fn text(&self, size: Size) -> String {
        let Ok(mut terminal) = Terminal::new(TestBackend::new(size.width, size.height));
        let Ok(_) = terminal.draw(|frame| self.draw(frame));
        let rows = terminal.backend().buffer().content().chunks(usize::from(size.width));
        let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// One sentence that says how things are, and where one looks.
    fn head(&self, state: &State, app: &Application) -> Vec<Line<'static>> {
        let (sign, colour, sentence) = sentence(app, self.trail.rates(&app.application, None));
        let draining = if state.draining { ", draining" } else { "" };
        let busy = state.cpus_busy.map_or(String::new(), |cpus| format!(", {cpus:.2} processors"));
        let where_ = format!("  tidegate {}, up {}{busy}{draining}", state.version, ago(state.uptime));
        vec![
            Line::from(vec![Span::from(app.application.clone()).bold(), Span::from(where_).dim()]),
            Line::from(format!("{sign} {sentence}")).style(Style::new().fg(colour).add_modifier(Modifier::BOLD)),
        ]
    }

    fn figures(&self, app: &Application) -> Vec<Line<'static>> {
        let rates = self.trail.rates(&app.application, None);
        let worst = worst(app).map_or("-".to_owned(), time);
        let refused = if rates.offered > 0.0 { rates.rejected / rates.offered } else { 0.0 };
        let would = if app.shadow { "would refuse" } else { "refused" };
        let policy = &app.policy;
        let active = if policy.active == policy.policy { String::new() } else { format!(" ({})", policy.active) };
        let mut control = format!("admission {}{active}, dispatch {}", policy.policy, app.dispatch);
        if let Some(limit) = policy.limit {
            control += &format!(", limit {limit:.0}");
        }
        if let Some((class, share)) = policy.threshold {
            let name = app.classes.get(class).map_or("?", |class| &class.name);
            control += &format!(", threshold: {:.0} % of {name}, nothing below", share * 100.0);
        }
        vec![
            Line::from(format!(
                "offered {}   admitted {}   {would} {} ({:.0} %)   goodput {}",
                rate(rates.offered),
                rate(rates.admitted),
                rate(rates.rejected),
                refused * 100.0,
                rate(rates.goodput)
            )),
            Line::from(format!(
                "{} {worst} of {}   in flight {}   waiting {}   capacity {:.1} processors",
                app.statistic,
                time(app.target),
                app.in_flight,
                app.waiting,
                app.processors
            )),
            Line::from(control),
        ]
    }

    fn classes(&self, frame: &mut Frame<'_>, area: Rect, app: &Application) {
        let shown = if area.width < WIDE { NARROW } else { &COLUMNS };
        let rows = app.classes.iter().map(|class| self.class_row(app, class, shown));
        let widths = [Constraint::Fill(1)].into_iter().chain(shown.iter().map(|_| Constraint::Length(9)));
        frame.render_widget(table(" classes, most important first ", "class", shown, rows, widths), area);
    }

    /// A class's figures, of the columns that are shown.
    fn class_row(&self, app: &Application, class: &Class, shown: &[&str]) -> Row<'static> {
        let rates = self.trail.rates(&app.application, Some(&class.name));
        let late = class.statistic.is_some_and(|statistic| statistic > app.target);
        let style = if late { Style::new().fg(Color::Red) } else { Style::new() };
        let times = [class.p50, class.p95, class.p99].map(|seconds| seconds.map_or("-".to_owned(), time));
        let cells = [rates.offered, rates.admitted, rates.rejected, rates.goodput].map(rate);
        let counts = [class.in_flight, class.waiting].map(|count| count.to_string());
        let all = COLUMNS.into_iter().zip(cells.into_iter().chain(counts).chain(times));
        row(&class.name, all.filter(|(column, _)| shown.contains(column)).map(|(_, text)| text)).style(style)
    }

    /// How it came to be: a line each, and why requests are refused.
    fn lines(&self, frame: &mut Frame<'_>, area: Rect, app: &Application) {
        let [charts, reasons] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(area);
        let history = self.trail.history(&app.application);
        let most = history.iter().map(|rates| rates.offered).fold(1.0, f64::max);
        let of = |what: fn(&Rates) -> f64| history.iter().map(|rates| what(rates).round() as u64).collect::<Vec<_>>();
        let parts: [_; 3] = Layout::vertical([Constraint::Fill(1); 3]).areas(charts);
        let offered = (" offered ", Color::Cyan, of(|rates| rates.offered));
        let refused = (" refused ", Color::Yellow, of(|rates| rates.rejected));
        let goodput = (" goodput ", Color::Green, of(|rates| rates.goodput));
        for (part, (title, colour, values)) in parts.into_iter().zip([offered, refused, goodput]) {
            // The newest are shown, in one scale.
            let shown = values.len().saturating_sub(usize::from(part.width.saturating_sub(1)));
            let title = format!("{title}(top of the line: {})", rate(most));
            let line = Sparkline::default().data(&values[shown..]).max(most.ceil() as u64).style(colour);
            frame.render_widget(line.block(Block::new().title(title)), part);
        }
        let reasons_of = self.trail.reasons(&app.application);
        let said = reasons_of.iter().map(|(reason, share)| Line::from(format!("{:>4.0} %  {reason}", share * 100.0)));
        let said: Vec<Line<'_>> =
            if reasons_of.is_empty() { vec![Line::from("no requests are refused")] } else { said.collect() };
        frame.render_widget(Paragraph::new(said).block(Block::bordered().title(" why refused ")), reasons);
    }

    fn foot(&self) -> String {
        let more = if self.trail.names().len() > 1 { "Tab other application   " } else { "" };
        match self.problem {
            Some(problem) => format!("figures are old: {problem}"),
            None if self.held => format!("held   {more}space go on   q quit"),
            None => format!("{more}space hold   q quit"),
        }
    }
}

/// A sign, a colour and a sentence: how things are.
fn sentence(app: &Application, rates: Rates) -> (&'static str, Color, String) {
    let up = app.servers.iter().filter(|server| server.status == "up").count();
    let share = if rates.offered > 0.0 { 100.0 * rates.rejected / rates.offered } else { 0.0 };
    let missed = worst(app).is_some_and(|worst| worst > app.target) && rates.admitted > 0.0;
    if up == 0 {
        ("✖", Color::Red, "no server is up".to_owned())
    } else if missed {
        ("✖", Color::Red, format!("the target of {} is missed", time(app.target)))
    } else if app.shadow {
        ("◐", Color::Magenta, format!("shadow mode: {share:.0} % would be refused, and nothing is"))
    } else if share >= 0.5 {
        ("▲", Color::Yellow, format!("{share:.0} % are refused so that the target holds"))
    } else {
        ("✓", Color::Green, "all is well".to_owned())
    }
}

/// The SLA's statistic of the class where it is worst.
fn worst(app: &Application) -> Option<f64> {
    app.classes.iter().filter_map(|class| class.statistic).reduce(f64::max)
}

fn servers_table(frame: &mut Frame<'_>, area: Rect, app: &Application) {
    let header = ["state", "in flight", "processors", "a processor", "queueing"];
    let rows = app.servers.iter().map(server_row);
    let widths = [Constraint::Fill(1)].into_iter().chain([Constraint::Length(11); 5]);
    frame.render_widget(table(" servers ", "server", &header, rows, widths), area);
}

fn server_row(server: &Server) -> Row<'static> {
    let style = if server.status == "up" { Style::new() } else { Style::new().fg(Color::Red) };
    let learned = if server.learned { "" } else { "?" };
    let cells = [
        server.status.clone(),
        server.in_flight.to_string(),
        format!("{:.1}{learned}", server.processors),
        format!("{:.1}", server.in_flight as f64 / server.processors.max(1e-9)),
        server.queueing_delay.map_or("-".to_owned(), time),
    ];
    row(&server.name, cells.into_iter()).style(style)
}

fn table<'a>(
    title: &'a str,
    name: &str,
    header: &[&str],
    rows: impl Iterator<Item = Row<'a>>,
    widths: impl IntoIterator<Item = Constraint>,
) -> Table<'a> {
    let header = row(name, header.iter().map(|text| (*text).to_owned())).style(Style::new().dim());
    Table::new(rows, widths).header(header).block(Block::bordered().title(title))
}

/// A name, and figures that stand to the right.
fn row(name: &str, figures: impl Iterator<Item = String>) -> Row<'static> {
    let figures = figures.map(|text| Cell::from(Line::from(text).right_aligned()));
    Row::new([Cell::from(name.to_owned())].into_iter().chain(figures).collect::<Vec<_>>())
}

fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 10_000.0 => format!("{:.1}k/s", r / 1000.0),
        r if r >= 100.0 || r == 0.0 => format!("{r:.0}/s"),
        r => format!("{r:.1}/s"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{:.1} ms", s * 1e3),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

fn ago(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::trail::tests::trail;
    use super::*;

    #[test]
    fn an_overload_reads_at_a_glance() {
        let trail = trail(1..31);
        let view = View { trail: &trail, chosen: 0, problem: None, held: false };
        let picture = view.text(Size::new(110, 30));
        for said in [
            "▲ 91 % are refused so that the target holds",
            "offered 110/s   admitted 10.0/s   refused 100/s (91 %)   goodput 10.0/s",
            "p95 400 ms of 500 ms   in flight 6   waiting 2   capacity 3.0 processors",
            "admission sentry (batch), dispatch jsq",
            "100 %  threshold",
            "gold",
            "down",
        ] {
            assert!(picture.contains(said), "{said:?} is not in\n{picture}");
        }
    }

    #[test]
    fn a_common_terminal_has_room_for_names_and_figures() {
        let trail = trail(1..31);
        let picture = View { trail: &trail, chosen: 0, problem: None, held: false }.text(Size::new(80, 24));
        for said in ["│class ", "│gold ", "admitted   refused   goodput       p95│", "capacity 3.0 processors"] {
            assert!(picture.contains(said), "{said:?} is not in\n{picture}");
        }
    }

    #[test]
    fn it_draws_in_any_size_and_after_any_number_of_looks() {
        for looks in [0..0, 1..2, 1..400] {
            let trail = trail(looks);
            for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
                let view = View { trail: &trail, chosen: 7, problem: Some("it is gone"), held: true };
                view.text(Size::new(width, height));
            }
        }
    }

    #[test]
    fn a_missed_target_and_no_server_come_first() {
        let trail = trail(1..31);
        let mut app_state = super::super::trail::tests::state(30);
        let app = &mut app_state.applications[0];
        let rates = trail.rates("shop", None);
        app.target = 0.3;
        assert_eq!(sentence(app, rates).2, "the target of 300 ms is missed");
        app.servers.truncate(0);
        assert_eq!(sentence(app, rates).2, "no server is up");
    }
}
