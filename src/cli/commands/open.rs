//! Opening the world a command works in: data folder, machine, access.

use std::path::{Path, PathBuf};

use crate::cli::args::MachineArg;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Output;
use crate::engine::Ports;
use crate::wiring::{self, Access};

/// Where bare names of `--machine` are looked for.
const FIXTURES: &str = "tests/fixtures/machines";

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
        self.open(fixture(machine)?, Access::Look, output)
    }

    /// Opens for measuring: one Flux at a time in a data folder.
    ///
    /// # Errors
    /// There is no such machine; another Flux measures here; as `wiring::open`.
    pub fn measure(&self, machine: &MachineArg, output: &Output) -> CliResult<Ports> {
        self.open(fixture(machine)?, Access::Measure, output)
    }

    fn open(&self, machine: Option<PathBuf>, access: Access, output: &Output) -> CliResult<Ports> {
        let opened = wiring::open(&wiring::Options {
            data_dir: self.data_dir.clone(),
            machine,
            access,
        })?;
        for notice in &opened.notices {
            output.notice(notice);
        }
        Ok(opened.ports)
    }
}

/// The folder `--machine` means: itself, or the bare name of a fixture.
fn fixture(machine: &MachineArg) -> CliResult<Option<PathBuf>> {
    let Some(named) = &machine.machine else {
        return Ok(None);
    };
    let known = Path::new(FIXTURES).join(named);
    let bare = named.components().count() == 1;
    if named.is_dir() {
        Ok(Some(named.clone()))
    } else if bare && known.is_dir() {
        Ok(Some(known))
    } else {
        Err(CliError::failed(format!("no exported machine here: {}", named.display()))
            .hint("give the folder that `flux scan --export` wrote"))
    }
}
