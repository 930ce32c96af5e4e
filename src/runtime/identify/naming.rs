//! What a build is called, from what it says of itself and what lies in its folder.

use std::collections::BTreeSet;
use std::path::Path;

use crate::domain::types::Backend;

use super::text::Version;

/// The backend a library of the build brings: `libggml-vulkan.so.0` → Vulkan.
pub(super) fn library_backend(file: &str) -> Option<Backend> {
    let stem = file
        .strip_prefix("lib")
        .unwrap_or(file)
        .strip_prefix("ggml-")?;
    let name = stem.split(['.', '-']).next()?;
    match name {
        "vulkan" => Some(Backend::Vulkan),
        "cuda" => Some(Backend::Cuda),
        "hip" => Some(Backend::Hip),
        "metal" => Some(Backend::Metal),
        "sycl" => Some(Backend::Sycl),
        "rpc" => Some(Backend::Rpc),
        _ => None,
    }
}

/// `b11149-vulkan` for numbered builds, `0.7.0-cpu` for releases, with the build number of a folder's name where the
/// build itself does not know it.
pub(super) fn proposed_name(version: &Version, backends: &BTreeSet<Backend>, dir: &Path) -> String {
    /// The backend that distinguishes a build, best first; RPC comes along with others.
    const TELLING: [Backend; 5] = [
        Backend::Cuda,
        Backend::Hip,
        Backend::Metal,
        Backend::Sycl,
        Backend::Vulkan,
    ];
    let backend = TELLING
        .into_iter()
        .find(|b| backends.contains(b))
        .unwrap_or(Backend::Cpu);
    let release = version
        .release
        .as_deref()
        .filter(|r| !r.ends_with("-dev") && !r.is_empty());
    let build = match (release, version.number) {
        (Some(release), _) => release.to_owned(),
        (None, number @ 1..) => format!("b{number}"),
        (None, 0) => number_in_path(dir)
            .or_else(|| version.release.clone())
            .unwrap_or_else(|| "unknown".to_owned()),
    };
    format!("{build}-{}", backend.name())
}

/// `b11149` in a part of `/opt/llama-b11149-bin/build/bin`.
fn number_in_path(dir: &Path) -> Option<String> {
    let is_build = |word: &str| {
        word.strip_prefix('b')
            .is_some_and(|n| (4..=6).contains(&n.len()) && n.bytes().all(|c| c.is_ascii_digit()))
    };
    dir.iter().rev().find_map(|part| {
        let part = part.to_string_lossy();
        part.split(['-', '_', '.', ' '])
            .find(|word| is_build(word))
            .map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    fn version(line: &str) -> Version {
        text::version(line).unwrap()
    }

    #[test]
    fn names_are_short_and_tell_build_and_backend() {
        let gpu = BTreeSet::from([Backend::Cpu, Backend::Vulkan, Backend::Rpc]);
        let cpu = BTreeSet::from([Backend::Cpu]);
        let name = |line: &str, backends, dir: &str| {
            proposed_name(&version(line), backends, Path::new(dir))
        };
        assert_eq!(name("version: 6264 (abc1234)", &gpu, "/x"), "b6264-vulkan");
        assert_eq!(
            name("version: 0.7.0 (build 11669, commit Debian)", &cpu, "/x"),
            "0.7.0-cpu"
        );
        assert_eq!(
            name(
                "version: 0.5.0-dev (build 11149, commit d2e54583c)",
                &gpu,
                "/x"
            ),
            "b11149-vulkan"
        );
        let unnumbered = "version: 0.5.0-dev (build 0, commit unknown)";
        assert_eq!(
            name(unnumbered, &gpu, "/rt/b11149-linux-x64-vulkan/bin"),
            "b11149-vulkan"
        );
        assert_eq!(name(unnumbered, &cpu, "/opt/llama.cpp"), "0.5.0-dev-cpu");
    }

    #[test]
    fn libraries_tell_their_backend() {
        assert_eq!(
            library_backend("libggml-vulkan.so.0.25.1"),
            Some(Backend::Vulkan)
        );
        assert_eq!(library_backend("ggml-cuda.dll"), Some(Backend::Cuda));
        assert_eq!(library_backend("libggml-hip.so"), Some(Backend::Hip));
        assert_eq!(library_backend("libggml-cpu-haswell.so"), None);
        assert_eq!(library_backend("libggml.so"), None);
    }
}
