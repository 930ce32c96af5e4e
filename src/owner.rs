//! Who uses this machine: for what is shared to leave it out, and where their settings of llama.cpp lie.

use std::path::PathBuf;

use crate::domain::llama_config::places;
use crate::domain::redact::Redaction;
use crate::domain::types::ConfigReach;

/// Hides this user's home and name, and the machine's name.
pub fn redaction() -> Redaction {
    let dirs = directories::UserDirs::new();
    let home = dirs.as_ref().and_then(|d| d.home_dir().to_str());
    let user = ["USER", "LOGNAME", "USERNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let machine = sysinfo::System::host_name().ok();
    Redaction::new(home, user.as_deref(), machine.as_deref())
}

/// Where llama.cpp's tools look for settings files on this machine.
pub(crate) fn llama_config_places() -> Vec<(ConfigReach, PathBuf)> {
    places(cfg!(windows), |name| match name {
        // As llama.cpp: what the system knows of the user where the variable is not set.
        "HOME" => std::env::home_dir().map(PathBuf::into_os_string),
        name => std::env::var_os(name),
    })
}
