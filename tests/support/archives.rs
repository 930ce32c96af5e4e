//! Archives of llama.cpp, good and bad, and their installation into a fresh data folder.

use std::ffi::OsString;
use std::fs;
use std::io::{Cursor, Write as _};

use flux::domain::types::{Backend, Runtime};
use flux::ports::{CancelToken, InstallProgress, PortError, Runtimes as _};
use flux::runtime::catalog::Catalog;
use flux::runtime::install::{ArchiveFile, ArchivePin, Pins};
use sha2::{Digest as _, Sha256};

use crate::shell_runtime::{Says, script};

/// One entry of an archive: path, mode, content.
pub type Entry<'a> = (&'a str, u32, &'a str);

pub fn bench() -> String {
    script(&Says::default())
}

pub fn tar_gz(files: &[Entry<'_>], links: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    let header = |path: &str, kind, mode, size| {
        let mut header = tar::Header::new_gnu();
        // Written as bytes: the library itself refuses the paths that must be tried here.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header
    };
    for (path, mode, content) in files {
        let mut header = header(path, tar::EntryType::Regular, *mode, content.len() as u64);
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    for (path, target) in links {
        let mut header = header(path, tar::EntryType::Symlink, 0o777, 0);
        header.set_link_name_literal(target).unwrap();
        header.set_cksum();
        tar.append(&header, std::io::empty()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// One entry of any kind, and a GNU long name before it where the name is too long for a header.
pub fn tar_gz_of(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for (kind, name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_link_name_literal("llama-bench").unwrap();
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

pub fn zip(files: &[Entry<'_>]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, mode, content) in files {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(*mode);
        zip.start_file(*path, options).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

pub fn good_archive() -> Vec<u8> {
    tar_gz(
        &[
            ("llama-b7/llama-bench", 0o755, &bench()),
            ("llama-b7/libggml.so.0", 0o644, "\x7fELFcode"),
            ("llama-b7/LICENSE", 0o644, "MIT"),
        ],
        &[("llama-b7/libggml.so", "libggml.so.0")],
    )
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// An installation into a fresh data folder.
pub struct Case {
    pub data: tempfile::TempDir,
    pub pins: Pins,
    pub tool_path: OsString,
}

impl Case {
    pub fn new(url: String, archive: &[u8]) -> Self {
        let file = ArchiveFile {
            url,
            size: Some(archive.len() as u64),
            sha256: sha256(archive),
        };
        let pin = ArchivePin {
            build: 7,
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            backend: Backend::Cpu,
            files: vec![file],
        };
        let pins = Pins {
            archives: vec![pin],
            source: None,
        };
        Self {
            data: tempfile::tempdir().unwrap(),
            pins,
            tool_path: OsString::new(),
        }
    }

    pub fn catalog(&self) -> Catalog {
        Catalog::with(
            self.data.path(),
            Vec::new(),
            Ok(self.pins.clone()),
            self.tool_path.clone(),
        )
    }

    pub fn install(&self) -> (Result<Runtime, PortError>, Vec<InstallProgress>) {
        let mut reports = Vec::new();
        let result = self
            .catalog()
            .install(Backend::Cpu, &CancelToken::new(), &mut |report| {
                reports.push(report);
            });
        (result, reports)
    }

    /// Names in the folder of installed builds, hidden ones too.
    pub fn installed(&self) -> Vec<String> {
        let dir = fs::read_dir(self.data.path().join("runtimes")).unwrap();
        let mut names: Vec<_> = dir
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub fn fails_leaving_nothing(&self) -> PortError {
        let error = self.install().0.unwrap_err();
        assert_eq!(self.installed(), Vec::<String>::new());
        error
    }
}
