//! The identity of a llama.cpp build: SHA-256 over the binaries and libraries that do the work (design section 3:
//! a build from an archive reports build 0, so its number identifies nothing). Wrapper scripts and links do not count.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha2::{Digest as _, Sha256};

/// Programs Flux runs.
const PROGRAMS: [&str; 3] = ["llama-bench", "llama-server", "llama-fit-params"];
/// llama.cpp's own libraries by the start of their names, for folders shared with other software.
const OWN_LIBRARIES: [&str; 3] = ["ggml", "llama", "mtmd"];
/// Library folders looked at beside the folder of the programs (packages of distributions, Homebrew).
const SHARED_FOLDERS: [&str; 4] = [
    "../lib",
    "../lib64",
    "../lib/x86_64-linux-gnu",
    "../lib/aarch64-linux-gnu",
];
/// How deep llama.cpp's own subfolders of these are followed: Debian has `ggml/backends0`.
const SHARED_DEPTH: u32 = 2;
/// Bytes hashed at a time.
const CHUNK: usize = 256 << 10;

/// One file of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeFile {
    /// Its own path, links resolved.
    pub path: PathBuf,
    /// Its name, links resolved: what it is called in the digest.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Last change, nanoseconds since 1970; 0 where the file system does not say.
    pub modified_ns: u128,
}

/// The files that do the work of the build in `dir`, sorted by name: programs and every library in `dir` and its
/// `lib`, and llama.cpp's own libraries in the folders around. Where all programs are scripts, the scripts count.
///
/// # Errors
/// `dir` cannot be read.
pub fn runtime_files(dir: &Path) -> io::Result<Vec<RuntimeFile>> {
    let mut found = BTreeMap::new();
    collect(dir, Library::Any, &mut found)?;
    for (folder, libraries) in around(dir) {
        // Most of these folders do not exist on any one system.
        let _ = collect(&folder, libraries, &mut found);
    }
    if found.is_empty() {
        for entry in fs::read_dir(dir)?.flatten() {
            if is_program(&entry.file_name().to_string_lossy()) {
                insert(&entry.path(), &mut found);
            }
        }
    }
    let mut files: Vec<_> = found.into_values().collect();
    files.sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    Ok(files)
}

/// Which libraries of a folder belong to the build.
#[derive(Clone, Copy)]
enum Library {
    /// The folder is the build's own: all of them (a bundled OpenMP runtime changes speed, too).
    Any,
    /// Others use the folder: llama.cpp's own, in its own subfolders to this depth too.
    Own(u32),
}

/// `lib` inside, and the library folders around the programs, seen from the folder and from where its links lead.
fn around(dir: &Path) -> Vec<(PathBuf, Library)> {
    let mut folders = vec![(dir.join("lib"), Library::Any)];
    let linked = PROGRAMS.iter().find_map(|name| {
        let program = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        program.canonicalize().ok()?.parent().map(Path::to_owned)
    });
    let mut homes = vec![dir.to_owned()];
    if let Some(home) = linked.filter(|home| home != dir) {
        folders.push((home.clone(), Library::Own(0)));
        homes.push(home);
    }
    for home in homes {
        folders.extend(
            SHARED_FOLDERS
                .iter()
                .map(|folder| (home.join(folder), Library::Own(SHARED_DEPTH))),
        );
    }
    folders
}

fn collect(
    dir: &Path,
    libraries: Library,
    found: &mut BTreeMap<PathBuf, RuntimeFile>,
) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_wanted = is_program(&name)
            || match libraries {
                Library::Any => is_library(&name),
                Library::Own(_) => is_library(&name) && is_own(&name),
            };
        if is_wanted && is_machine_code(&entry.path()) {
            insert(&entry.path(), found);
        } else if let Library::Own(depth @ 1..) = libraries
            && (is_own(&name) || name.starts_with("backends"))
            && entry.path().is_dir()
        {
            collect(&entry.path(), Library::Own(depth - 1), found)?;
        }
    }
    Ok(())
}

fn insert(path: &Path, found: &mut BTreeMap<PathBuf, RuntimeFile>) {
    let Ok(path) = path.canonicalize() else {
        return;
    };
    let Ok(meta) = fs::metadata(&path) else {
        return;
    };
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let age = meta
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let file = RuntimeFile {
        name,
        size: meta.len(),
        modified_ns: age.map_or(0, |age| age.as_nanos()),
        path: path.clone(),
    };
    found.insert(path, file);
}

