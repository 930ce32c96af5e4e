//! Installs a llama.cpp build into the data folder: the pinned official archive, else the source package
//! (design section 4). All work happens in one temporary folder beside the result and one rename ends it, so that a
//! failed, cancelled or killed install leaves nothing half-made behind.

mod download;
mod pins;
mod source;
mod tools;
mod unpack;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::domain::types::Backend;
use crate::ports::{CancelToken, InstallProgress, PortError, PortResult};
use crate::runtime::identify;

pub use pins::{ArchiveFile, ArchivePin, Pins, SourcePin};

use download::DownloadError;

/// Temporary folders start with this; a leading dot keeps them out of the catalogue.
const TEMP_PREFIX: &str = ".installing-";
/// A removed build's folder is called this until its files are deleted.
pub(super) const REMOVING_PREFIX: &str = ".removing-";
/// Held while an install works, so that another Flux does not take its folder for a leftover.
const LOCK_FILE: &str = "lock";
/// Free space an install asks for, in bytes: a source build with its objects takes 1.5 GB.
const SPACE_NEEDED: u64 = 2_000_000_000;

/// Where installs go and what they use.
#[derive(Debug, Clone)]
pub struct Installer {
    /// Folder that gets one folder per installed build.
    pub runtimes_dir: PathBuf,
    /// What can be installed.
    pub pins: Pins,
    /// Folders with build tools, as in `PATH`.
    pub tool_path: OsString,
}

impl Installer {
    /// Installs a build for `backend` and returns its folder; one that is there already is returned as it is.
    ///
    /// # Errors
    /// See [`crate::ports::Runtimes::install`].
    pub fn install(
        &self,
        backend: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<PathBuf> {
        fs::create_dir_all(&self.runtimes_dir).map_err(|e| write_error(&self.runtimes_dir, &e))?;
        remove_leftovers(&self.runtimes_dir);
        let archive = self
            .pins
            .archive(std::env::consts::OS, std::env::consts::ARCH, backend);
        let builds = [
            archive.map(|pin| pin.build),
            self.pins.source.as_ref().map(|pin| pin.build),
        ];
        for build in builds.into_iter().flatten() {
            let dir = self.runtimes_dir.join(folder_name(build, backend));
            if identify::identify(&dir).is_ok() {
                say(progress, format!("already installed: {}", dir.display()));
                return Ok(dir);
            }
        }
        let mut archive_error = None;
        if let Some(pin) = archive {
            match self.install_archive(pin, cancel, progress) {
                Err(Stumble::Final(error)) => return Err(error),
                Err(Stumble::TrySource(error)) => {
                    say(progress, error.headline.clone());
                    archive_error = Some(error);
                }
                Ok(dir) => return Ok(dir),
            }
        } else {
            say(
                progress,
                format!(
                    "no official archive is listed for {} on this system",
                    backend.name()
                ),
            );
        }
        match (&self.pins.source, archive_error) {
            (Some(pin), archive) => {
                self.install_source(pin, backend, cancel, progress)
                    .map_err(|mut error| {
                        error.cause.extend(archive.map(|archive| archive.headline));
                        error
                    })
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(PortError::new(format!(
                "Flux has no build of llama.cpp with {} for this system",
                backend.name()
            ))
            .hint("Build llama.cpp yourself and tell Flux its folder: `flux runtime add DIR`")),
        }
    }

    fn install_archive(
        &self,
        pin: &ArchivePin,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> Result<PathBuf, Stumble> {
        let needed = pin.files.iter().filter_map(|file| file.size).sum::<u64>() * 4;
        let work = self.workplace(needed.max(SPACE_NEEDED / 4))?;
        let mut bin = None;
        for (index, file) in pin.files.iter().enumerate() {
            let archive = work.path().join(format!("download-{index}"));
            download::download(file, &archive, cancel, progress)?;
            say(progress, format!("unpacking {}", file_name(&file.url)));
            let into = work.path().join(format!("unpacked-{index}"));
            unpack::unpack(&archive, &file.url, &into, cancel)?;
            // The archive is no longer needed, and removing it early only saves space.
            let _ = fs::remove_file(&archive);
            match &bin {
                None => bin = Some(find_binaries(&into, file)?),
                Some(bin) => move_libraries(&into, bin)?,
            }
        }
        let bin =
            bin.ok_or_else(|| PortError::new("the table of llama.cpp builds lists no file"))?;
        say(progress, "checking that it runs".to_owned());
        identify::identify(&bin).map_err(|mut error| {
            error.headline = format!(
                "the official build does not run on this system: {}",
                error.headline
            );
            Stumble::TrySource(error)
        })?;
        Ok(self.move_into_place(&bin, &folder_name(pin.build, pin.backend), cancel)?)
    }

    fn install_source(
        &self,
        pin: &SourcePin,
        backend: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<PathBuf> {
        let work = self.workplace(SPACE_NEEDED)?;
        let site = source::Site {
            work: work.path(),
            tool_path: &self.tool_path,
            cancel,
        };
        let bin = source::build(pin, backend, &site, progress)?;
        say(progress, "checking that it runs".to_owned());
        identify::identify(&bin)?;
        self.move_into_place(&bin, &folder_name(pin.build, backend), cancel)
    }

    fn workplace(&self, needed: u64) -> PortResult<Workplace> {
        if let Some(free) = free_space(&self.runtimes_dir)
            && free < needed
        {
            return Err(PortError::new(format!(
                "installing llama.cpp needs {:.1} GB of free disk space and there is {:.1} GB: {}",
                needed as f64 / 1e9,
                free as f64 / 1e9,
                self.runtimes_dir.display()
            ))
            .hint("Free some space, or choose another data folder with `--data-dir`"));
        }
        Workplace::new(&self.runtimes_dir).map_err(|e| write_error(&self.runtimes_dir, &e))
    }

    /// The one step that makes an install visible.
    fn move_into_place(&self, bin: &Path, name: &str, cancel: &CancelToken) -> PortResult<PathBuf> {
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        // A folder of that name that does not run is left alone: it may be the user's.
        for place in std::iter::once(name.to_owned()).chain((2..100).map(|n| format!("{name}-{n}")))
        {
            let place = self.runtimes_dir.join(place);
            if place.exists() {
                continue;
            }
            match fs::rename(bin, &place) {
                Ok(()) => return Ok(place),
                Err(e) => last = e,
            }
        }
        Err(write_error(&self.runtimes_dir.join(name), &last))
    }
}

/// A failure of the archive route.
enum Stumble {
    /// Of no use to try further.
    Final(PortError),
    /// The source package may still do.
    TrySource(PortError),
}

impl From<PortError> for Stumble {
    fn from(error: PortError) -> Self {
        Self::Final(error)
    }
}

impl From<DownloadError> for Stumble {
    fn from(error: DownloadError) -> Self {
        match error {
            DownloadError::Unreachable(_) => Self::TrySource(error.into()),
            _ => Self::Final(error.into()),
        }
    }
}

/// The temporary folder of one install, locked while in use and removed on every way out.
struct Workplace {
    dir: TempDir,
    _lock: File,
}

impl Workplace {
    fn new(parent: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .tempdir_in(parent)?;
        let lock = File::create(dir.path().join(LOCK_FILE))?;
        lock.try_lock()?;
        Ok(Self { dir, _lock: lock })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes what a killed install or removal left. A folder that cannot be removed now is tried again by the next install.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(TEMP_PREFIX) && !name.starts_with(REMOVING_PREFIX) {
            continue;
        }
        let is_in_use =
            File::open(entry.path().join(LOCK_FILE)).is_ok_and(|lock| lock.try_lock().is_err());
        if !is_in_use && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, dir = %entry.path().display(), "leftovers of an install cannot be removed");
        }
    }
}

/// `b11149-vulkan`.
fn folder_name(build: u64, backend: Backend) -> String {
    format!("b{build}-{}", backend.name())
}

fn file_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

/// The folder with llama-bench in an unpacked archive.
fn find_binaries(root: &Path, file: &ArchiveFile) -> PortResult<PathBuf> {
    /// Official archives have their files at the top, in one folder, or in `build/bin`.
    const DEPTH: u32 = 3;
    let mut level = vec![root.to_owned()];
    for _ in 0..=DEPTH {
        if let Some(found) = level.iter().find(|dir| identify::has_binaries(dir)) {
            return Ok(found.clone());
        }
        level = level.iter().flat_map(|dir| folders_in(dir)).collect();
    }
    Err(PortError::new(format!(
        "the archive holds no llama-bench: {}",
        file.url
    )))
}

fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// Moves the shared libraries of a companion archive beside the binaries that load them.
fn move_libraries(root: &Path, bin: &Path) -> PortResult<()> {
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries = fs::read_dir(&dir)
            .map_err(|e| PortError::caused(format!("cannot read {}", dir.display()), &e))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                dirs.push(entry.path());
            } else if [".so", ".dll", ".dylib"]
                .iter()
                .any(|mark| text.contains(mark))
                && !bin.join(&name).exists()
            {
                fs::rename(entry.path(), bin.join(&name)).map_err(|e| write_error(bin, &e))?;
            }
        }
    }
    Ok(())
}

