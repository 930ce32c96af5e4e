//! A scan as text: GPUs with everything Vulkan and the system say of them, host, telemetry, builds, fingerprint.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::machine::no_gpu;
use crate::domain::text::{capitalised, clean, cores_words};
use crate::domain::types::{FieldChange, Host, Machine, TelemetrySourceStatus, VulkanStatus};
use crate::engine::scan::Scan;

use super::scan_gpu;
use super::table::{Align, Table, pairs};

/// The whole scan.
pub fn full(scan: &Scan, style: Style) -> String {
    let mut sections = vec![vulkan(scan)];
    sections.extend(
        (1..)
            .zip(&scan.gpus)
            .map(|(number, gpu)| scan_gpu::gpu(number, gpu, style)),
    );
    sections.push(format!(
        "{}\n{}",
        style.heading("Host"),
        host(&scan.machine.host)
    ));
    sections.push(telemetry(&scan.machine.telemetry, style));
    sections.push(inherited(&scan.machine, style));
    sections.push(runtimes(scan, style));
    if let Some(bandwidth) = &scan.bandwidth {
        sections.push(super::bandwidth::profile(bandwidth, style));
    }
    sections.push(fingerprint(scan, style));
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// The scan in a few lines, for `flux quickstart`.
pub fn summary(scan: &Scan) -> String {
    let mut text = String::new();
    for gpu in &scan.gpus {
        let memory = gpu
            .memory
            .as_ref()
            .map_or_else(String::new, |m| format!(", {}", m.vram));
        let _ = writeln!(
            text,
            "  {} ({}{memory})",
            clean(&gpu.name),
            clean(&gpu.architecture.label())
        );
    }
    if let Some(none) = no_gpu(&scan.machine, &scan.gpus) {
        let _ = writeln!(text, "  {}", clean(&none.headline));
    }
    let host = &scan.machine.host;
    let _ = writeln!(
        text,
        "  {}, {} of {} RAM free",
        clean(&host.cpu),
        host.ram_available,
        host.ram_total
    );
    let _ = writeln!(text, "  Fingerprint {}", scan.fingerprint.short());
    text
}

fn vulkan(scan: &Scan) -> String {
    let mut text = match &scan.machine.vulkan.status {
        VulkanStatus::Ready { instance_version } => format!("Vulkan {}\n", clean(instance_version)),
        VulkanStatus::NoLoader { detail } => format!("No Vulkan loader: {}\n", clean(detail)),
        VulkanStatus::NoDriver { detail } => {
            format!("Vulkan without a driver: {}\n", clean(detail))
        }
    };
    if scan.machine.simulated {
        text.push_str("Simulated: an exported machine, not this one\n");
    }
    if let Some(none) = no_gpu(&scan.machine, &scan.gpus) {
        let _ = writeln!(text, "{}", clean(&none.headline));
        for hint in &none.hints {
            let _ = writeln!(text, "hint: {}", clean(hint));
        }
    }
    text
}

fn host(host: &Host) -> String {
    let cores = cores_words(host);
    let mut rows = vec![
        (
            "CPU",
            format!("{} ({cores}, {})", clean(&host.cpu), clean(&host.arch)),
        ),
        (
            "RAM",
            format!("{}, {} available", host.ram_total, host.ram_available),
        ),
        (
            "System",
            format!("{}, kernel {}", clean(&host.os), clean(&host.kernel)),
        ),
    ];
    if let Some(plan) = &host.power_plan {
        rows.push(("Power plan", clean(plan)));
    }
    if let Some(battery) = host.on_battery {
        rows.push((
            "Power",
            if battery { "battery" } else { "mains" }.to_owned(),
        ));
    }
    if let Some(load) = host.load_1min_centi {
        rows.push((
            "Load",
            format!("{:.2} over one minute", f64::from(load) / 100.0),
        ));
    }
    pairs(&rows, 2)
}

fn telemetry(sources: &[TelemetrySourceStatus], style: Style) -> String {
    if sources.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("", Align::Left); 4]);
    for source in sources {
        table.row([
            clean(&source.source),
            source.pci.map_or_else(String::new, |pci| pci.to_string()),
            if source.available {
                "readable"
            } else {
                "not readable"
            }
            .to_owned(),
            clean(&source.detail),
        ]);
    }
    format!(
        "{}\n{}",
        style.heading("Telemetry"),
        table.render(2, Style::PLAIN)
    )
}

