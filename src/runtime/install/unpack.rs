//! Unpacks a release archive into a folder of its own. Every entry stays inside it or the whole archive is refused;
//! exec bits and inner symbolic links are kept.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;

use crate::ports::{CancelToken, PortError, PortResult};

use super::{cancelled, write_error};

/// No known build unpacks to more, in bytes: a bomb is stopped here.
const LARGEST: u64 = 8_000_000_000;
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
    written: u64,
    cancel: &'a CancelToken,
}

impl Target<'_> {
    fn file(&mut self, path: &Path, content: &mut dyn Read, is_program: bool) -> PortResult<()> {
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
        if !stays_inside(&path, target) {
            return Err(refused(&format!(
                "it holds a link that leaves it: {}",
                path.display()
            )));
        }
        self.links.push((path, target.to_owned()));
        Ok(())
    }

    fn make_links(&self) -> PortResult<()> {
        for (path, target) in &self.links {
            let link = self.root.join(path);
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent).map_err(|e| write_error(parent, &e))?;
                // A link made before this one could lead its folder elsewhere.
                let inside = parent
                    .canonicalize()
                    .and_then(|p| Ok(p.starts_with(self.root.canonicalize()?)));
                if !matches!(inside, Ok(true)) {
                    return Err(refused(&format!(
                        "it holds a link behind a link: {}",
                        path.display()
                    )));
                }
            }
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
    let mut archive = tar::Archive::new(GzDecoder::new(io::BufReader::new(file)));
    for entry in archive.entries().map_err(|e| damaged(&e))? {
        let mut entry = entry.map_err(|e| damaged(&e))?;
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

/// The path of an entry, relative and without `.`; anything that could leave the folder is refused.
fn inner_path(path: &Path) -> PortResult<PathBuf> {
    let mut inner = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.to_string_lossy().contains(':') => inner.push(name),
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
        for path in ["/etc/passwd", "../x", "a/../../x", "c:/x"] {
            assert!(inner_path(Path::new(path)).is_err(), "{path}");
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