#[cfg(unix)]
fn free_space(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn free_space(dir: &Path) -> Option<u64> {
    let disks = sysinfo::Disks::new_with_refreshed_list().ok()?;
    let holds = |disk: &&sysinfo::Disk| dir.starts_with(disk.mount_point());
    let disk = disks
        .iter()
        .filter(holds)
        .max_by_key(|disk| disk.mount_point().as_os_str().len())?;
    Some(disk.available_space())
}

fn say(progress: &mut dyn FnMut(InstallProgress), step: String) {
    progress(InstallProgress {
        step,
        fraction: None,
    });
}

fn cancelled() -> PortError {
    PortError::new("the installation was cancelled and nothing of it was kept")
}

fn write_error(path: &Path, error: &io::Error) -> PortError {
    let headline = format!("cannot write {}", path.display());
    let error_of = PortError::caused(headline, error);
    match error.kind() {
        io::ErrorKind::StorageFull => {
            error_of.hint("Free some space, or choose another data folder with `--data-dir`")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => error_of.hint(
            "Give yourself write access to it, or choose another data folder with `--data-dir`",
        ),
        _ => error_of,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_asked_before_an_install() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_space(dir.path()).unwrap() > 0);
        let installer = Installer {
            runtimes_dir: dir.path().to_owned(),
            pins: Pins::default(),
            tool_path: OsString::new(),
        };
        let error = installer.workplace(u64::MAX).err().unwrap();
        assert!(error.headline.contains("GB of free disk space"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
