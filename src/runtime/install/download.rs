//! Downloads one pinned file: redirects followed, size and SHA-256 checked while it streams to disk.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sha2::{Digest as _, Sha256};

use crate::domain::types::Bytes;
use crate::ports::{CancelToken, InstallProgress, PortError};

use super::file_name;
use super::pins::ArchiveFile;
use crate::runtime::digest::hex;

/// To find the host, connect and get an answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// A transfer in which nothing arrives for this long has broken off.
const STALL_LIMIT: Duration = Duration::from_mins(1);
/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// Chunks between the reading thread and the writer.
const QUEUE: usize = 16;
/// How often the wait for data looks at the cancel flag.
const TICK: Duration = Duration::from_millis(50);
/// No listed file is larger, in bytes; a server that sends without end is stopped here where no size is pinned.
const LARGEST: u64 = 4_000_000_000;

/// Why a file was not downloaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum DownloadError {
    /// No connection, or the server does not hand the file out.
    #[error("the download cannot be reached ({0})")]
    Unreachable(String),
    /// The connection broke.
    #[error("the download broke off after {got} of {size}: {url}")]
    Broken {
        got: Bytes,
        size: String,
        url: String,
    },
    /// The file is not the pinned one.
    #[error("the download has a wrong checksum and was not used: {0}")]
    Checksum(String),
    /// The job was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The disk.
    #[error("the download cannot be written")]
    Io(#[from] io::Error),
}

impl From<DownloadError> for PortError {
    fn from(error: DownloadError) -> Self {
        let headline = error.to_string();
        match error {
            DownloadError::Cancelled => super::cancelled(),
            DownloadError::Unreachable(_) => {
                Self::new(headline).hint("Check the network and HTTPS_PROXY, then try again")
            }
            DownloadError::Broken { .. } => Self::new(headline).hint("Try again"),
            DownloadError::Checksum(_) => Self::new(headline).hint(
                "Try again; if it stays so, the file was changed on its server or on the way: do not use it",
            ),
            DownloadError::Io(e) => Self::caused(headline, &e),
        }
    }
}

/// What the reading thread sends.
enum Piece {
    Size(Option<u64>),
    Data(Vec<u8>),
    Unreachable(String),
    Broken,
    End,
}

/// Downloads `file` to `to`.
pub(super) fn download(
    file: &ArchiveFile,
    to: &Path,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(InstallProgress),
) -> Result<(), DownloadError> {
    let (pieces, received) = bounded(QUEUE);
    let url = file.url.clone();
    // A blocked read cannot be interrupted; on its own thread it may outlive a cancelled install until its time limit.
    std::thread::Builder::new()
        .name("download".to_owned())
        .spawn(move || fetch(&url, &pieces))?;
    let mut transfer = Transfer {
        file,
        size: file.size,
        got: 0,
        hash: Sha256::new(),
        out: File::create(to)?,
    };
    transfer.receive(&received, cancel, progress)?;
    transfer.out.sync_all()?;
    if hex(&transfer.hash.finalize()) == file.sha256 {
        Ok(())
    } else {
        Err(DownloadError::Checksum(file.url.clone()))
    }
}

struct Transfer<'a> {
    file: &'a ArchiveFile,
    size: Option<u64>,
    got: u64,
    hash: Sha256,
    out: File,
}

impl Transfer<'_> {
    fn receive(
        &mut self,
        received: &Receiver<Piece>,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> Result<(), DownloadError> {
        let mut last = Instant::now();
        progress(self.report());
        loop {
            if cancel.is_cancelled() {
                return Err(DownloadError::Cancelled);
            }
            match received.recv_timeout(TICK) {
                Ok(Piece::Size(size)) => self.size = self.size.or(size),
                Ok(Piece::Data(data)) => {
                    self.take(&data)?;
                    progress(self.report());
                }
                Ok(Piece::Unreachable(why)) => return Err(DownloadError::Unreachable(why)),
                Ok(Piece::End) => return self.check_size(),
                Ok(Piece::Broken) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.broken());
                }
                Err(RecvTimeoutError::Timeout) if last.elapsed() > STALL_LIMIT => {
                    return Err(self.broken());
                }
                Err(RecvTimeoutError::Timeout) => continue,
            }
            last = Instant::now();
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), DownloadError> {
        self.got += data.len() as u64;
        if self.got > self.file.size.unwrap_or(LARGEST) {
            return Err(DownloadError::Checksum(self.file.url.clone()));
        }
        self.hash.update(data);
        Ok(self.out.write_all(data)?)
    }

    fn check_size(&self) -> Result<(), DownloadError> {
        match self.size {
            Some(size) if self.got < size => Err(self.broken()),
            _ => Ok(()),
        }
    }

    fn broken(&self) -> DownloadError {
        let size = self.size.map_or_else(
            || "an unknown size".to_owned(),
            |size| Bytes(size).to_string(),
        );
        DownloadError::Broken {
            got: Bytes(self.got),
            size,
            url: self.file.url.clone(),
        }
    }

    fn report(&self) -> InstallProgress {
        let share = |size: u64| (self.got as f64 / size.max(1) as f64).min(1.0);
        InstallProgress {
            step: format!("downloading {}", file_name(&self.file.url)),
            fraction: self.size.map(share),
        }
    }
}

fn fetch(url: &str, pieces: &Sender<Piece>) {
    // Sending fails when the install has ended before the transfer: nobody is left to tell.
    let _ = match open(url) {
        Ok(response) => {
            let body = response.into_body();
            if pieces.send(Piece::Size(body.content_length())).is_err() {
                return;
            }
            read_all(body.into_reader(), pieces)
        }
        Err(error) => pieces.send(Piece::Unreachable(format!("{error}: {url}"))),
    };
}

fn open(url: &str) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(CONNECT_LIMIT))
        .timeout_recv_response(Some(CONNECT_LIMIT))
        .timeout_per_read(Some(STALL_LIMIT))
        .user_agent(concat!("flux/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::new_with_config(config).get(url).call()
}

fn read_all(
    mut body: impl Read,
    pieces: &Sender<Piece>,
) -> Result<(), crossbeam_channel::SendError<Piece>> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return pieces.send(Piece::End),
            Ok(read) => pieces.send(Piece::Data(buffer[..read].to_vec()))?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return pieces.send(Piece::Broken),
        }
    }
}
