//! Where words go: results to stdout, everything else to stderr, and a reader that is gone is no error.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::ports::{Notice, NoticeLevel};

use super::args::Global;
use super::error::CliResult;
use crate::domain::text::{clean, is_unseen, json};

/// Begins what is bold.
const BOLD: &str = "\u{1b}[1m";
/// Ends it.
const END: &str = "\u{1b}[0m";

/// Bold headings on a terminal, plain text elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    bold: bool,
}

impl Style {
    /// No escapes at all.
    pub const PLAIN: Self = Self { bold: false };

    /// What a stream wants: escapes only on a terminal and only without `NO_COLOR` (no-color.org: set and not empty).
    pub fn of(is_terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            bold: is_terminal && !refused && !dumb,
        }
    }

    /// A heading.
    pub fn heading(self, text: &str) -> String {
        if self.bold {
            format!("{BOLD}{text}{END}")
        } else {
            text.to_owned()
        }
    }
}

/// How this invocation speaks.
#[derive(Debug, Clone)]
pub struct Output {
    /// One JSON document on stdout.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
    /// Raw output and logs.
    pub verbose: bool,
    /// Style of stdout.
    pub style: Style,
}

impl Output {
    /// As the arguments and the terminal say.
    pub fn new(global: &Global) -> Self {
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            style: Style::of(io::stdout().is_terminal()),
        }
    }

    /// Prints the document with `--json`, else its text.
    ///
    /// # Errors
    /// As `print`.
    pub fn print_either(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> CliResult {
        if self.json {
            print_json(document)
        } else {
            print(&text())
        }
    }

    /// Says a step of a longer job on stderr, unless quiet.
    pub fn step(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Shows a notice on stderr; information is progress, a warning is not silenced.
    pub fn notice(&self, notice: &Notice) {
        if !self.quiet || notice.level == NoticeLevel::Warning {
            say(&notice_line(notice));
        }
    }
}

/// Text for a terminal: lines, and the styles of [`Style`]; all else that is not seen is shown as in [`clean`]. What names
/// things from outside is cleaned where it is put into a line; this is for what was forgotten there.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_shown = |c: char| c == '\n' || !is_unseen(c);
    if text.chars().all(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = [BOLD, END].into_iter().find(|s| rest.starts_with(s));
        let (part, after) = rest.split_at(style.map_or(c.len_utf8(), str::len));
        if style.is_some() || is_shown(c) {
            shown.push_str(part);
        } else {
            shown.extend(c.escape_unicode());
        }
        rest = after;
    }
    Cow::Owned(shown)
}

/// What stdout has of the one document that `--json` promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Printed {
    /// Nothing yet.
    Nothing,
    /// The result.
    Result,
    /// Documents a line each, without end.
    Stream,
}

/// Held while a result is written, so that a signal neither cuts it nor adds a second one.
static PRINTED: Mutex<Printed> = Mutex::new(Printed::Nothing);

/// Pieces of results that stdout has taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Most of one piece, bytes: as much as a pipe takes in one go (`PIPE_BUF` of Linux).
const PIECE: usize = 4096;
/// A reader that takes no piece for so long is not reading.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a result is being written at this moment.
pub fn is_writing() -> bool {
    PRINTED.try_lock().is_err()
}

/// Waits while stdout takes what is being written.
pub fn wait_while_read() {
    let mut before = None;
    while before != Some(TAKEN.load(Ordering::Relaxed)) {
        before = Some(TAKEN.load(Ordering::Relaxed));
        std::thread::sleep(PATIENCE);
    }
}

fn printed() -> MutexGuard<'static, Printed> {
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that stdout takes documents a line each.
pub fn stream() {
    *printed() = Printed::Stream;
}

/// With `--json`, the document of a command that printed no result: why it failed, or that it ended. An error is
/// one line, so that it closes a stream of lines too.
pub fn print_end(error: Option<&Value>) {
    end(&mut printed(), error);
}

/// As [`print_end`], unless a result is being written at this moment or is written already: then `false`.
pub fn try_print_end(error: &Value) -> bool {
    match PRINTED.try_lock() {
        Ok(mut printed) if *printed != Printed::Result => {
            end(&mut printed, Some(error));
            true
        }
        _ => false,
    }
}

fn end(printed: &mut Printed, error: Option<&Value>) {
    let usual = json!({ "schema": 1 });
    let document = match (*printed, error) {
        (Printed::Result, _) | (Printed::Stream, None) => return,
        (_, error) => error.unwrap_or(&usual),
    };
    // The error is said already; a stdout that cannot be written may be the error itself.
    let _ = write(&document.to_string());
    *printed = Printed::Result;
}

/// Prints a result on stdout.
///
/// # Errors
/// stdout cannot be written; a closed pipe (`| head -1`) is none.
pub fn print(text: &str) -> CliResult {
    print_file(&harmless(text))
}

/// Prints a file as it is.
///
/// # Errors
/// As `print`.
pub fn print_file(text: &str) -> CliResult {
    let mut printed = printed();
    *printed = Printed::Result;
    write(text)
}

fn write(text: &str) -> CliResult {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match pieces(text).chain([end]).try_for_each(write_piece) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn write_piece(piece: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(piece.as_bytes())?;
    stdout.flush()?;
    TAKEN.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Prints a result as the one JSON document.
///
/// # Errors
/// As `print`; the value cannot be serialised.
pub fn print_json(document: &impl Serialize) -> CliResult {
    print_file(&json(document)?)
}

/// `warning: …` or `note: …`.
pub fn notice_line(notice: &Notice) -> String {
    let word = match notice.level {
        NoticeLevel::Info => "note",
        NoticeLevel::Warning => "warning",
    };
    format!("{word}: {}", clean(&notice.text))
}

/// Writes lines to stderr. Nobody is left to tell when that fails.
pub fn say(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(harmless(text).as_bytes());
    if !text.ends_with('\n') {
        let _ = stderr.write_all(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_style_adds_nothing() {
        assert_eq!(Style::PLAIN.heading("Machine"), "Machine");
        assert_eq!(
            Style { bold: true }.heading("Machine"),
            "\u{1b}[1mMachine\u{1b}[0m"
        );
        assert!(!Style::of(false).bold);
    }

    #[test]
    fn what_was_not_cleaned_does_not_reach_a_terminal() {
        let heading = Style { bold: true }.heading("Machine");
        let text = format!("{heading}\nGPU\u{1b}]0;title\u{7}\u{9b}2J\u{202e}模\r\n");
        assert_eq!(
            harmless(&text),
            format!("{heading}\nGPU\\u{{1b}}]0;title\\u{{7}}\\u{{9b}}2J\\u{{202e}}模\\u{{d}}\n")
        );
    }

    #[test]
    fn a_text_is_its_pieces() {
        let text = "模".repeat(PIECE);
        let pieces: Vec<&str> = pieces(&text).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        // 4095 bytes are whole characters of three.
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces.concat(), text);
        assert_eq!(super::pieces("").count(), 0);
    }

    #[test]
    fn a_notice_names_its_level() {
        let notice = Notice {
            level: NoticeLevel::Warning,
            code: "battery".to_owned(),
            text: "on battery".to_owned(),
        };
        assert_eq!(notice_line(&notice), "warning: on battery");
    }
}
