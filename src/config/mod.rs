//! Files of the data folder that people may write themselves: settings and search space. What is wrong in one is said,
//! set aside or left alone, and never keeps Flux from starting.

mod settings;
mod space;

use std::io::{self, Write as _};
use std::path::Path;

pub use settings::SettingsFile;
pub use space::SpaceFile;

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
