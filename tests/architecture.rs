//! Fails on an arrow between modules that is not in the design's picture.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

/// Module, and the modules it may name with `crate::`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &["domain"]),
    ("chart", &["domain", "chart"]),
    ("ports", &["domain", "ports"]),
    ("vulkan", &["vulkan"]),
    ("system_root", &["system_root"]),
    ("owner", &["domain", "owner"]),
    (
        "probe",
        &["domain", "ports", "vulkan", "system_root", "owner", "probe"],
    ),
    ("runtime", &["domain", "ports", "owner", "runtime"]),
    ("gguf", &["domain", "ports", "gguf"]),
    ("store", &["domain", "ports", "store"]),
    ("config", &["domain", "ports", "config"]),
    (
        "telemetry",
        &["domain", "ports", "system_root", "telemetry"],
    ),
    ("bandwidth", &["domain", "ports", "vulkan", "bandwidth"]),
    ("lab", &["domain", "ports", "vulkan", "lab"]),
    ("engine", &["domain", "ports", "engine"]),
    (
        "wiring",
        &[
            "domain",
            "ports",
            "config",
            "probe",
            "runtime",
            "gguf",
            "store",
            "telemetry",
            "bandwidth",
            "lab",
            "engine",
            "wiring",
        ],
    ),
    (
        "report",
        &["domain", "ports", "engine", "chart", "owner", "report"],
    ),
    (
        "ui",
        &["domain", "ports", "engine", "chart", "report", "ui"],
    ),
    (
        "cli",
        &["domain", "ports", "engine", "wiring", "report", "ui", "cli"],
    ),
    ("lib", &[]),
    ("main", &[]),
];

/// What the pure core may not touch.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "Instant::now",
    "SystemTime",
];

/// The only files with unsafe code: Vulkan, Linux's parent-death signal, Windows' threads and counters.
const UNSAFE: &[&str] = &[
    "probe/vulkan/raw.rs",
    "runtime/process/group_unix.rs",
    "runtime/process/suspended_windows.rs",
    "telemetry/windows/live.rs",
    "vulkan/buffer.rs",
    "vulkan/device.rs",
    "vulkan/kernel.rs",
    "vulkan/mod.rs",
    "vulkan/physical.rs",
    "vulkan/query.rs",
    "vulkan/queue.rs",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every source file: its name from `src` on, and its text.
fn every_source() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let named = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy();
        (name.replace('\\', "/"), fs::read_to_string(&path).unwrap())
    };
    files.into_iter().map(named).collect()
}

/// The same without tests.
fn every_program_source() -> Vec<(String, String)> {
    let code = |text: String| {
        text.split("mod tests {")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    every_source()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("tests.rs"))
        .map(|(name, text)| (name, code(text)))
        .collect()
}

fn module_of(path: &Path, root: &Path) -> String {
    let first = path
        .strip_prefix(root)
        .unwrap()
        .components()
        .next()
        .unwrap();
    first
        .as_os_str()
        .to_string_lossy()
        .trim_end_matches(".rs")
        .to_owned()
}

/// Names after `crate::` in a line; a grouped import (`crate::{a, b}`) would hide arrows and is refused.
fn targets(line: &str) -> Vec<String> {
    line.match_indices("crate::")
        .map(|(at, _)| {
            let rest = &line[at + "crate::".len()..];
            assert!(
                !rest.starts_with('{'),
                "write one `use crate::module::…` per line: {line}"
            );
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        })
        .collect()
}

#[test]
fn every_arrow_is_in_the_picture() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let module = module_of(&path, &root);
        let allowed = MAY_USE
            .iter()
            .find(|(m, _)| *m == module)
            .unwrap_or_else(|| panic!("module {module} is not in the picture"))
            .1;
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            for target in targets(line) {
                if !allowed.contains(&target.as_str()) {
                    wrong.push(format!("{}: {module} → {target}", path.display()));
                }
            }
            if module == "domain" {
                for word in IMPURE.iter().filter(|w| line.contains(**w)) {
                    wrong.push(format!(
                        "{}: domain is pure, yet names {word}",
                        path.display()
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows not in the picture:\n{}",
        wrong.join("\n")
    );
}

/// Whatever stands in a name or an argument, no shell reads it.
#[test]
fn programs_are_started_in_three_places_and_never_through_a_shell() {
    let mut found = Vec::new();
    for (_, code) in every_program_source() {
        let starts = code.lines().filter(|l| l.contains("Command::new("));
        found.extend(starts.map(|line| line.trim().to_owned()));
    }
    found.sort();
    assert_eq!(
        found,
        [
            "let mut command = Command::new(&self.flux);",
            "let mut command = Command::new(&self.program);",
            "let mut command = Command::new(program);"
        ]
    );
}

/// Nothing leaves the machine but what was asked for: a download of a build, a question to llama.cpp's RPC servers that were
/// named, requests to a llama-server that Flux started.
#[test]
fn connections_are_opened_in_three_places() {
    let opens = [
        "ureq",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "UnixStream",
    ];
    let mut found: Vec<String> = every_program_source()
        .into_iter()
        .filter(|(_, code)| opens.iter().any(|word| code.contains(word)))
        .map(|(name, _)| name)
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "runtime/identify/remote.rs",
            "runtime/install/download.rs",
            "runtime/server/client.rs",
            "runtime/server/http.rs",
            "runtime/server/mod.rs",
        ]
    );
}

#[test]
fn unsafe_code_is_where_it_is_expected_and_says_why_it_is_sound() {
    let mut found = Vec::new();
    for (name, text) in every_source() {
        let lines: Vec<&str> = text.lines().collect();
        let is_unsafe = |line: &str| {
            let code = line.split("//").next().unwrap_or_default();
            ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern"]
                .iter()
                .any(|u| code.contains(u))
        };
        for (at, line) in lines.iter().enumerate().filter(|(_, l)| is_unsafe(l)) {
            // Clippy sees only what is compiled here; this sees Windows' code too.
            let before = &lines[at.saturating_sub(6)..at];
            let is_explained = before
                .iter()
                .any(|l| l.contains("SAFETY:") || l.contains("# Safety"));
            assert!(is_explained, "{name}: no SAFETY comment before: {line}");
            found.push(name.clone());
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, UNSAFE);
}
