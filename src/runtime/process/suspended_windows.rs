//! A process that was created suspended goes on: what std has no stable way to say.
#![expect(
    unsafe_code,
    reason = "a snapshot of threads is read and a thread resumed by calls of the system"
)]

use std::io;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::Threading::{OpenThread, ResumeThread, THREAD_SUSPEND_RESUME};

/// Lets every thread of a process run; a suspended one has its first alone.
///
/// # Errors
/// The system tells of no thread of it, or will not let it run.
pub(super) fn resume(process: u32) -> io::Result<()> {
    let mut is_found = false;
    for thread in threads_of(process)? {
        is_found = true;
        // SAFETY: takes plain numbers; what it returns is checked.
        let thread = owned(unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, thread) })?;
        // SAFETY: the handle is open, with the right to resume.
        if unsafe { ResumeThread(thread.as_raw_handle()) } == u32::MAX {
            return Err(io::Error::last_os_error());
        }
    }
    if is_found {
        Ok(())
    } else {
        Err(io::Error::other("the process has no thread to resume"))
    }
}

fn threads_of(process: u32) -> io::Result<Vec<u32>> {
    // SAFETY: takes plain numbers; what it returns is checked.
    let snapshot = owned(unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) })?;
    let mut entry = THREADENTRY32 {
        dwSize: size_of::<THREADENTRY32>() as u32,
        ..Default::default()
    };
    let mut found = Vec::new();
    // SAFETY: the snapshot is open, and the entry lives, with its size in it as the call wants it.
    let mut is_there = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    while is_there {
        if entry.th32OwnerProcessID == process {
            found.push(entry.th32ThreadID);
        }
        // SAFETY: as above.
        is_there = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) } != 0;
    }
    Ok(found)
}

fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just handed out this handle, and nothing else closes it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}
