//! Past the page cache: `O_DIRECT` on Linux, `F_NOCACHE` on macOS; what was cached is given up where neither works.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// Opens a model for reading.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// A file without a name: it is gone with its handle, even where the process is killed.
pub(super) fn temporary(dir: &Path) -> io::Result<File> {
    tempfile::tempfile_in(dir)
}

/// Reads past the page cache from now on; the error says that the file system cannot.
pub(super) fn bypass(file: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        let flags = fcntl_getfl(file)?;
        fcntl_setfl(file, flags | OFlags::DIRECT)?;
        Ok(())
    }
    #[cfg(target_vendor = "apple")]
    {
        Ok(rustix::fs::fcntl_nocache(file, true)?)
    }
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    {
        let _ = file;
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// Reads through the page cache again.
pub(super) fn through(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        // A flag that cannot be taken back shows in the next read.
        let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags - OFlags::DIRECT));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Asks the system to drop what it keeps of the file; it may decline.
pub(super) fn forget(file: &File) {
    #[cfg(not(target_vendor = "apple"))]
    {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }
    #[cfg(target_vendor = "apple")]
    let _ = file;
}

/// The file is kept in RAM: reading it says nothing of a disk.
pub(super) fn in_memory(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        /// `TMPFS_MAGIC` and `RAMFS_MAGIC` of linux/magic.h.
        const KINDS: [u64; 2] = [0x0102_1994, 0x8584_58f6];
        rustix::fs::fstatfs(file).is_ok_and(|s| KINDS.contains(&((s.f_type as u64) & 0xffff_ffff)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}

/// Parts of the file are on no disk: holes, or data that the file system has compressed.
pub(super) fn has_holes(file: &File) -> io::Result<bool> {
    /// Unit of `st_blocks`, whatever the file system's own (inode(7)).
    const UNIT: u64 = 512;
    let metadata = file.metadata()?;
    Ok(metadata.blocks() * UNIT < metadata.len())
}

/// Fills `buffer` from `offset` on.
pub(super) fn read(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(buffer, offset)
}
