//! Asking the user for a file or folder: the system's own dialog, without holding up the thread that draws.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A model file.
    Model,
    /// A folder; the title says what for.
    Folder(&'static str),
    /// A file with this ending; the title says what for.
    File(&'static str, &'static str),
    /// Where to write a file; the name proposed.
    Save(String),
}

/// No person dismisses a dialog sooner: none was shown. Linux shows one through a desktop portal or zenity.
const FASTEST_DISMISSAL: Duration = Duration::from_millis(300);

/// What came of asking.
pub enum Answer {
    /// Chosen.
    Path(PathBuf),
    /// This system shows no file dialogs.
    NoDialog,
}

/// What is done with the answer.
pub type Chosen = Box<dyn FnOnce(Answer) + Send>;

/// Whoever asks the user.
pub trait Files: Send + Sync {
    /// Asks; `chosen` is dropped unheard when the dialog is dismissed. Called on the thread that draws.
    fn choose(&self, what: Choice, chosen: Chosen);
}

/// The system's file dialogs.
pub struct SystemDialogs;

impl Files for SystemDialogs {
    fn choose(&self, what: Choice, chosen: Chosen) {
        let dialog = rfd::AsyncFileDialog::new();
        // Begun here, because macOS wants dialogs on this thread; waited for on another.
        match what {
            Choice::Model => wait(
                dialog
                    .set_title("Choose a model")
                    .add_filter("GGUF models", &["gguf"])
                    .pick_file(),
                chosen,
            ),
            Choice::Folder(title) => wait(dialog.set_title(title).pick_folder(), chosen),
            Choice::File(title, ending) => wait(
                dialog
                    .set_title(title)
                    .add_filter(ending, &[ending])
                    .pick_file(),
                chosen,
            ),
            Choice::Save(name) => wait(dialog.set_file_name(name).save_file(), chosen),
        }
    }
}

fn wait(answer: impl Future<Output = Option<rfd::FileHandle>> + Send + 'static, chosen: Chosen) {
    let waiting = thread::Builder::new()
        .name("file-dialog".to_owned())
        .spawn(move || {
            let asked = Instant::now();
            match pollster::block_on(answer) {
                Some(file) => chosen(Answer::Path(file.path().to_owned())),
                None if asked.elapsed() < FASTEST_DISMISSAL => chosen(Answer::NoDialog),
                None => {}
            }
        });
    if let Err(error) = waiting {
        tracing::warn!(%error, "no thread to wait for the file dialog");
    }
}
