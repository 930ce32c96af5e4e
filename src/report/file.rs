//! Files the user asked for: whole or not at all, and never over another one unasked.

use std::io::Write as _;
use std::path::Path;

use crate::engine::message::JobError;

/// Writes `content` to `path` through a temporary file beside it.
///
/// # Errors
/// The file exists and `replace` is not set; it is a folder; the folder cannot be written; the disk is full. Nothing is left behind.
pub fn write(path: &Path, content: &[u8], replace: bool) -> Result<(), JobError> {
    refused(path, replace)?;
    let dir = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let failed = |e: std::io::Error| {
        let mut error = JobError::new("failed", format!("cannot write {}", path.display()));
        error.cause.push(e.to_string());
        error
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flux-");
    with_usual_permissions(&mut builder);
    let mut file = builder.tempfile_in(dir).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    if replace {
        file.persist(path).map_err(|e| failed(e.error))?;
    } else {
        file.persist_noclobber(path)
            .map_err(|e| match e.error.kind() {
                std::io::ErrorKind::AlreadyExists => exists(path),
                _ => failed(e.error),
            })?;
    }
    Ok(())
}

/// A folder in the file's place, or a file that is not to be replaced.
///
/// # Errors
/// Either is there.
pub fn refused(path: &Path, replace: bool) -> Result<(), JobError> {
    if path.is_dir() {
        let headline = format!("this is a folder: {}", path.display());
        return Err(JobError::new("failed", headline).hint("name a file in it"));
    }
    if !replace && path.symlink_metadata().is_ok() {
        return Err(exists(path));
    }
    Ok(())
}

fn exists(path: &Path) -> JobError {
    let headline = format!("the file exists already: {}", path.display());
    JobError::new("failed", headline).hint("choose another name, or replace it with --force")
}

/// Temporary files are private by default; a result has the permissions of any new file.
#[cfg(unix)]
fn with_usual_permissions(builder: &mut tempfile::Builder) {
    use std::os::unix::fs::PermissionsExt as _;

    builder.permissions(std::fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn with_usual_permissions(_builder: &mut tempfile::Builder) {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_existing_file_is_kept_unless_asked_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        write(&path, b"one", false).unwrap();
        let refused = write(&path, b"two", false).unwrap_err();
        assert_eq!(refused.code, "failed");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        for replace in [false, true] {
            let folder = write(dir.path(), b"three", replace).unwrap_err();
            assert!(folder.headline.starts_with("this is a folder: "));
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        fs::create_dir(&path).unwrap();
        write(&path, b"x", true).unwrap_err();
        write(&dir.path().join("missing/out.csv"), b"x", false).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
