//! Where a session was measured: machine, build, model.

use crate::domain::machine::gpus;
use crate::domain::text::{count, parameters};
use crate::domain::types::{ModelInfo, Runtime};
use crate::engine::plan::bench::PlanConfig;
use crate::ports::{NewSession, SessionKind};

/// Names and values; empty where nothing is known.
pub type Rows = Vec<(&'static str, String)>;

/// Machine, build and model, each under its title.
pub fn place(begun: &NewSession) -> [(&'static str, Rows); 3] {
    // A kernel lab runs no build and no model.
    let runs = begun.kind != SessionKind::Lab;
    let known = |rows: fn(&NewSession) -> Rows| if runs { rows(begun) } else { Rows::new() };
    [
        ("Machine", machine(begun)),
        ("llama.cpp", known(|begun| runtime(&begun.runtime))),
        ("Model", known(|begun| model(&begun.model))),
    ]
}

fn machine(begun: &NewSession) -> Rows {
    let machine = &begun.machine;
    let host = &machine.host;
    let mut rows = Rows::new();
    for gpu in gpus(machine) {
        let driver = gpu.preferred.as_ref().map(|entry| &entry.driver);
        let driver = driver.map_or_else(String::new, |d| format!(", {} {}", d.name, d.info));
        rows.push((
            "GPU",
            format!("{}{driver}", gpu.product.as_ref().unwrap_or(&gpu.name)),
        ));
    }
    let cores = host.physical_cores.map_or_else(
        || count(u64::from(host.logical_cores), "thread"),
        |n| count(u64::from(n), "core"),
    );
    let memory = if host.ram_total.0 == 0 {
        String::new()
    } else {
        host.ram_total.to_string()
    };
    let cpu = if host.cpu.is_empty() {
        String::new()
    } else {
        format!("{}, {cores}", host.cpu)
    };
    // Windows names its kernel within its version.
    let kernel = if host.os.contains(&host.kernel) {
        ""
    } else {
        &host.kernel
    };
    let system = [host.os.as_str(), kernel, &host.arch];
    let system: Vec<&str> = system.into_iter().filter(|part| !part.is_empty()).collect();
    let system = system.join(", ");
    rows.extend([
        ("CPU", cpu),
        ("RAM", memory),
        ("System", system),
        ("Power plan", host.power_plan.clone().unwrap_or_default()),
        ("Limits", limits(begun).unwrap_or_default()),
    ]);
    rows
}

/// Of the machine's memory, as a plan was asked to keep them.
pub fn limits(begun: &NewSession) -> Option<String> {
    PlanConfig::of(begun)?.request.limits()
}

fn runtime(runtime: &Runtime) -> Rows {
    let build = match runtime.build_number {
        0 => "unknown".to_owned(),
        n => n.to_string(),
    };
    let backends: Vec<&str> = runtime.backends.iter().map(|b| b.name()).collect();
    vec![
        ("Name", runtime.name.clone()),
        ("Build", build),
        ("Commit", runtime.build_commit.clone()),
        ("Version", runtime.version_text.clone()),
        ("Backends", backends.join(", ")),
        ("Folder", runtime.dir.display().to_string()),
        ("SHA-256", runtime.digest.clone()),
    ]
}

fn model(model: &ModelInfo) -> Rows {
    let quants: Vec<&str> = model
        .quant_mix
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    vec![
        ("Name", model.name.clone()),
        ("Architecture", model.architecture.clone()),
        ("Parameters", parameters(model.parameters)),
        ("Tensor types", quants.join(", ")),
        ("Size", model.file_bytes.to_string()),
        ("File", model.path.display().to_string()),
        ("SHA-256 of header", model.digest.clone()),
    ]
}
