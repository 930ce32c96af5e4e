//! `flux doctor`: what would spoil a measurement now. Always ends with status 0: finding something is no failure.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::args::Doctor;
use crate::cli::error::CliResult;
use crate::cli::output::Output;
use crate::cli::render::{doctor, models};
use crate::domain::doctor::{Facts, findings};
use crate::engine::Ports;

use super::open::Place;

/// Mesa's folder below the cache folder.
const MESA_CACHE: &str = "mesa_shader_cache";

/// Looks and advises.
///
/// # Errors
/// A model asked about cannot be read.
pub fn run(args: &Doctor, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_as(&args.machine, output)?;
    let machine = ports.probe.machine();
    let mut facts = if machine.simulated {
        Facts::default()
    } else {
        facts_here(&ports)
    };
    if let Some(model) = &args.model {
        facts.model_needs = Some(models::needs(&ports.models.inspect(model)?).0);
    }
    let found = findings(&machine, &facts);
    let document = json!({ "schema": 1, "findings": found });
    output.print_either(&document, || doctor::findings(&found, output.style))
}

fn facts_here(ports: &Ports) -> Facts {
    Facts {
        shader_cache_disabled: std::env::var("MESA_SHADER_CACHE_DISABLE").ok(),
        shader_cache_unwritable: shader_cache()
            .filter(|dir| !writable(dir))
            .map(|dir| shown(&dir)),
        data_dir_unwritable: Some(ports.data_dir.clone())
            .filter(|dir| !writable(dir))
            .map(|dir| shown(&dir)),
        model_needs: None,
    }
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

/// Where Mesa keeps compiled shaders: its own variable, then the user's cache folder. Only Linux has one.
fn shader_cache() -> Option<PathBuf> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    std::env::var_os("MESA_SHADER_CACHE_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(directories::BaseDirs::new()?.cache_dir().join(MESA_CACHE)))
}

/// A file can be made in `dir`, or in the nearest folder above it that exists.
fn writable(dir: &Path) -> bool {
    dir.ancestors()
        .find(|folder| folder.exists())
        .is_some_and(|folder| {
            tempfile::Builder::new()
                .prefix(".flux-")
                .tempfile_in(folder)
                .is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_yet_is_judged_by_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        assert!(writable(&dir.path().join("a/b/c")));
        let file = dir.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(!writable(&file.join("x")), "a file is in the way");
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }
}
