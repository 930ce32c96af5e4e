//! The key that results are stored under (paper section 3.1, design section 3): SHA-256 over named readings that
//! change only when a measurement may no longer hold. Free memory, load and budgets stay out; software devices too.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::domain::machine::{Gpu, gpus};
use crate::domain::text::shell_command;
use crate::domain::types::{Bytes, DeviceKind, FieldChange, Fingerprint, Machine, Runtime};

/// Fields in canonical order: name for people, and value.
pub type Fields = Vec<(String, String)>;

/// The fields a machine alone gives.
pub fn machine_fields(machine: &Machine) -> Fields {
    let mut fields = Fields::new();
    let real = gpus(machine).into_iter().filter(is_identity);
    for (number, gpu) in (1..).zip(real) {
        gpu_fields(&mut fields, number, &gpu);
    }
    let host = &machine.host;
    let cores = match host.physical_cores {
        Some(physical) => format!("{physical} cores, {} threads", host.logical_cores),
        None => format!("{} threads", host.logical_cores),
    };
    push(&mut fields, "CPU", &host.cpu);
    push(&mut fields, "CPU cores", &cores);
    push(&mut fields, "CPU architecture", &host.arch);
    push(&mut fields, "RAM size", &size_class(host.ram_total));
    push(&mut fields, "OS", &host.os);
    push(&mut fields, "Kernel", &major_minor(&host.kernel));
    fields
}

/// The fields a llama.cpp build adds. Its digest decides; number and commit can both be unknown.
pub fn runtime_fields(runtime: &Runtime) -> Fields {
    let mut fields = Fields::new();
    push(
        &mut fields,
        "Runtime build",
        &runtime.build_number.to_string(),
    );
    push(&mut fields, "Runtime commit", &runtime.build_commit);
    push(&mut fields, "Runtime digest", &runtime.digest);
    if let Some(variant) = &runtime.cpu_variant {
        push(&mut fields, "Runtime CPU variant", variant);
    }
    if !runtime.env.is_empty() {
        push(
            &mut fields,
            "Runtime environment",
            &shell_command(&runtime.env, &[]),
        );
    }
    fields
}

/// The fingerprint of a machine, with a build where results are keyed to one.
pub fn fingerprint(machine: &Machine, runtime: Option<&Runtime>) -> Fingerprint {
    let mut fields = machine_fields(machine);
    if let Some(runtime) = runtime {
        fields.extend(runtime_fields(runtime));
    }
    of_fields(fields)
}

/// The fingerprint that these fields make, in their order.
pub fn of_fields(fields: Fields) -> Fingerprint {
    Fingerprint {
        hash: hash(&fields),
        fields,
    }
}

/// Which fields differ: changed and removed ones in the old order, then new ones. Empty for the same machine.
pub fn diff(old: &Fingerprint, new: &Fingerprint) -> Vec<FieldChange> {
    let value = |fields: &Fields, name: &str| {
        fields
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.clone())
    };
    let added = new
        .fields
        .iter()
        .filter(|(name, _)| value(&old.fields, name).is_none());
    old.fields
        .iter()
        .chain(added)
        .map(|(name, _)| FieldChange {
            field: name.clone(),
            old: value(&old.fields, name),
            new: value(&new.fields, name),
        })
        .filter(|change| change.old != change.new)
        .collect()
}

