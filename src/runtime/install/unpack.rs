//! Unpacks a release archive into a folder of its own. Every entry stays inside it or the whole archive is refused;
//! exec bits and inner symbolic links are kept.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::read::GzDecoder;

use crate::ports::{CancelToken, PortError, PortResult};

use super::{cancelled, write_error};

/// No known build unpacks to more, in bytes: a bomb is stopped here.
const LARGEST: u64 = 8_000_000_000;
/// Files, folders and links of an archive; the largest known build has a few dozen.
const MOST_ENTRIES: usize = 10_000;
/// Bytes before an entry's content: its header, with a long name and a long link target. The tar library reads those into
/// memory whatever length they claim.
const LONGEST_HEADER: u64 = 64 << 10;
/// Names that Windows takes for devices, whatever their extension.
const DEVICES: [&str; 6] = ["aux", "con", "conin$", "conout$", "nul", "prn"];
/// Likewise, with a digit behind.
const NUMBERED_DEVICES: [&str; 2] = ["com", "lpt"];
/// A link's target is a path; a longer one in a zip file is refused.
const LONGEST_LINK: u64 = 4096;
/// Bytes copied between two looks at the cancel flag.
const CHUNK: usize = 256 << 10;

/// Unpacks `archive`, whose kind `name` tells (`.zip`, `.tar.gz`), into the new folder `into`.
pub(super) fn unpack(
    archive: &Path,
    name: &str,
    into: &Path,
    cancel: &CancelToken,
) -> PortResult<()> {
    fs::create_dir_all(into).map_err(|e| write_error(into, &e))?;
    let file = File::open(archive)
        .map_err(|e| PortError::caused(format!("cannot read {}", archive.display()), &e))?;
    let mut target = Target {
        root: into,
        links: Vec::new(),
        names: BTreeSet::new(),
        entries: 0,
        written: 0,
        cancel,
    };
    if Path::new(name).extension().is_some_and(|e| e == "zip") {
        unpack_zip(file, &mut target)?;
    } else {
        unpack_tar(file, &mut target)?;
    }
    target.make_links()
}

/// Where entries go. Links are made last, so that no entry is ever written through one.
struct Target<'a> {
    root: &'a Path,
    links: Vec<(PathBuf, PathBuf)>,
    /// Files and links, in lower case: two that differ in nothing else are one on Windows and macOS.
    names: BTreeSet<String>,
    entries: usize,
    written: u64,
    cancel: &'a CancelToken,
}

