//! Who uses this machine, for what is shared to leave it out.

use crate::domain::redact::Redaction;

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
