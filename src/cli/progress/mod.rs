//! Progress of a job on stderr: one live block on a terminal, plain lines elsewhere, nothing with `-q`.

mod state;

use std::io::{self, IsTerminal as _, Write as _};

use crate::engine::message::EventKind;
use crate::ports::NoticeLevel;

use super::output::{Output, notice_line, say};
use crate::domain::text::clean;

use state::{State, lasting_line};

/// Draws progress. Never on stdout.
pub struct Progress {
    mode: Mode,
    state: State,
    drawn: usize,
    last_doing: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    Plain,
    Quiet,
}

impl Progress {
    /// As the arguments and stderr want it.
    pub fn new(output: &Output) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let mode = match (
            output.quiet,
            io::stderr().is_terminal() && !dumb && !output.verbose,
        ) {
            (true, _) => Mode::Quiet,
            (false, true) => Mode::Live,
            (false, false) => Mode::Plain,
        };
        Self {
            mode,
            state: State::default(),
            drawn: 0,
            last_doing: String::new(),
        }
    }

    /// Shows an event.
    pub fn event(&mut self, event: &EventKind) {
        self.state.apply(event);
        match self.mode {
            Mode::Live => self.live(event),
            Mode::Plain => self.plain(event),
            Mode::Quiet => Self::warning_only(event),
        }
    }

    /// Says a sentence above the live block.
    pub fn say(&mut self, text: &str) {
        let mut frame = self.erased();
        frame.push_str(text);
        frame.push('\n');
        self.draw(frame);
    }

    /// Takes the live block away.
    pub fn end(&mut self) {
        let frame = self.erased();
        write_frame(&frame);
    }

    fn live(&mut self, event: &EventKind) {
        let mut frame = self.erased();
        // The block itself shows runs and candidates; what is said once stays.
        let shown_in_block = matches!(
            event,
            EventKind::RunStored { .. } | EventKind::Screened(_) | EventKind::Stage { .. }
        );
        if !shown_in_block && let Some(line) = lasting_line(event) {
            frame.push_str(&line);
            frame.push('\n');
        }
        if matches!(event, EventKind::Finished(_)) {
            write_frame(&frame);
        } else {
            self.draw(frame);
        }
    }

    fn plain(&mut self, event: &EventKind) {
        if let EventKind::Progress { doing, .. } = event {
            // Runs have lines of their own; a step of another job is said once.
            if !self.state.measures() && *doing != self.last_doing {
                self.last_doing.clone_from(doing);
                say(&clean(doing));
            }
        } else if let Some(line) = lasting_line(event) {
            say(&line);
        }
    }

    fn warning_only(event: &EventKind) {
        if let EventKind::Notice(notice) = event
            && notice.level == NoticeLevel::Warning
        {
            say(&notice_line(notice));
        }
    }

    fn draw(&mut self, mut frame: String) {
        if self.mode == Mode::Live {
            let lines = self.state.block(terminal_width());
            self.drawn = lines.len();
            for line in lines {
                frame.push_str(&line);
                frame.push('\n');
            }
        }
        write_frame(&frame);
    }

    /// Cursor to the block's first line, everything below erased.
    fn erased(&mut self) -> String {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn == 0 {
            String::new()
        } else {
            format!("\u{1b}[{drawn}A\u{1b}[J")
        }
    }
}

fn write_frame(frame: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(frame.as_bytes());
    let _ = stderr.flush();
}

/// One less than the terminal is wide: the last column wraps on some.
fn terminal_width() -> usize {
    const FALLBACK: usize = 80;
    terminal_size::terminal_size_of(io::stderr())
        .map_or(FALLBACK, |(width, _)| usize::from(width.0).max(20))
        - 1
}
