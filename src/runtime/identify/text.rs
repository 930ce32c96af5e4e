//! Reads what llama.cpp's programs print about themselves: version, devices, flags, defaults, backends.
//! Every form was seen on a real build or is quoted in a case; unknown lines are passed over (cases C02, C21).

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::types::{Backend, Bytes, RuntimeDevice};

/// What `--version` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The line in full.
    pub line: String,
    /// Release name (`0.7.0`, `0.5.0-dev`), which builds before 2026 did not print.
    pub release: Option<String>,
    /// Build number; 0 when built from an archive.
    pub number: u64,
    /// Commit; `unknown` when built from an archive.
    pub commit: String,
}

impl Version {
    /// The version of a build that does not tell it.
    pub fn unknown() -> Self {
        Self {
            line: "version: unknown".to_owned(),
            release: None,
            number: 0,
            commit: "unknown".to_owned(),
        }
    }
}

/// The version among banners and log lines:
/// `version: 0.7.0 (build 11669, commit Debian)` or, before that form, `version: 6264 (abc1234)`.
pub fn version(text: &str) -> Option<Version> {
    text.lines().map(str::trim).find_map(version_line)
}

fn version_line(line: &str) -> Option<Version> {
    let rest = line.strip_prefix("version:")?.trim();
    let (first, brackets) = rest.split_once('(')?;
    let (first, inside) = (first.trim(), brackets.trim_end_matches(')').trim());
    let built = |number: &str, commit: &str, release: Option<&str>| {
        Some(Version {
            line: line.to_owned(),
            release: release.map(str::to_owned),
            number: number.trim().parse().ok()?,
            commit: commit.trim().to_owned(),
        })
    };
    match inside.strip_prefix("build ") {
        Some(build) => {
            let (number, commit) = build.split_once(',')?;
            let commit = commit.trim().strip_prefix("commit ")?;
            built(number, commit, Some(first))
        }
        None => built(first.trim_start_matches('b'), inside, None),
    }
}

/// The devices below `Available devices:`, e.g. `  Vulkan0: NVIDIA H200 (143771 MiB, 143139 MiB free)`.
pub fn devices(text: &str) -> Vec<RuntimeDevice> {
    text.lines()
        .skip_while(|line| !line.trim_start().starts_with("Available devices"))
        .skip(1)
        .filter_map(device_line)
        .collect()
}

fn device_line(line: &str) -> Option<RuntimeDevice> {
    let (id, rest) = line.strip_prefix(' ')?.trim().split_once(": ")?;
    let (name, memory) = rest.rsplit_once(" (")?;
    let (total, free) = memory.strip_suffix(" free)")?.split_once(", ")?;
    let mib = |text: &str| {
        let number: u64 = text.strip_suffix(" MiB")?.trim().parse().ok()?;
        Some(Bytes::mib(number))
    };
    Some(RuntimeDevice {
        id: id.to_owned(),
        name: name.to_owned(),
        total: mib(total)?,
        free: mib(free)?,
    })
}

/// Flags and stock defaults of a `--help`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Help {
    /// Long flags.
    pub flags: BTreeSet<String>,
    /// The value in `(default: …)`, by long flag.
    pub defaults: BTreeMap<String, String>,
}

/// Flag lines start at most this far in; anything further right is a description that wrapped.
const FLAG_INDENT: usize = 8;

/// Reads a `--help`: each flag line names its long forms, and it or the wrapped lines below it the default.
pub fn help(text: &str) -> Help {
    let mut help = Help::default();
    let mut current: Vec<String> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if indent <= FLAG_INDENT && line.trim_start().starts_with('-') {
            current = long_flags(line);
            help.flags.extend(current.iter().cloned());
        } else if indent <= FLAG_INDENT {
            current.clear();
        }
        if let Some(value) = default_in(line) {
            for flag in &current {
                help.defaults
                    .entry(flag.clone())
                    .or_insert_with(|| value.clone());
            }
        }
    }
    help
}

fn long_flags(line: &str) -> Vec<String> {
    line.split_whitespace()
        .take_while(|word| word.starts_with('-'))
        .filter(|word| word.starts_with("--"))
        .map(|word| word.trim_end_matches(',').to_owned())
        .filter(|flag| flag.len() > 2 && flag.chars().nth(2).is_some_and(char::is_alphanumeric))
        .collect()
}

