//! Opening the world a command works in: data folder, machine, access.

use std::path::{Path, PathBuf};

use crate::cli::args::MachineArg;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Output;
use crate::engine::Ports;
use crate::engine::telemetry::forget_old;
use crate::ports::PortResult;
use crate::wiring::{self, Access};

/// The data folder the user chose, if any.
#[derive(Debug)]
pub struct Place {
    data_dir: Option<PathBuf>,
}

impl Place {
    /// The folder of `--data-dir`.
    pub const fn new(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir }
    }

    /// The folder of `--data-dir`, where it was given.
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Opens for reading what was measured: a folder the user named must hold something.
    ///
    /// # Errors
    /// Flux keeps nothing in the folder of `--data-dir`; as `wiring::open`.
    pub fn look_back(&self, output: &Output) -> CliResult<Ports> {
        match self.data_dir() {
            // A file in its place is what opening it says.
            Some(dir) if !wiring::is_data_dir(dir) && !dir.is_file() => Err(CliError::failed(
                format!("Flux has kept nothing in this folder: {}", dir.display()),
            )
            .hint("check --data-dir; without it Flux looks in the system's usual place")),
            _ => self.look(output),
        }
    }

    /// Opens for looking: no lock, works beside a measuring Flux and on a read-only folder.
    ///
    /// # Errors
    /// As `wiring::open`.
    pub fn look(&self, output: &Output) -> CliResult<Ports> {
        self.open(None, Access::Look, output)
    }

    /// Opens for looking, on an exported machine where one is named.
    ///
    /// # Errors
    /// There is no such machine; as `wiring::open`.
    pub fn look_as(&self, machine: &MachineArg, output: &Output) -> CliResult<Ports> {
        self.open(machine.machine.clone(), Access::Look, output)
    }

    /// Opens for measuring: one Flux at a time in a data folder.
    ///
    /// # Errors
    /// There is no such machine; another Flux measures here; as `wiring::open`.
    pub fn measure(&self, machine: &MachineArg, output: &Output) -> CliResult<Ports> {
        let ports = self.open(machine.machine.clone(), Access::Measure, output)?;
        for notice in ports.settings.load().1 {
            output.notice(&notice);
        }
        forget_old(&ports)?;
        Ok(ports)
    }

    /// Opens for the app: at once, as for looking. A database that only a measuring command would set aside is set
    /// aside, with a notice.
    ///
    /// # Errors
    /// As `wiring::open`.
    #[cfg(feature = "gui")]
    pub fn app(&self) -> CliResult<wiring::Opened> {
        Ok(self
            .opened(None, Access::Look)
            .or_else(|_| self.opened(None, Access::Measure))?)
    }

    fn open(&self, machine: Option<PathBuf>, access: Access, output: &Output) -> CliResult<Ports> {
        let opened = self.opened(machine, access)?;
        for notice in &opened.notices {
            output.notice(notice);
        }
        Ok(opened.ports)
    }

    fn opened(&self, machine: Option<PathBuf>, access: Access) -> PortResult<wiring::Opened> {
        wiring::open(&wiring::Options {
            data_dir: self.data_dir.clone(),
            machine,
            access,
            flux: std::env::current_exe().ok(),
        })
    }
}
