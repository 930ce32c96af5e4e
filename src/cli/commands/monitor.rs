//! `flux monitor`: what the sensors say, live. It reads them with the sampler of every measurement, and stores nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{after, never, select};

use crate::cli::args::Monitor;
use crate::cli::error::{CliError, CliResult, Kept};
use crate::cli::output::{self, Output, say};
use crate::cli::render::monitor::{Names, View, csv_head, csv_lines, json_line};
use crate::cli::signals;
use crate::domain::machine;
use crate::domain::text::clean;
use crate::engine::telemetry::Tick;
use crate::engine::{Engine, Ports};
use crate::report::refused;

use super::open::Place;

/// `--csv -`: standard output.
const STDOUT: &str = "-";

/// Reads until it is enough or the user ends it. Who asked for no end gave none by Ctrl-C: that is status 0.
///
/// # Errors
/// A file that exists or cannot be written, no thread for the sensors; ended before what was asked for was read.
pub fn run(args: &Monitor, place: &Place, output: &Output) -> CliResult {
    let csv_on_stdout = args.csv.as_deref() == Some(Path::new(STDOUT));
    if csv_on_stdout && output.json {
        return Err(
            CliError::usage("--json and --csv - both want standard output")
                .hint("give --csv a file"),
        );
    }
    let ports = place.look(output)?;
    let mut shown = Shown::new(args, csv_on_stdout, names(&ports), output)?;
    let requests = signals::listen();
    let (mut engine, _events) = Engine::new(ports);
    let ticks = engine.watch(Duration::from_millis(args.interval), false)?;
    let enough = args
        .seconds
        .map_or_else(never, |secs| after(Duration::from_secs_f64(secs)));
    let mut left = args.samples;
    let mut ended_by_user = false;
    while left != Some(0) {
        select! {
            recv(ticks) -> tick => {
                // The engine keeps its sampler for as long as it lives.
                let Ok(tick) = tick else { break };
                if !shown.show(&tick)? {
                    break;
                }
                left = left.map(|n| n - 1);
            }
            recv(enough) -> _ => break,
            recv(requests) -> _ => {
                ended_by_user = true;
                break;
            }
        }
    }
    shown.end()?;
    if ended_by_user && (args.samples.is_some() || args.seconds.is_some()) {
        return Err(CliError::Cancelled(Kept::default()));
    }
    Ok(())
}

/// What people call each GPU, by the source of its readings.
fn names(ports: &Ports) -> Names {
    let gpus = machine::gpus(&ports.probe.machine());
    let named = |gpu: machine::Gpu| Some((gpu.pci?.to_string(), clean(&gpu.name)));
    Names(
        gpus.into_iter()
            .filter_map(named)
            .collect::<BTreeMap<_, _>>(),
    )
}

/// How ticks are shown on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A table drawn over itself.
    Live,
    /// A line each.
    Lines,
    /// A JSON document each.
    Json,
    /// As CSV, or not at all.
    Other,
}

/// Everything a tick is shown on.
struct Shown {
    mode: Mode,
    view: View,
    drawn: usize,
    csv: Option<Box<dyn Write>>,
    steps: Output,
    style: crate::cli::output::Style,
}

impl Shown {
    fn new(args: &Monitor, csv_on_stdout: bool, names: Names, output: &Output) -> CliResult<Self> {
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let mode = match () {
            () if csv_on_stdout => Mode::Other,
            () if output.json => Mode::Json,
            () if io::stdout().is_terminal() && !dumb => Mode::Live,
            () if args.csv.is_some() => Mode::Other,
            () => Mode::Lines,
        };
        if mode == Mode::Json {
            output::stream();
        }
        let mut csv: Option<Box<dyn Write>> = match &args.csv {
            None => None,
            Some(_) if csv_on_stdout => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(BufWriter::new(created(path, args.force)?))),
        };
        if let Some(csv) = &mut csv {
            csv.write_all(csv_head().as_bytes())?;
        }
        Ok(Self {
            mode,
            view: View::new(names, args.interval),
            drawn: 0,
            csv,
            steps: output.clone(),
            style: output.style,
        })
    }

    /// Shows a tick; `false` when nobody reads any more.
    fn show(&mut self, tick: &Tick) -> CliResult<bool> {
        let news = self.view.take(tick);
        if matches!(self.mode, Mode::Lines | Mode::Other) {
            for line in news.iter().flatten() {
                self.steps.step(line);
            }
        }
        let text = match self.mode {
            Mode::Live => self.frame(),
            Mode::Lines => self.view.line(tick),
            Mode::Json => json_line(tick, news.is_some())?,
            Mode::Other => String::new(),
        };
        let csv = self.csv.as_mut();
        let written = csv
            .map_or(Ok(()), |csv| {
                csv.write_all(csv_lines(tick).as_bytes())?;
                csv.flush()
            })
            .and_then(|()| {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                stdout.flush()
            });
        match written {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(CliError::failed("the readings could not be written").cause(e)),
        }
    }

    /// The table, over the one before.
    fn frame(&mut self) -> String {
        /// A terminal that does not tell its size.
        const USUAL: (usize, usize) = (80, 24);
        let (width, height) = terminal_size::terminal_size_of(io::stdout())
            .map_or(USUAL, |(w, h)| (usize::from(w.0), usize::from(h.0)));
        // The cursor stands below the table, and goes up to its first line: all of it must be on the screen.
        let lines = self.view.table(self.style, width, height.saturating_sub(1));
        let up = std::mem::replace(&mut self.drawn, lines.len());
        let mut frame = match up {
            0 => String::new(),
            up => format!("\u{1b}[{up}A\u{1b}[J"),
        };
        for line in lines {
            frame.push_str(&line);
            frame.push('\n');
        }
        frame
    }

    fn end(&mut self) -> CliResult {
        if let Some(csv) = &mut self.csv {
            match csv.flush() {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    return Err(CliError::failed("the readings could not be written").cause(e));
                }
                _ => {}
            }
        }
        if self.mode != Mode::Live && !self.steps.quiet {
            say(&self.view.cost_words());
        }
        Ok(())
    }
}

fn created(path: &Path, replace: bool) -> CliResult<File> {
    refused(path, replace)?;
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options
        .open(path)
        .map_err(|e| CliError::failed(format!("cannot write {}", path.display())).cause(e))
}