impl Target<'_> {
    fn count(&mut self) -> PortResult<()> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES {
            return Err(refused(&format!("it holds more than {MOST_ENTRIES} files")));
        }
        Ok(())
    }

    fn take_name(&mut self, path: &Path) -> PortResult<()> {
        if self.names.insert(path.to_string_lossy().to_lowercase()) {
            return Ok(());
        }
        Err(refused(&format!(
            "it holds the same name twice: {}",
            path.display()
        )))
    }

    fn file(&mut self, path: &Path, content: &mut dyn Read, is_program: bool) -> PortResult<()> {
        self.take_name(path)?;
        let to = self.root.join(path);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(|e| write_error(parent, &e))?;
        }
        let mut out = File::create(&to).map_err(|e| write_error(&to, &e))?;
        let mut buffer = vec![0; CHUNK];
        loop {
            if self.cancel.is_cancelled() {
                return Err(cancelled());
            }
            let read = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(damaged(&e)),
            };
            self.written += read as u64;
            if self.written > LARGEST {
                return Err(refused("it unpacks to more than 8 GB"));
            }
            io::Write::write_all(&mut out, &buffer[..read]).map_err(|e| write_error(&to, &e))?;
        }
        set_mode(&out, is_program).map_err(|e| write_error(&to, &e))
    }

    fn folder(&self, path: &Path) -> PortResult<()> {
        let to = self.root.join(path);
        fs::create_dir_all(&to).map_err(|e| write_error(&to, &e))
    }

    fn link(&mut self, path: PathBuf, target: &Path) -> PortResult<()> {
        self.take_name(&path)?;
        if !stays_inside(&path, target) {
            return Err(refused(&format!(
                "it holds a link that leaves it: {}",
                path.display()
            )));
        }
        self.links.push((path, target.to_owned()));
        Ok(())
    }

    /// Folders first: made after a link, one could be made behind it.
    fn make_links(&self) -> PortResult<()> {
        for (path, _) in &self.links {
            self.folder(path.parent().unwrap_or(Path::new("")))?;
        }
        for (path, target) in &self.links {
            let link = self.root.join(path);
            make_link(target, &link).map_err(|e| write_error(&link, &e))?;
        }
        self.check_links()
    }

    /// Links together can lead further than each of them says: `a -> .`, `b -> a/..`.
    fn check_links(&self) -> PortResult<()> {
        let root = self
            .root
            .canonicalize()
            .map_err(|e| write_error(self.root, &e))?;
        for (path, _) in &self.links {
            // A link to nothing leads nowhere.
            if self
                .root
                .join(path)
                .canonicalize()
                .is_ok_and(|end| !end.starts_with(&root))
            {
                return Err(refused(&format!(
                    "it holds a link that leaves it: {}",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

fn unpack_zip(file: File, target: &mut Target<'_>) -> PortResult<()> {
    let mut archive = zip::ZipArchive::new(file).map_err(|e| damaged(&e))?;
    for index in 0..archive.len() {
        target.count()?;
        let mut entry = archive.by_index(index).map_err(|e| damaged(&e))?;
        let name = entry.name().map_err(|e| damaged(&e))?.into_owned();
        // Some Windows tools write back slashes.
        let path = inner_path(Path::new(&name.replace('\\', "/")))?;
        let mode = entry.unix_mode().unwrap_or(0);
        if entry.is_symlink() {
            let mut text = String::new();
            (&mut entry)
                .take(LONGEST_LINK)
                .read_to_string(&mut text)
                .map_err(|e| damaged(&e))?;
            target.link(path, Path::new(&text))?;
        } else if entry.is_dir() {
            target.folder(&path)?;
        } else {
            target.file(&path, &mut entry, mode & 0o111 != 0)?;
        }
    }
    Ok(())
}

fn unpack_tar(file: File, target: &mut Target<'_>) -> PortResult<()> {
    use tar::EntryType;
    let left = Rc::new(Cell::new(0));
    let mut archive = tar::Archive::new(Rationed {
        inner: GzDecoder::new(io::BufReader::new(file)),
        left: Rc::clone(&left),
    });
    let mut entries = archive.entries().map_err(|e| damaged(&e))?;
    loop {
        left.set(LONGEST_HEADER);
        let Some(entry) = entries.next() else {
            break;
        };
        let mut entry = entry.map_err(|e| damaged(&e))?;
        // The content has a limit of its own.
        left.set(u64::MAX);
        target.count()?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader) {
            continue;
        }
        let path = inner_path(&entry.path().map_err(|e| damaged(&e))?)?;
        let mode = entry.header().mode().map_err(|e| damaged(&e))?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                target.file(&path, &mut entry, mode & 0o111 != 0)?;
            }
            EntryType::Directory => target.folder(&path)?,
            EntryType::Symlink => {
                let to = entry
                    .link_name()
                    .map_err(|e| damaged(&e))?
                    .unwrap_or_default()
                    .into_owned();
                target.link(path, &to)?;
            }
            _ => {
                return Err(refused(&format!(
                    "it holds something that is no file: {}",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

/// A reader that gives no more than is left.
struct Rationed<R> {
    inner: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Rationed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other("an entry's header is too long"));
        }
        let room = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..room])?;
        self.left.set(left - read as u64);
        Ok(read)
    }
}

/// The path of an entry, relative and without `.`; anything that could leave the folder is refused.
fn inner_path(path: &Path) -> PortResult<PathBuf> {
    let mut inner = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if is_file_name(&name.to_string_lossy()) => inner.push(name),
            Component::CurDir => {}
            _ => {
                return Err(refused(&format!(
                    "it holds a path that leaves it: {}",
                    path.display()
                )));
            }
        }
    }
    Ok(inner)
}

/// Is this a file of that name on every system, and nothing else? Windows drops dots and spaces at the end, reads what
/// follows a colon as a stream of the file, and some names as devices.
fn is_file_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let stem = stem.to_lowercase();
    let is_numbered = |device: &&str| {
        let number = stem.strip_prefix(*device);
        number.is_some_and(|n| n.chars().count() == 1 && n.chars().all(char::is_numeric))
    };
    !name.contains(|c: char| c == ':' || c.is_control())
        && !name.ends_with(['.', ' '])
        && !DEVICES.contains(&stem.as_str())
        && !NUMBERED_DEVICES.iter().any(is_numbered)
}

/// Does a link at `path` to `target` stay inside the archive?
fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    let is_relative = target.components().all(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            true
        }
        Component::CurDir => true,
        Component::ParentDir if depth > 0 => {
            depth -= 1;
            true
        }
        _ => false,
    });
    is_relative && target.components().next().is_some()
}

#[cfg(unix)]
fn set_mode(file: &File, is_program: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(if is_program {
        0o755
    } else {
        0o644
    }))
}

#[cfg(not(unix))]
fn set_mode(_file: &File, _is_program: bool) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn make_link(target: &Path, link: &Path) -> io::Result<()> {
    let from = link
        .parent()
        .map_or_else(|| target.to_owned(), |dir| dir.join(target));
    fs::copy(from, link).map(|_| ())
}

fn refused(why: &str) -> PortError {
    PortError::new(format!("the archive was refused: {why}")).hint("Do not use this archive")
}

fn damaged(error: &dyn std::error::Error) -> PortError {
    PortError::caused("the archive is damaged", error).hint("Try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_are_refused() {
        assert_eq!(
            inner_path(Path::new("./build/bin/llama-bench")).unwrap(),
            Path::new("build/bin/llama-bench")
        );
        for path in [
            "/etc/passwd",
            "../x",
            "a/../../x",
            "c:/x",
            "a/.. /x",
            "a./x",
            "bin/NUL",
            "con.txt",
            "Com1 .dll",
            "lpt¹",
            "conout$",
            "x\u{1b}[2J",
            "x\ny",
        ] {
            assert!(inner_path(Path::new(path)).is_err(), "{path}");
        }
        for path in ["com/x", "com10", "console.txt", "nullable.so.1", "a b/.x"] {
            assert!(inner_path(Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn links_may_point_inside_only() {
        let stays = |path: &str, target: &str| stays_inside(Path::new(path), Path::new(target));
        assert!(stays("bin/libggml.so", "libggml.so.0"));
        assert!(stays("bin/libggml.so", "../lib/libggml.so.0"));
        assert!(!stays("bin/libggml.so", "../../x"));
        assert!(!stays("libggml.so", "../x"));
        assert!(!stays("bin/x", "/etc/passwd"));
        assert!(!stays("bin/x", ""));
    }
}