/// `llama-bench`, `llama-bench.exe`, and what wrapper scripts call: `llama-bench.bin`, `.llama-bench-wrapped`.
fn is_program(name: &str) -> bool {
    let stem = name
        .strip_suffix(".exe")
        .or_else(|| name.strip_suffix(".bin"))
        .unwrap_or(name);
    let stem = stem
        .strip_prefix('.')
        .and_then(|s| s.strip_suffix("-wrapped"))
        .unwrap_or(stem);
    PROGRAMS.contains(&stem)
}

fn is_library(name: &str) -> bool {
    let has_extension = |extension: &str| {
        Path::new(name)
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case(extension))
    };
    name.contains(".so.") || ["so", "dll", "dylib"].into_iter().any(has_extension)
}

fn is_own(name: &str) -> bool {
    let stem = name.strip_prefix("lib").unwrap_or(name);
    OWN_LIBRARIES.iter().any(|own| stem.starts_with(own))
}

/// Does the file start as ELF, PE or Mach-O does?
fn is_machine_code(path: &Path) -> bool {
    let mut start = [0_u8; 4];
    if File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_err()
    {
        return false;
    }
    let is_mach = |magic: u32| matches!(magic, 0xfeed_face | 0xfeed_facf | 0xcafe_babe);
    start == *b"\x7fELF"
        || start.starts_with(b"MZ")
        || is_mach(u32::from_be_bytes(start))
        || is_mach(u32::from_le_bytes(start))
}

/// SHA-256 over name and content of `files`, and over the variables kept with the build, lower-case hex. Where the folder
/// lies does not matter.
///
/// # Errors
/// A file cannot be read.
pub fn digest(files: &[RuntimeFile], env: &BTreeMap<String, String>) -> io::Result<String> {
    let mut all = Sha256::new();
    for file in files {
        all.update(file.name.as_bytes());
        all.update([0]);
        all.update(content_digest(&file.path)?);
    }
    for (name, value) in env {
        all.update(format!("{name}={value}\0"));
    }
    Ok(hex(&all.finalize()))
}

/// A short text that changes when a file is added, removed, or changes its size or time: when to identify anew.
pub fn stamp(files: &[RuntimeFile]) -> String {
    let mut all = Sha256::new();
    for file in files {
        all.update(file.path.as_os_str().as_encoded_bytes());
        all.update(format!("\0{}\0{}\n", file.size, file.modified_ns));
    }
    hex(&all.finalize())
}

fn content_digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(read) => hash.update(&buffer[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// SHA-256 of a text, lower-case hex.
pub(super) fn text_digest(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_libraries_are_told_by_name() {
        for name in [
            "llama-bench",
            "llama-server.exe",
            "llama-bench.bin",
            ".llama-server-wrapped",
        ] {
            assert!(is_program(name), "{name}");
        }
        assert!(!is_program("llama-cli") && !is_program("llama-bench.txt"));
        for name in [
            "libggml.so",
            "libggml.so.0.25.1",
            "ggml-vulkan.dll",
            "libllama.dylib",
        ] {
            assert!(is_library(name) && is_own(name), "{name}");
        }
        assert!(is_library("libgomp.so.1") && !is_own("libgomp.so.1"));
        assert!(!is_library("notes.txt") && !is_library("libggml.sock"));
    }

    #[test]
    fn hex_is_lower_case_and_padded() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
    }

    #[test]
    fn the_digest_is_that_of_names_contents_and_variables() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("llama-bench"), b"\x7fELF").unwrap();
        let files = runtime_files(dir.path()).unwrap();
        // printf '\x7fELF' | sha256sum → f12d…; printf 'llama-bench\0' + its 32 bytes | sha256sum.
        let mut expected = Sha256::new();
        expected.update(b"llama-bench\0");
        expected.update(Sha256::digest(b"\x7fELF"));
        let plain = expected.clone().finalize();
        assert_eq!(digest(&files, &BTreeMap::new()).unwrap(), hex(&plain));
        expected.update(b"GGML_VK_VISIBLE_DEVICES=0\0");
        let env = BTreeMap::from([("GGML_VK_VISIBLE_DEVICES".to_owned(), "0".to_owned())]);
        assert_eq!(digest(&files, &env).unwrap(), hex(&expected.finalize()));
    }
}