fn default_in(line: &str) -> Option<String> {
    const MARK: &str = "(default: ";
    let rest = &line[line.find(MARK)? + MARK.len()..];
    let mut depth = 1_u32;
    let end = rest.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    });
    // A default that wraps to the next line is cut at the line's end.
    Some(rest[..end.unwrap_or(rest.len())].trim().to_owned())
}

/// Backends that a program's banners name, also those that found no device (`ggml_vulkan: No devices found.`).
pub fn backends(text: &str) -> BTreeSet<Backend> {
    const BANNERS: [(&str, Backend); 6] = [
        ("ggml_vulkan:", Backend::Vulkan),
        ("ggml_cuda_init:", Backend::Cuda),
        ("ggml_metal", Backend::Metal),
        ("ggml_sycl", Backend::Sycl),
        ("[SYCL]", Backend::Sycl),
        ("ggml_hip_init:", Backend::Hip),
    ];
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim_start) {
        // The HIP backend is the CUDA one recompiled and keeps its banner, but counts ROCm devices.
        if line.starts_with("ggml_cuda_init:") && line.contains("ROCm") {
            found.insert(Backend::Hip);
        } else if let Some((_, backend)) = BANNERS.iter().find(|(mark, _)| line.starts_with(mark)) {
            found.insert(*backend);
        } else if let Some(rest) = line.strip_prefix("load_backend: loaded ") {
            found.extend(rest.split_whitespace().next().and_then(Backend::of_device));
        }
    }
    found
}

/// The CPU library in `load_backend: loaded CPU backend from …/libggml-cpu-haswell.so`.
pub fn cpu_variant(text: &str) -> Option<String> {
    let path = text.lines().find_map(|l| {
        l.trim()
            .strip_prefix("load_backend: loaded CPU backend from ")
    })?;
    path.trim().rsplit(['/', '\\']).next().map(str::to_owned)
}

/// Why a program does not start on this machine, and what helps, where its output says so.
pub fn missing_part(text: &str) -> Option<(String, String)> {
    missing_library(text)
        .map(|library| {
            let hint = package_of(&library);
            (
                format!("it needs the shared library {library}, which is not here"),
                hint,
            )
        })
        .or_else(|| {
            let symbol = text.lines().find_map(|line| {
                let (_, rest) = line.split_once("version `")?;
                let (symbol, rest) = rest.split_once('\'')?;
                rest.contains("not found").then(|| symbol.to_owned())
            })?;
            Some((
                format!("it was built for a newer system ({symbol} is missing)"),
                "Build llama.cpp on this machine instead: `flux runtime install`".to_owned(),
            ))
        })
}

fn missing_library(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        if let Some((_, rest)) = line.split_once("error while loading shared libraries: ") {
            return rest.split(':').next().map(|name| name.trim().to_owned());
        }
        let (_, rest) = line.split_once("Library not loaded: ")?;
        rest.trim().rsplit('/').next().map(str::to_owned)
    })
}

/// What brings a library, on Debian by package name.
fn package_of(library: &str) -> String {
    const PACKAGES: [(&str, &str); 9] = [
        ("libvulkan.so", "libvulkan1"),
        ("libgomp.so", "libgomp1"),
        ("libomp.so", "libomp5"),
        ("libcurl.so", "libcurl4"),
        ("libssl.so", "libssl3"),
        ("libcrypto.so", "libssl3"),
        ("libopenblas.so", "libopenblas0"),
        ("libstdc++.so", "libstdc++6"),
        ("libOpenCL.so", "ocl-icd-libopencl1"),
    ];
    let starts = |names: &[&str]| names.iter().any(|name| library.starts_with(name));
    if let Some((_, package)) = PACKAGES.iter().find(|(name, _)| library.starts_with(name)) {
        return format!("Install it, on Debian and Ubuntu: `apt install {package}`");
    }
    if starts(&["libcuda.so", "libnvidia"]) {
        return "Install NVIDIA's driver, or use a build for another backend".to_owned();
    }
    if starts(&["libcudart", "libcublas", "libnccl"]) {
        return "Install NVIDIA's CUDA runtime of that version beside the build, or use a build for another backend"
            .to_owned();
    }
    if starts(&["libamdhip", "librocblas", "libhipblas"]) {
        return "Install AMD's ROCm runtime, or use a build for another backend".to_owned();
    }
    if starts(&["libggml", "libllama", "libmtmd"]) {
        return "The folder is incomplete, often because its symbolic links were lost in a copy: copy it again with \
                links, or install a build with `flux runtime install`"
            .to_owned();
    }
    "Install the package of your system that brings it".to_owned()
}
