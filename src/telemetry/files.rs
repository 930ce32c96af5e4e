//! Files of the system's drivers: found below a root, opened once, read again and again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use crate::system_root::{self, SystemRoot};

/// Longest text of such a file: a page of memory, in one piece.
const PAGE: usize = 4096;

/// The files below a root, and which of them were looked into: those make up a captured machine.
pub(super) struct Files {
    root: SystemRoot,
    seen: RefCell<BTreeSet<PathBuf>>,
}

impl Files {
    pub fn of(root: &SystemRoot) -> Self {
        Self {
            root: root.clone(),
            seen: RefCell::default(),
        }
    }

    /// The entries of a folder in name order.
    pub fn list(&self, dir: impl AsRef<Path>) -> Vec<PathBuf> {
        self.root.list(dir)
    }

    /// The trimmed text of a file, once.
    pub fn text(&self, path: &Path) -> Option<String> {
        let text = system_root::read(path)?;
        self.seen.borrow_mut().insert(path.to_owned());
        Some(text)
    }

    /// A number as sysfs writes it, once.
    pub fn number(&self, path: &Path) -> Option<u64> {
        let number = system_root::read_number(path)?;
        self.seen.borrow_mut().insert(path.to_owned());
        Some(number)
    }

    /// A file to be read every tick. Opening wakes no device.
    ///
    /// # Errors
    /// It is not there, or not for this user.
    pub fn open(&self, path: &Path) -> io::Result<SensorFile> {
        let file = File::open(path)?;
        self.seen.borrow_mut().insert(path.to_owned());
        Ok(SensorFile(file))
    }

    /// Writes what was looked into down below `dir`, as it is now. What cannot be read is left out.
    ///
    /// # Errors
    /// `dir` cannot be written.
    pub fn copy_to(&self, dir: &Path) -> io::Result<()> {
        let root = self.root.path("");
        for path in self.seen.borrow().iter() {
            let (Ok(relative), Ok(bytes)) = (path.strip_prefix(&root), fs::read(path)) else {
                continue;
            };
            // No name on Windows may hold a colon; addresses are read with either.
            let copy = dir.join(relative.to_string_lossy().replace(':', "-"));
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(copy, bytes)?;
        }
        Ok(())
    }
}

/// A file that is open.
pub(super) struct SensorFile(File);

impl SensorFile {
    /// What `parse` makes of its trimmed text now.
    ///
    /// # Errors
    /// The driver refuses, for now or for good.
    pub fn read<T>(&mut self, parse: impl FnOnce(&str) -> T) -> io::Result<T> {
        self.read_bytes(|bytes| {
            let text = std::str::from_utf8(bytes);
            Ok(parse(text.map_err(io::Error::other)?.trim()))
        })?
    }

    /// What `parse` makes of its bytes now.
    ///
    /// # Errors
    /// The driver refuses, for now or for good.
    pub fn read_bytes<T>(&mut self, parse: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let mut page = [0; PAGE];
        self.0.rewind()?;
        let length = self.0.read(&mut page)?;
        Ok(parse(&page[..length]))
    }
}

/// Why a sensor cannot be read, in a few words.
pub(super) fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "not offered by this device or its driver".to_owned(),
        ErrorKind::PermissionDenied => "no permission".to_owned(),
        ErrorKind::Unsupported | ErrorKind::InvalidInput => {
            "not supported by this device".to_owned()
        }
        ErrorKind::ResourceBusy => "refused by the driver for now".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_once_and_tells_what_it_holds_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("power1_input");
        fs::write(&path, "87000000\n").unwrap();
        let files = Files::of(&SystemRoot::at(dir.path()));
        let mut file = files.open(&path).unwrap();
        assert_eq!(file.read(str::to_owned).unwrap(), "87000000");
        fs::write(&path, "9\n").unwrap();
        assert_eq!(file.read(str::to_owned).unwrap(), "9");
    }

    /// Linux: 16 EBUSY, 95 EOPNOTSUPP, 2 ENOENT, 13 EACCES.
    #[cfg(target_os = "linux")]
    #[test]
    fn drivers_errors_have_reasons() {
        for (code, words) in [
            (16, "refused by the driver for now"),
            (95, "not supported by this device"),
            (2, "not offered by this device or its driver"),
            (13, "no permission"),
        ] {
            assert_eq!(why(&io::Error::from_raw_os_error(code)), words);
        }
    }
}
