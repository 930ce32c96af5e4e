//! Drivers and layers may print; stdout belongs to the command's result. While Vulkan is asked, whatever is written
//! to this process's stdout goes to stderr instead.

/// Undoes the redirection when dropped.
pub(crate) struct QuietStdout {
    #[cfg(unix)]
    saved: Option<rustix::fd::OwnedFd>,
}

impl QuietStdout {
    /// Redirects; does nothing where the system refuses (a closed stdout needs no guarding).
    #[cfg(unix)]
    pub(crate) fn begin() -> Self {
        let saved = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0)
            .ok()
            .filter(|_| rustix::stdio::dup2_stdout(rustix::stdio::stderr()).is_ok());
        Self { saved }
    }

    /// Only Unix drivers have been seen to print.
    #[cfg(not(unix))]
    pub(crate) fn begin() -> Self {
        Self {}
    }
}

#[cfg(unix)]
impl Drop for QuietStdout {
    fn drop(&mut self) {
        if let Some(saved) = &self.saved {
            // Nothing better can be done in a drop: stdout then stays on stderr.
            let _ = rustix::stdio::dup2_stdout(saved);
        }
    }
}
