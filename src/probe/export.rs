//! Writes a scan as a fixture that can be shared: user names and paths stay here.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::domain::text::json;
use crate::domain::types::{Machine, Runtime};
use crate::owner;
use crate::ports::{PortError, PortResult};

use super::MACHINE_FILE;

/// Writes `machine` with its `runtimes` to `dir/machine.json` and returns that path.
///
/// # Errors
/// The folder holds something already, or cannot be written; nothing half-written is left behind.
pub fn export(machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
    let shown = dir.display();
    let failed = |e: &std::io::Error| {
        PortError::caused(format!("the scan cannot be exported to {shown}"), e)
    };
    match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => {
            return Err(
                PortError::new(format!("the folder to export to is not empty: {shown}"))
                    .hint("name a new folder"),
            );
        }
        Ok(false) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(|e| failed(&e))?;
        }
        Err(e) => return Err(failed(&e)),
    }
    let written =
        |e: serde_json::Error| PortError::caused("the scan cannot be written as JSON", &e);
    let whole = Machine {
        runtimes: runtimes.to_vec(),
        simulated: false,
        ..machine.clone()
    };
    // Before paths are cut: the last part of a home is its owner's name.
    let mut whole = serde_json::to_value(&whole).map_err(written)?;
    owner::redaction().document_with_words(&mut whole);
    let mut document: Machine = serde_json::from_value(whole).map_err(written)?;
    document.runtimes = document.runtimes.iter().map(redact_runtime).collect();
    for value in document.inherited_env.values_mut() {
        *value = last_component(value);
    }
    let mut text = json(&document).map_err(written)?;
    text.push('\n');
    let path = dir.join(MACHINE_FILE);
    write_whole(dir, &path, text.as_bytes()).map_err(|e| failed(&e))?;
    Ok(path)
}

/// All of the file or none of it.
fn write_whole(dir: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let file = file.persist(path).map_err(|e| e.error)?;
    share(&file)
}

/// A fixture is made to be shared; a temporary file is private.
#[cfg(unix)]
fn share(file: &fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn share(_file: &fs::File) -> std::io::Result<()> {
    Ok(())
}

fn redact_runtime(runtime: &Runtime) -> Runtime {
    let name_of = |path: &Path| PathBuf::from(last_component(&path.to_string_lossy()));
    Runtime {
        dir: name_of(&runtime.dir),
        bench: runtime.bench.as_deref().map(name_of),
        server: runtime.server.as_deref().map(name_of),
        version_text: words_without_paths(&runtime.version_text),
        bench_defaults: runtime
            .bench_defaults
            .iter()
            .map(|(flag, value)| (flag.clone(), words_without_paths(value)))
            .collect(),
        env: runtime
            .env
            .iter()
            .map(|(name, value)| (name.clone(), words_without_paths(value)))
            .collect(),
        ..runtime.clone()
    }
}

/// The part after the last separator of either system: `/home/me/llama.cpp/bin` → `bin`.
fn last_component(path: &str) -> String {
    let trimmed = path.trim_end_matches(['/', '\\']);
    trimmed
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or(trimmed)
        .to_owned()
}

fn words_without_paths(text: &str) -> String {
    text.split(' ')
        .map(|word| {
            if word.starts_with(['/', '\\']) || word.contains(":\\") {
                last_component(word)
            } else {
                word.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_systems_keep_their_last_part_only() {
        assert_eq!(last_component("/home/me/llama.cpp/bin/"), "bin");
        assert_eq!(last_component("C:\\Users\\me\\llama"), "llama");
        assert_eq!(last_component("512"), "512");
        assert_eq!(
            words_without_paths("loaded /home/me/libggml.so; version: 1"),
            "loaded libggml.so; version: 1"
        );
    }
}
