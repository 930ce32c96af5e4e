//! What the machine's readings do not hold: which folders cannot be written, what turns the shader cache off, who uses the GPUs.

use std::path::{Path, PathBuf};

use crate::domain::doctor::Facts;
use crate::system_root::SystemRoot;

use super::gpu_users::gpu_users;

/// Mesa's folder below the cache folder.
const MESA_CACHE: &str = "mesa_shader_cache";

/// Facts about this process on this machine.
pub(super) fn facts(root: &SystemRoot, data_dir: &Path) -> Facts {
    let unwritable = |dir: PathBuf| (!writable(&dir)).then(|| dir.display().to_string());
    Facts {
        shader_cache_disabled: std::env::var("MESA_SHADER_CACHE_DISABLE").ok(),
        shader_cache_unwritable: shader_cache().and_then(unwritable),
        data_dir_unwritable: unwritable(data_dir.to_owned()),
        gpu_users: gpu_users(root),
        ..Facts::default()
    }
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
