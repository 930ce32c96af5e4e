//! llama.cpp builds as a table.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::text::{clean, shell_command};
use crate::domain::types::{Runtime, RuntimeOrigin};

use super::table::{Align, Table};

/// Every build with build number, commit, backends, devices and folder.
pub fn list(runtimes: &[Runtime], style: Style) -> String {
    if runtimes.is_empty() {
        return "No llama.cpp known. `flux runtime install` gets one, `flux runtime add DIR` takes yours.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("Name", Align::Left),
        ("Build", Align::Right),
        ("Commit", Align::Left),
        ("Backends", Align::Left),
        ("Devices", Align::Left),
        ("Origin", Align::Left),
        ("Folder", Align::Left),
    ]);
    for runtime in runtimes {
        table.row([
            clean(&runtime.name),
            build(runtime),
            clean(&runtime.build_commit),
            backends(runtime),
            devices(runtime),
            origin(runtime.origin).to_owned(),
            clean(&runtime.dir.display().to_string()),
        ]);
    }
    let mut text = table.render(0, style);
    for runtime in runtimes.iter().filter(|r| !r.env.is_empty()) {
        let variables = clean(&shell_command(&runtime.env, &[]));
        let _ = writeln!(text, "{} runs with {variables}", clean(&runtime.name));
    }
    text
}

/// One build in one line: `b11149 (vulkan, cpu)`.
pub fn one(runtime: &Runtime) -> String {
    let variables = shell_command(&runtime.env, &[]);
    let with = if variables.is_empty() { "" } else { ", with " };
    format!(
        "{}, build {}, {}{with}{}",
        clean(&runtime.name),
        build(runtime),
        backends(runtime),
        clean(&variables)
    )
}

/// A build from a source archive reports 0: unknown, and said so.
fn build(runtime: &Runtime) -> String {
    if runtime.build_number == 0 {
        "unknown".to_owned()
    } else {
        runtime.build_number.to_string()
    }
}

fn backends(runtime: &Runtime) -> String {
    runtime
        .backends
        .iter()
        .map(|b| b.name())
        .collect::<Vec<_>>()
        .join(", ")
}

fn devices(runtime: &Runtime) -> String {
    let ids: Vec<String> = runtime.devices.iter().map(|d| clean(&d.id)).collect();
    if ids.is_empty() {
        "CPU only".to_owned()
    } else {
        ids.join(", ")
    }
}

const fn origin(origin: RuntimeOrigin) -> &'static str {
    match origin {
        RuntimeOrigin::Found => "found",
        RuntimeOrigin::Added => "added",
        RuntimeOrigin::Installed => "installed",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::types::Backend;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::PathBuf;

    pub(crate) fn cpu_build() -> Runtime {
        Runtime {
            name: "b11149".to_owned(),
            dir: PathBuf::from("/opt/llama"),
            bench: None,
            server: None,
            build_number: 0,
            build_commit: "unknown".to_owned(),
            version_text: String::new(),
            digest: "d".repeat(64),
            backends: BTreeSet::from([Backend::Cpu]),
            cpu_variant: None,
            devices: vec![],
            bench_flags: BTreeSet::new(),
            server_flags: BTreeSet::new(),
            bench_defaults: BTreeMap::new(),
            origin: RuntimeOrigin::Installed,
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn an_unknown_build_number_is_never_a_zero() {
        assert_eq!(
            list(&[cpu_build()], Style::PLAIN),
            "Name      Build  Commit   Backends  Devices   Origin     Folder\n\
             b11149  unknown  unknown  cpu       CPU only  installed  /opt/llama\n"
        );
    }

    #[test]
    fn variables_kept_with_a_build_are_shown() {
        let mut build = cpu_build();
        build.env = BTreeMap::from([("HSA_OVERRIDE_GFX_VERSION".to_owned(), "10.3.0".to_owned())]);
        assert!(
            list(std::slice::from_ref(&build), Style::PLAIN)
                .ends_with("/opt/llama\nb11149 runs with HSA_OVERRIDE_GFX_VERSION=10.3.0\n")
        );
        assert_eq!(
            one(&build),
            "b11149, build unknown, cpu, with HSA_OVERRIDE_GFX_VERSION=10.3.0"
        );
    }

    #[test]
    fn no_build_says_how_to_get_one() {
        assert!(list(&[], Style::PLAIN).contains("flux runtime install"));
    }
}
