//! One measuring Flux per data folder: two would measure each other (design section 11). Looking needs no lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ports::{PortError, PortResult};

/// The lock's file in the data folder; it stays there, what counts is who holds it.
const FILE: &str = "measure.lock";

/// Who only asks whether the lock is held has it for microseconds: a taker waits that out, also on a busy machine.
const OTHERS_ASK: Duration = Duration::from_millis(200);

/// The right to measure with a data folder, for as long as it lives. The OS takes it back from a killed Flux.
#[derive(Debug)]
pub struct MeasureLock(File);

impl MeasureLock {
    /// Takes the right to measure with `data_dir`, which is made where it is missing.
    ///
    /// # Errors
    /// Another Flux has it (the message names its process where the system lets it be read), or the folder
    /// cannot be written.
    pub fn acquire(data_dir: &Path) -> PortResult<Self> {
        let path = data_dir.join(FILE);
        let unwritable =
            |e| PortError::of_data_folder("the data folder cannot be written", data_dir, &e);
        fs::create_dir_all(data_dir).map_err(unwritable)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(unwritable)?;
        match lock_within(&file, OTHERS_ASK) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(data_dir, &path)),
            Err(TryLockError::Error(e)) => {
                return Err(PortError::of_data(
                    "the data folder cannot be locked",
                    data_dir,
                    &e,
                ));
            }
        }
        file.set_len(0).map_err(unwritable)?;
        write!(file, "{}", std::process::id()).map_err(unwritable)?;
        Ok(Self(file))
    }
}

/// Locks a file, as soon as whoever has it lets it go.
///
/// # Errors
/// It is still held after `patience`, or cannot be locked.
pub(super) fn lock_within(file: &File, patience: Duration) -> Result<(), TryLockError> {
    const BETWEEN_TRIES: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < patience => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            done => return done,
        }
    }
}

/// Whether a Flux measures with `data_dir` now.
pub(super) fn is_held(data_dir: &Path) -> bool {
    let Ok(file) = File::open(data_dir.join(FILE)) else {
        return false;
    };
    // Who ends by itself leaves it empty: only after a Flux that was killed the lock has to be asked for, shared, so that it
    // is in nobody's way but of one who takes it in the same moment, and who waits for that.
    let is_empty = file.metadata().is_ok_and(|m| m.len() == 0);
    !is_empty && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

impl Drop for MeasureLock {
    fn drop(&mut self) {
        // The next holder must not be shown under this process id while it writes its own. Unlocked by name: a child
        // being started may still share the handle. Both failing leaves what closing the file does anyway.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

fn held(data_dir: &Path, path: &Path) -> PortError {
    // Windows does not let a locked file be read: then the process stays unnamed.
    let process = match fs::read_to_string(path) {
        Ok(pid) if !pid.trim().is_empty() => format!(" (process {})", pid.trim()),
        _ => String::new(),
    };
    PortError::new(format!(
        "another Flux{process} is measuring with this data folder: {}",
        data_dir.display()
    ))
    .hint("wait for it: two measurements at once measure each other")
}
