//! Programs of llama.cpp's, kept away from the user's own settings file, which would change what is measured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::llama_config::away;
use crate::domain::types::ConfigReach;
use crate::owner::llama_config_places;

use super::process::Spec;

/// A program of llama.cpp's with this environment. Where a file of settings is, the variables that lead away from it are
/// added; elsewhere not, because graphics drivers look below the same folders.
pub fn llama_spec(program: impl Into<PathBuf>, env: BTreeMap<String, String>) -> Spec {
    let mut spec = Spec::new(program);
    spec.env = env;
    let is_windows = cfg!(windows);
    let turns_off = |reach: ConfigReach| is_windows || reach == ConfigReach::User;
    let mut places = llama_config_places().into_iter();
    if places.any(|(reach, path)| turns_off(reach) && path.exists()) {
        for (name, value) in away(is_windows) {
            // A build's own variable is the user's wish.
            let entry = spec.env.entry((*name).to_owned());
            entry.or_insert_with(|| (*value).to_owned());
        }
    }
    spec
}
