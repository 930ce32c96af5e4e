//! Past the page cache: `FILE_FLAG_NO_BUFFERING`, given when a file is opened.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// `FILE_FLAG_NO_BUFFERING` and `FILE_FLAG_DELETE_ON_CLOSE` of fileapi.h.
const NO_BUFFERING: u32 = 0x2000_0000;
const DELETE_ON_CLOSE: u32 = 0x0400_0000;
/// `FILE_ATTRIBUTE_SPARSE_FILE` and `FILE_ATTRIBUTE_COMPRESSED` of winnt.h.
const SPARSE: u32 = 0x200;
const COMPRESSED: u32 = 0x800;

/// Opens a model for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(NO_BUFFERING)
        .open(path)
}

/// A file that is gone with its handle, even where the process is killed.
pub(super) fn temporary(dir: &Path) -> io::Result<File> {
    let made = tempfile::Builder::new().make_in(dir, |path| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .custom_flags(NO_BUFFERING | DELETE_ON_CLOSE)
            .open(path)
    })?;
    let (file, path) = made.into_parts();
    // The system deletes it: a second deletion by name would find nothing.
    let _ = path.keep();
    Ok(file)
}

/// It was opened so.
pub(super) fn bypass(_: &File) -> io::Result<()> {
    Ok(())
}

/// The flags of an open file stay.
pub(super) fn through(_: &File) {}

/// Nothing was kept.
pub(super) fn forget(_: &File) {}

/// Windows has no such file system of its own.
pub(super) fn in_memory(_: &File) -> bool {
    false
}

/// Parts of the file are on no disk: holes, or data that the file system has compressed.
pub(super) fn has_holes(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.file_attributes() & (SPARSE | COMPRESSED) != 0)
}

/// Fills `buffer` from `offset` on.
pub(super) fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.seek_read(&mut buffer[done..], offset + done as u64)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            more => done += more,
        }
    }
    Ok(())
}
