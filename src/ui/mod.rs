//! The desktop app (design section 10): pages over the same engine and events as the command line.
//! `logic` takes in what arrived, `ui` only draws; no question is answered on the thread that draws.

mod app;
mod charts;
mod command;
mod dialogs;
mod files;
mod link;
mod pages;
mod sensors;
mod shell;
mod start;
mod state;
mod theme;
mod widgets;
mod workers;

pub use app::App;
pub use files::{Answer, Choice, Chosen, Files, SystemDialogs};
pub use link::Message;
pub use start::{StartError, start};
pub use state::{AppState, JobView, Page};
