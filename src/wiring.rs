//! Placeholder until merged: builds the real adapters.

use std::path::PathBuf;

use crate::engine::Ports;
use crate::ports::{Notice, PortError, PortResult};

/// What a command needs of the data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Measures: takes the one lock.
    Measure,
    /// Looks only.
    Look,
}

/// How to open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data folder; `None` is the usual one.
    pub data_dir: Option<PathBuf>,
    /// Folder of an exported machine to act on.
    pub machine: Option<PathBuf>,
    /// Access.
    pub access: Access,
}

/// What was opened.
pub struct Opened {
    /// The world.
    pub ports: Ports,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// Opens.
///
/// # Errors
/// x
pub fn open(_options: &Options) -> PortResult<Opened> {
    Err(PortError::new("not wired yet"))
}