fn inherited(machine: &Machine, style: Style) -> String {
    if machine.inherited_env.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{}\n",
        style.heading("Variables set here, removed from every measurement")
    );
    for (name, value) in &machine.inherited_env {
        let _ = writeln!(text, "  {}={}", clean(name), clean(value));
    }
    text
}

fn runtimes(scan: &Scan, style: Style) -> String {
    let list = super::runtimes::list(&scan.runtimes, style);
    format!("{}\n{}", style.heading("llama.cpp"), indented(&list))
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "  {line}");
        all
    })
}

fn fingerprint(scan: &Scan, style: Style) -> String {
    let mut text = format!(
        "{}\n",
        style.heading(&format!("Fingerprint {}", scan.fingerprint.short()))
    );
    let rows: Vec<(&str, String)> = scan
        .fingerprint
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), clean(value)))
        .collect();
    text.push_str(&pairs(&rows, 2));
    for (runtime, with) in scan.runtimes.iter().zip(&scan.runtime_fingerprints) {
        let _ = writeln!(text, "  with {}: {}", clean(&runtime.name), with.short());
    }
    match &scan.changes {
        None => {}
        Some(changes) if changes.is_empty() => text.push_str("  Unchanged since the last scan\n"),
        Some(changes) => text.push_str(&changed(changes)),
    }
    text
}

/// Which fields changed, and what that means for profiles.
pub fn changed(changes: &[FieldChange]) -> String {
    let mut text =
        String::from("  Changed since the last scan; profiles measured before are stale:\n");
    for change in changes {
        let shown =
            |value: &Option<String>| value.as_deref().map_or_else(|| "nothing".to_owned(), clean);
        let field = capitalised(&clean(&change.field));
        let _ = writeln!(
            text,
            "    {field}: {} → {}",
            shown(&change.old),
            shown(&change.new)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{Fingerprint, VulkanReport};
    use std::collections::BTreeMap;

    fn scan() -> Scan {
        let machine = Machine {
            schema: 1,
            vulkan: VulkanReport {
                status: VulkanStatus::NoLoader {
                    detail: "libvulkan.so.1: cannot open".to_owned(),
                },
                entries: vec![],
            },
            system_gpus: vec![],
            host: Host {
                cpu: "i7-8700\u{1b}[5m".to_owned(),
                logical_cores: 12,
                arch: "x86_64".to_owned(),
                ..Host::default()
            },
            telemetry: vec![],
            runtimes: vec![],
            inherited_env: BTreeMap::from([("GGML_VK_DISABLE_F16".to_owned(), "1".to_owned())]),
            llama_configs: Vec::new(),
            simulated: true,
        };
        Scan {
            machine,
            gpus: vec![],
            runtimes: vec![],
            fingerprint: Fingerprint {
                hash: "0123456789abcdef".repeat(4),
                fields: vec![("OS".to_owned(), "Debian".to_owned())],
            },
            runtime_fingerprints: vec![],
            changes: Some(vec![FieldChange {
                field: "GPU 1 driver version".to_owned(),
                old: Some("22.20".to_owned()),
                new: None,
            }]),
            bandwidth: None,
            notices: vec![],
        }
    }

    #[test]
    fn no_vulkan_is_said_and_the_rest_is_shown() {
        let text = full(&scan(), Style::PLAIN);
        for part in [
            "No Vulkan loader: libvulkan.so.1: cannot open\nSimulated: ",
            "i7-8700\\u{1b}[5m (12 threads, x86_64)",
            "  GGML_VK_DISABLE_F16=1\n",
            "Fingerprint 0123456789ab\n  OS  Debian\n",
            "    GPU 1 driver version: 22.20 → nothing\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing from\n{text}");
        }
    }
}
