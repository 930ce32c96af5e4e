//! What Flux is made of: licences, where dependencies come from, the compiler they need. `.cargo/deny.toml` has the rules.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::process::Command;

use serde_json::Value;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn table(file: &str) -> toml::Table {
    fs::read_to_string(file).unwrap().parse().unwrap()
}

/// Every package that is compiled on this system, tests included.
fn packages() -> Vec<Value> {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|l| l.strip_prefix("host: "));
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--all-features", "--filter-platform", host.unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = document["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 300, "{}", packages.len());
    packages
}

/// Is one alternative of each part allowed? Old manifests write `/` for OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    let parts: Vec<&str> = expression.split(" AND ").collect();
    parts.iter().all(|part| {
        let inner = part.strip_prefix('(').and_then(|p| p.strip_suffix(')'));
        // AND binds stronger than OR: `A OR B AND C` is no list of parts.
        assert!(
            inner.is_some() || parts.len() == 1 || !part.contains(" OR "),
            "{expression}"
        );
        let mut names = inner.unwrap_or(part).split(" OR ").map(str::trim);
        names.any(|name| allowed.contains(&name))
    })
}

#[test]
fn every_dependency_has_an_allowed_licence_and_builds_with_the_stated_compiler() {
    let rules = table(".cargo/deny.toml");
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: Vec<&str> = allowed.iter().map(|l| l.as_str().unwrap()).collect();
    let number =
        |version: &str| -> Vec<u32> { version.split('.').map(|n| n.parse().unwrap()).collect() };
    let stated = number(
        table("Cargo.toml")["package"]["rust-version"]
            .as_str()
            .unwrap(),
    );
    for package in packages() {
        let name = &package["name"];
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(
            is_allowed(licence, &allowed),
            "{name} has the licence {licence}"
        );
        if let Some(needed) = package["rust_version"].as_str() {
            let needed = number(needed);
            assert!(needed[..2] <= stated[..2], "{name} needs Rust {needed:?}");
        }
    }
    assert!(!is_allowed("GPL-3.0-only", &allowed));
    assert!(!is_allowed("MIT AND GPL-3.0-only", &allowed));
    assert!(is_allowed("(GPL-2.0 OR MIT) AND Zlib", &allowed));
}

/// Of every system, in both lock files.
#[test]
fn every_dependency_comes_from_the_registry_with_a_checksum() {
    for (file, least) in [("Cargo.lock", 600), ("tests/fuzz/Cargo.lock", 200)] {
        let lock = table(file);
        let packages = lock["package"].as_array().unwrap();
        assert!(packages.len() > least, "{file}: {}", packages.len());
        for package in packages {
            let name = package["name"].as_str().unwrap();
            if name.starts_with("flux-") {
                continue;
            }
            let source = package.get("source").and_then(|s| s.as_str());
            assert_eq!(source, Some(REGISTRY), "{name} in {file}");
            assert_eq!(
                package["checksum"].as_str().map(str::len),
                Some(64),
                "{name} in {file}"
            );
        }
    }
}
