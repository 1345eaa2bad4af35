//! `tidegate top`: what a running sentry does, at a glance in a terminal.
//!
//! It asks the admin API for its state once an interval and draws what changed. It changes nothing.

mod admin;
mod state;
mod trail;
mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Size;
use tidegate_workload::parse_duration;

use self::admin::Admin;
pub(super) use self::admin::get;
use self::trail::Trail;
use self::view::View;

/// Show a running sentry in the terminal: rates, response times, refusals, servers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys: q quits, Tab and arrows choose the application, space freezes the picture.")]
pub struct Args {
    /// The sentry's admin address
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:9900")]
    admin: String,
    /// File with the admin token, if the sentry has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The application to show first; default: the first one configured
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Time between two updates
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1s")]
    interval: Duration,
    /// Print one picture as plain text after two updates, and exit
    #[arg(long)]
    once: bool,
}

/// Draws until told to quit.
///
/// # Errors
/// When the first update fails. Later failures are shown, and the update is tried again.
pub fn run(args: Args) -> Result<ExitCode> {
    if !(Duration::from_millis(100)..=Duration::from_secs(60)).contains(&args.interval) {
        return Ok(super::bad_configuration("--interval must lie between 100ms and 60s"));
    }
    let token = match &args.token_file {
        Some(file) => Some(std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?),
        None => None,
    };
    let admin = Admin::new(&args.admin, token.as_deref().map(str::trim))?;
    let mut top = Top { trail: Trail::default(), chosen: 0, problem: None, admin, interval: args.interval };
    top.trail.take(top.admin.state()?, Instant::now());
    if let Some(name) = &args.application {
        let names = top.trail.names();
        let Some(at) = names.iter().position(|known| known == name) else {
            return Ok(super::bad_configuration(format!("no application \"{name}\"; there are: {}", names.join(", "))));
        };
        top.chosen = at;
    }
    if args.once {
        thread::sleep(args.interval);
        top.look();
        print!("{}", top.view(false).text(PLAIN));
    } else if std::io::stdout().is_terminal() {
        ratatui::run(|terminal| top.watch(terminal))?;
    } else {
        bail!("standard output is not a terminal; --once prints one picture as text");
    }
    Ok(ExitCode::SUCCESS)
}

/// Size of the plain picture.
const PLAIN: Size = Size { width: 110, height: 36 };

struct Top {
    admin: Admin,
    trail: Trail,
    /// Which application is shown.
    chosen: usize,
    /// Why the last look failed.
    problem: Option<String>,
    interval: Duration,
}

impl Top {
    fn watch(&mut self, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
        let mut next = Instant::now() + self.interval;
        let mut held = false;
        loop {
            terminal.draw(|frame| self.view(held).draw(frame))?;
            if event::poll(next.saturating_duration_since(Instant::now()))? {
                let applications = self.trail.names().len().max(1);
                match key(&event::read()?) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Next) => self.chosen = (self.chosen + 1) % applications,
                    Some(Key::Before) => self.chosen = (self.chosen + applications - 1) % applications,
                    Some(Key::Hold) => held = !held,
                    None => {}
                }
            }
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                if !held {
                    self.look();
                }
            }
        }
    }

    fn look(&mut self) {
        match self.admin.state() {
            Ok(state) => {
                self.trail.take(state, Instant::now());
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    fn view(&self, held: bool) -> View<'_> {
        View { trail: &self.trail, chosen: self.chosen, problem: self.problem.as_deref(), held }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Key {
    Quit,
    Next,
    Before,
    Hold,
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Tab | KeyCode::Right | KeyCode::Down => Some(Key::Next),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Up => Some(Key::Before),
        KeyCode::Char(' ') => Some(Key::Hold),
        _ => None,
    }
}
