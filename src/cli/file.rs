//! Folders a command needs.

use std::path::Path;

use super::error::{CliError, CliResult};

/// Makes a folder with its parents.
///
/// # Errors
/// It cannot be made.
pub fn make_dir(dir: &Path) -> CliResult {
    std::fs::create_dir_all(dir)
        .map_err(|e| CliError::failed(format!("cannot make the folder {}", dir.display())).cause(e))
}
