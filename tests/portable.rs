//! Every name that this repository or Flux itself gives a file can be one on Windows and macOS too.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use flux::domain::types::Backend;
use flux::gguf::GgufModels;
use flux::ports::Models as _;
use flux::report::Format;

/// What Windows takes for a device, with any extension (learn.microsoft.com, "Naming Files, Paths, and Namespaces").
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
/// Longest path of a file in the tree, characters: 260 less the folder that somebody clones it into.
const LONGEST: usize = 180;

/// Can a file or folder have this name everywhere?
fn is_portable(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let upper = stem.to_uppercase();
    let numbered = upper.strip_prefix("COM").or(upper.strip_prefix("LPT"));
    let is_port = numbered.is_some_and(|n| {
        let mut rest = n.chars();
        matches!(rest.next(), Some('0'..='9' | '¹' | '²' | '³')) && rest.next().is_none()
    });
    let is_bad = |c: char| {
        c.is_control() || matches!(c, '<' | '>' | ':' | '"' | '/' | '\\' | '|' | '?' | '*')
    };
    !name.is_empty()
        && !name.ends_with(['.', ' '])
        && !name.contains(is_bad)
        && !DEVICES.contains(&upper.as_str())
        && !is_port
}

#[test]
fn what_windows_refuses_is_known() {
    for bad in [
        "",
        "con",
        "Con.txt",
        "nul.tar.gz",
        "AUX .c",
        "COM1",
        "lpt9.log",
        "COM¹",
        "conin$",
        "a.",
        "a ",
        "a:b",
        "a\\b",
        "a?",
        "\u{1b}",
    ] {
        assert!(!is_portable(bad), "{bad:?}");
    }
    for good in [
        "console",
        "com",
        "com10",
        "lpt.x",
        ".gitignore",
        "b11149-cuda",
        "модель",
        "a b",
    ] {
        assert!(is_portable(good), "{good:?}");
    }
}

#[test]
fn what_flux_names_by_itself_can_be_a_file_everywhere() {
    let backends = ["cpu", "vulkan", "cuda", "hip", "metal", "sycl", "rpc"];
    let backends = backends.map(|b| serde_json::from_value::<Backend>(b.into()).unwrap());
    let folders = backends.iter().map(|b| format!("b11149-{}", b.name()));
    let models = GgufModels.shapes().into_iter().map(|s| format!("{s}.gguf"));
    let files = Format::MEASURED.iter().chain(&Format::PROFILE);
    let files = files.map(|f| f.file_name(1));
    for name in folders.chain(models).chain(files) {
        assert!(is_portable(&name), "{name}");
    }
}

fn walk(dir: &Path, within: &str, seen: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{within}{name}");
        if matches!(path.as_str(), ".git" | "target" | "shared") {
            continue;
        }
        assert!(is_portable(&name), "{path}");
        assert!(path.chars().count() <= LONGEST, "{path}");
        assert!(
            seen.insert(path.to_lowercase()),
            "differs in case alone: {path}"
        );
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{path}/"), seen);
        }
    }
}

#[test]
fn the_tree_can_be_checked_out_everywhere() {
    let mut seen = BTreeSet::new();
    walk(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut seen);
    assert!(seen.contains("src/lib.rs"));
}
