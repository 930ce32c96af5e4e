//! The host: CPU, RAM, OS, and what would disturb a measurement now (battery, governor, load).

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread;

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};

use crate::domain::doctor::is_secret;
use crate::domain::environment::is_switch;
use crate::domain::llama_config;
use crate::domain::types::{Bytes, ConfigReach, Host, LlamaConfig, RenderNodes};
use crate::owner::llama_config_places;

use crate::system_root::{SystemRoot, file_name, read};

use super::cgroup;

/// Stands for such a value.
const SECRET: &str = "(secret, not shown)";

/// Reads the host. Only the CPU list and memory are refreshed: process lists and frequencies are slow.
pub(super) fn host(root: &SystemRoot) -> Host {
    let system = System::new().ok().map(|mut system| {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        system
    });
    let (total, available) = system.as_ref().map(|s| memory(s, root)).unwrap_or_default();
    Host {
        cpu: cpu_name(system.as_ref()),
        physical_cores: System::physical_core_count().ok().map(|n| n as u32),
        logical_cores: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        ram_total: total,
        ram_available: available,
        os: os_name(),
        kernel: System::kernel_version().unwrap_or_default(),
        arch: System::cpu_arch(),
        on_battery: on_battery(root),
        power_plan: power_plan(root),
        load_1min_centi: load_centi(),
        render_nodes: render_nodes(root),
    }
}

fn cpu_name(system: Option<&System>) -> String {
    let first = system.and_then(|s| s.cpus().first());
    let brand = first.map_or("", |c| c.brand().trim());
    if brand.is_empty() {
        // Most ARM kernels give no model.
        return format!("unknown {} CPU", System::cpu_arch());
    }
    brand.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Total and available RAM; a control group's limit counts where it is lower.
fn memory(system: &System, root: &SystemRoot) -> (Bytes, Bytes) {
    let total = Bytes(system.total_memory());
    let available = Bytes(system.available_memory());
    match cgroup::allowed(root).filter(|group| group.total < total) {
        Some(group) => (group.total, available.min(group.free)),
        None => (total, available),
    }
}

fn os_name() -> String {
    let name = System::name().unwrap_or_else(|_| std::env::consts::OS.to_owned());
    match System::os_version() {
        Ok(version) => format!("{name} {version}"),
        Err(_) => name,
    }
}

fn load_centi() -> Option<u32> {
    // Windows has no load average; there it would read as zero.
    if cfg!(windows) {
        return None;
    }
    System::load_average()
        .ok()
        .map(|load| (load.one * 100.0).round() as u32)
}

/// A battery of the system (not of a mouse) decides only where no mains adapter does.
fn on_battery(root: &SystemRoot) -> Option<bool> {
    let supplies = root.list("sys/class/power_supply");
    if !root.path("sys/class/power_supply").is_dir() {
        return None;
    }
    let mut mains = Vec::new();
    let mut discharging = false;
    for dir in supplies {
        let of_device = read(&dir.join("scope")).as_deref() == Some("Device");
        match read(&dir.join("type")).as_deref() {
            Some("Mains") => mains.push(read(&dir.join("online")).as_deref() == Some("1")),
            Some("Battery") if !of_device => {
                discharging |= read(&dir.join("status")).as_deref() == Some("Discharging");
            }
            _ => {}
        }
    }
    Some(discharging && !mains.contains(&true))
}

/// The first CPU's governor, with the firmware's profile where there is one.
fn power_plan(root: &SystemRoot) -> Option<String> {
    let governor = root.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let profile = root.read("sys/firmware/acpi/platform_profile");
    match (governor, profile) {
        (Some(governor), Some(profile)) => Some(format!("{governor} (profile {profile})")),
        (governor, profile) => governor.or(profile),
    }
}

/// Opens each render node: group membership, ACLs and container rules all show in the answer.
fn render_nodes(root: &SystemRoot) -> Option<RenderNodes> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let nodes: Vec<_> = root
        .list("dev/dri")
        .into_iter()
        .filter(|p| file_name(p).starts_with("renderD"))
        .collect();
    if nodes.is_empty() {
        return Some(RenderNodes::Missing);
    }
    let denied = nodes.iter().all(|node| {
        let opened = OpenOptions::new().read(true).write(true).open(node);
        opened.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
    });
    Some(if denied {
        RenderNodes::Denied
    } else {
        RenderNodes::Usable
    })
}

/// Inherited variables that would change a stock run (case C10), secrets masked.
pub(super) fn inherited_env() -> BTreeMap<String, String> {
    llama_variables(std::env::vars_os().map(|(name, value)| {
        (
            name.to_string_lossy().into_owned(),
            value.to_string_lossy().into_owned(),
        )
    }))
}

/// Settings files that llama.cpp's tools read here: the system's below `root`, the user's where the environment says.
pub(super) fn llama_configs(root: &SystemRoot) -> Vec<LlamaConfig> {
    let read = |(reach, path): (ConfigReach, PathBuf)| {
        let from = match (reach, path.strip_prefix("/")) {
            (ConfigReach::System, Ok(relative)) => root.path(relative),
            _ => path.clone(),
        };
        // The tools read bytes, too.
        let text = String::from_utf8_lossy(&std::fs::read(from).ok()?).into_owned();
        Some(llama_config::read(reach, path, &text))
    };
    llama_config_places().into_iter().filter_map(read).collect()
}

fn llama_variables(all: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    all.filter(|(name, _)| is_switch(name))
        .map(|(name, value)| {
            let secret = is_secret(&name);
            let value = if secret { SECRET.to_owned() } else { value };
            (name, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn supply(root: &std::path::Path, name: &str, files: &[(&str, &str)]) {
        let dir = root.join("sys/class/power_supply").join(name);
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
    }

    #[test]
    fn a_laptop_off_the_mains_is_on_battery_and_a_mouse_is_not_a_laptop() {
        let tree = tempfile::tempdir().unwrap();
        let root = SystemRoot::at(tree.path());
        assert_eq!(on_battery(&root), None);
        supply(
            tree.path(),
            "hidpp_battery_0",
            &[
                ("type", "Battery"),
                ("scope", "Device"),
                ("status", "Discharging"),
            ],
        );
        assert_eq!(on_battery(&root), Some(false));
        supply(
            tree.path(),
            "BAT0",
            &[("type", "Battery"), ("status", "Discharging")],
        );
        assert_eq!(on_battery(&root), Some(true));
        supply(tree.path(), "AC", &[("type", "Mains"), ("online", "1")]);
        assert_eq!(on_battery(&root), Some(false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn render_nodes_are_missing_or_usable() {
        let tree = tempfile::tempdir().unwrap();
        let root = SystemRoot::at(tree.path());
        assert_eq!(render_nodes(&root), Some(RenderNodes::Missing));
        fs::create_dir_all(tree.path().join("dev/dri")).unwrap();
        fs::write(tree.path().join("dev/dri/renderD128"), "").unwrap();
        assert_eq!(render_nodes(&root), Some(RenderNodes::Usable));
    }

    #[test]
    fn only_llama_variables_are_kept_and_keys_are_masked() {
        let variable = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        let kept = llama_variables(
            [
                variable("PATH", "/bin"),
                variable("GGML_VK_ALLOW_GRAPHICS_QUEUE", "0"),
                variable("LLAMA_API_KEY", "s3cret"),
            ]
            .into_iter(),
        );
        assert_eq!(kept.len(), 2);
        assert_eq!(kept["GGML_VK_ALLOW_GRAPHICS_QUEUE"], "0");
        assert_eq!(kept["LLAMA_API_KEY"], SECRET);
    }
}