/// SHA-256 over `name=value\n` lines, lower-case hex.
fn hash(fields: &Fields) -> String {
    let mut sha = Sha256::new();
    for (name, value) in fields {
        sha.update(format!("{name}={value}\n"));
    }
    let mut hex = String::new();
    for byte in sha.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// Control characters would let one value pose as two lines; a line break in a driver string becomes a space.
fn push(fields: &mut Fields, name: &str, value: &str) {
    let clean: String = value
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    fields.push((name.to_owned(), clean.trim().to_owned()));
}

/// Software renderers never enter; display adapters that are no GPU (a server's VGA chip) neither.
fn is_identity(gpu: &Gpu) -> bool {
    gpu.kind != DeviceKind::Software && gpu.computes()
}

fn gpu_fields(fields: &mut Fields, number: u32, gpu: &Gpu) {
    let mut add = |what: &str, value: &str| push(fields, &format!("GPU {number} {what}"), value);
    add("PCI id", &gpu.id());
    if let Some([vendor, device]) = gpu.subsystem {
        add("subsystem", &format!("{vendor:04x}:{device:04x}"));
    }
    if let Some(revision) = gpu.revision {
        add("revision", &format!("{revision:02x}"));
    }
    add("architecture", &gpu.architecture.label());
    if let Some(memory) = &gpu.memory {
        // The size of a shared heap follows the RAM the kernel left over: its class is stable, its bytes are not.
        let size = if memory.shared_with_ram {
            format!("{} shared", size_class(memory.vram))
        } else {
            format!("{} MiB", memory.vram.0 / Bytes::mib(1).0)
        };
        add("VRAM", &size);
    }
    if let Some(version) = &gpu.kernel_driver_version {
        add("kernel driver version", version);
    }
    if let Some(entry) = &gpu.preferred {
        let driver = &entry.driver;
        let name = if driver.name.is_empty() {
            &driver.id_name
        } else {
            &driver.name
        };
        add("Vulkan driver", name);
        add("driver version", &driver.version);
        // AMD's and Mesa's release is in the text, not in the number.
        if !driver.info.is_empty() && driver.info != driver.version {
            add("driver release", &driver.info);
        }
        add("Vulkan version", &entry.api_version);
    }
}

/// The nearest usual memory size (2ⁿ or 1.5 × 2ⁿ GiB), so that what firmware and kernel keep for themselves
/// does not matter: 15.9 GiB → `16 GiB`.
fn size_class(size: Bytes) -> String {
    const SMALLEST_GIB: f64 = 0.5;
    // Steps alternate between × 1.5 and × 4/3; the nearest is the one with the smallest ratio to the size.
    let gib = size.as_gib().max(SMALLEST_GIB);
    let steps = (-1..=20).flat_map(|n| [2f64.powi(n), 1.5 * 2f64.powi(n)]);
    let nearest = steps.min_by(|a, b| {
        let distance = |step: &f64| (gib / step).ln().abs();
        distance(a).total_cmp(&distance(b))
    });
    format!("{} GiB", nearest.unwrap_or(gib))
}

/// `6.1.0-28-amd64` → `6.1`; a Windows build number stays as it is.
fn major_minor(version: &str) -> String {
    let parts: Vec<&str> = version.splitn(3, '.').take(2).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_falls_into_the_nearest_usual_size() {
        let class = |gib: f64| size_class(Bytes((gib * 1024.0 * 1024.0 * 1024.0) as u64));
        assert_eq!(class(15.9), "16 GiB");
        assert_eq!(class(15.4), "16 GiB");
        assert_eq!(class(31.1), "32 GiB");
        assert_eq!(class(23.4), "24 GiB");
        assert_eq!(class(125.6), "128 GiB");
        assert_eq!(class(0.0), "0.5 GiB");
        assert_eq!(class(1.4), "1.5 GiB");
    }

    #[test]
    fn the_kernel_counts_by_its_first_two_numbers() {
        assert_eq!(major_minor("6.1.0-28-amd64"), "6.1");
        assert_eq!(major_minor("22631"), "22631");
        assert_eq!(major_minor("24.6.0"), "24.6");
    }

    #[test]
    fn the_hash_is_sha256_of_name_value_lines() {
        let mut fields = Fields::new();
        push(&mut fields, "OS", "Linux\nOS=Windows");
        assert_eq!(fields[0].1, "Linux OS=Windows");
        // printf 'OS=Linux OS=Windows\n' | sha256sum
        assert_eq!(
            hash(&fields),
            "b02709e63925afa7c96de87a5c86a0a5828fac525a49718c3b92e12831d57d53"
        );
    }

    #[test]
    fn a_difference_names_the_field_and_both_values() {
        let of = |fields: &[(&str, &str)]| Fingerprint {
            hash: String::new(),
            fields: fields
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        };
        let old = of(&[("CPU", "a"), ("Kernel", "6.1"), ("GPU 1 VRAM", "8 MiB")]);
        let new = of(&[("CPU", "a"), ("Kernel", "6.8"), ("OS", "x")]);
        let change = |field: &str, old: Option<&str>, new: Option<&str>| FieldChange {
            field: field.to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        };
        assert_eq!(
            diff(&old, &new),
            [
                change("Kernel", Some("6.1"), Some("6.8")),
                change("GPU 1 VRAM", Some("8 MiB"), None),
                change("OS", None, Some("x")),
            ]
        );
        assert!(diff(&old, &old).is_empty());
    }
}
