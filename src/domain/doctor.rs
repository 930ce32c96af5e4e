//! What would spoil a measurement now (design section 2, `flux doctor`): from a machine's readings and a few facts about
//! this process, findings with advice. Pure: whoever asks gathers the facts.

use serde::{Deserialize, Serialize};

use crate::domain::machine::{Gpu, gpus};
use crate::domain::telemetry::{AbsentSensor, SeriesId};
use crate::domain::types::{
    Bytes, ConfigReach, DeviceKind, LlamaConfig, Machine, PciAddress, RenderNodes, VulkanStatus,
};

mod sensors;

/// Load above this share of the logical processors means that others compute too: a fifth already shows in CPU runs.
const BUSY_LOAD_SHARE: f64 = 0.2;

/// Free RAM below which the system may swap while a model is loaded.
const LITTLE_RAM: Bytes = Bytes::gib(2);

/// Free RAM that must remain beside a model that is loaded whole.
const RAM_RESERVE: Bytes = Bytes::gib(1);

/// CPU governors, power plans and profiles of the firmware that hold clocks back, in lower case.
const SLOW_PLANS: &[&str] = &[
    "powersave",
    "power saver",
    "conservative",
    "ondemand",
    "schedutil",
    "balanced",
    "low-power",
    "cool",
    "quiet",
];

/// Names of variables that hold something to be kept secret.
const SECRET_WORDS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL"];
/// Short words that mean the same where they stand between underscores: `GITHUB_PAT`, and not `PATH`.
const SECRET_PARTS: &[&str] = &["PAT", "PWD", "PASS", "AUTH"];

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know.
    Info,
    /// May spoil a measurement.
    Warning,
    /// Flux cannot do its work.
    Problem,
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad.
    pub level: Level,
    /// Stable kebab-case code.
    pub code: String,
    /// What, in one sentence.
    pub title: String,
    /// What to do.
    pub advice: String,
}

impl Finding {
    fn new(level: Level, code: &str, title: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            level,
            code: code.to_owned(),
            title: title.into(),
            advice: advice.into(),
        }
    }
}

/// A program that holds memory of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUser {
    /// The GPU.
    pub pci: PciAddress,
    /// Its name.
    pub program: String,
    /// What it holds there now.
    pub vram: Bytes,
}

/// A GPU's link to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The GPU.
    pub pci: PciAddress,
    /// Lanes in use.
    pub lanes: u64,
    /// Lanes that the card and its slot have in common.
    pub most: u64,
}

/// A card's memory as its driver tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBus {
    /// The GPU.
    pub pci: PciAddress,
    /// Highest clock, MHz.
    pub mhz: u64,
    /// Width, bits.
    pub bits: u64,
}

impl MemoryBus {
    /// Theoretical bandwidth, bytes per second: data moves at both edges of the clock that drivers tell.
    pub fn bytes_per_sec(&self) -> f64 {
        const EDGES: f64 = 2.0;
        const MEGA: f64 = 1e6;
        const BITS: f64 = 8.0;
        EDGES * MEGA * self.mhz as f64 * self.bits as f64 / BITS
    }
}

/// What the machine's readings do not hold. `None` or nothing: unknown, or asked about another machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Value of `MESA_SHADER_CACHE_DISABLE`, where it is set.
    pub shader_cache_disabled: Option<String>,
    /// The shader cache folder, where it cannot be written.
    pub shader_cache_unwritable: Option<String>,
    /// The data folder, where it cannot be written.
    pub data_dir_unwritable: Option<String>,
    /// Bytes the model asked about needs.
    pub model_needs: Option<Bytes>,
    /// Programs on the GPUs, as far as this user may see.
    pub gpu_users: Vec<GpuUser>,
    /// What the sensors tell now.
    pub readings: Vec<(SeriesId, f64)>,
    /// Those that tell nothing.
    pub absent_sensors: Vec<AbsentSensor>,
    /// Temperatures at which drivers step in, °C.
    pub critical: Vec<(SeriesId, f64)>,
    /// Links of the GPUs to the host.
    pub links: Vec<Link>,
    /// Memories of the GPUs.
    #[serde(default)]
    pub memories: Vec<MemoryBus>,
}

/// Everything found, the worst first.
pub fn findings(machine: &Machine, facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(power(machine));
    found.extend(load(machine));
    found.extend(memory(machine, facts.model_needs));
    found.extend(shader_cache(facts));
    found.extend(inherited(machine));
    found.extend(machine.llama_configs.iter().filter_map(settings_file));
    found.extend(permission(machine));
    found.extend(vulkan(machine));
    found.extend(resizable_bar(machine));
    found.extend(driver_update(machine));
    found.extend(data_dir(facts));
    found.extend(sensors::findings(machine, facts));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found
}

/// A variable whose value must not be shown or exported.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
        || name.split('_').any(|part| SECRET_PARTS.contains(&part))
}

fn power(machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    if machine.host.on_battery == Some(true) {
        found.push(Finding::new(
            Level::Warning,
            "battery",
            "running on battery: clocks are held back and change with the charge",
            "plug the machine in",
        ));
    }
    if let Some(plan) = &machine.host.power_plan
        && is_slow(plan)
    {
        found.push(Finding::new(
            Level::Warning,
            "power-plan",
            format!("the power plan is {plan}, not performance: clocks ramp up during a run"),
            "choose the performance plan or governor for the measurement (Linux: `cpupower frequency-set -g performance`)",
        ));
    }
    found
}

/// A governor alone, or with the firmware's profile: `powersave (profile balanced)`.
fn is_slow(plan: &str) -> bool {
    let plan = plan.to_ascii_lowercase();
    let parts = plan.split(" (profile ");
    parts
        .map(|part| part.trim_end_matches(')'))
        .any(|part| SLOW_PLANS.contains(&part))
}

/// Case C25: a driver that was updated without a restart. No profile is made on it, since its version is not sure.
pub fn driver_update(machine: &Machine) -> Option<Finding> {
    let gpu = machine
        .system_gpus
        .iter()
        .find(|gpu| gpu.pending_driver.is_some())?;
    let running = gpu.driver_version.as_deref().unwrap_or("another version");
    let new = gpu.pending_driver.as_deref().unwrap_or_default();
    Some(Finding::new(
        Level::Problem,
        "driver-update",
        format!(
            "the driver of the GPU at {} was updated to {new} while {running} still runs",
            gpu.pci
        ),
        "restart the machine: until then no profile is made",
    ))
}

fn load(machine: &Machine) -> Option<Finding> {
    let load = f64::from(machine.host.load_1min_centi?) / 100.0;
    let threads = machine.host.logical_cores.max(1);
    (load > BUSY_LOAD_SHARE * f64::from(threads)).then(|| {
        Finding::new(
            Level::Warning,
            "load",
            format!("other programs are busy: load {load:.2} on {threads} logical processors"),
            "close them, or measure later",
        )
    })
}

fn memory(machine: &Machine, model_needs: Option<Bytes>) -> Option<Finding> {
    let free = machine.host.ram_available;
    if let Some(needs) = model_needs
        && free.saturating_sub(RAM_RESERVE) < needs
    {
        return Some(Finding::new(
            Level::Warning,
            "ram-model",
            format!("{free} of RAM are free; the model needs {needs} where it is not on the GPU"),
            "close programs, or choose a smaller model or quantisation",
        ));
    }
    (free < LITTLE_RAM).then(|| {
        Finding::new(
            Level::Warning,
            "ram",
            format!("only {free} of RAM are free: the system may swap during a run"),
            "close programs that hold memory",
        )
    })
}

/// Case C41: without its cache every process compiles its shaders anew, and the arms are hurt unequally.
fn shader_cache(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(value) = facts
        .shader_cache_disabled
        .as_deref()
        .filter(|v| is_true(v))
    {
        found.push(Finding::new(
            Level::Warning,
            "shader-cache-disabled",
            format!("the shader cache is switched off (MESA_SHADER_CACHE_DISABLE={value}): every process compiles"),
            "unset MESA_SHADER_CACHE_DISABLE",
        ));
    }
    if let Some(dir) = &facts.shader_cache_unwritable {
        found.push(Finding::new(
            Level::Warning,
            "shader-cache-unwritable",
            format!("the shader cache folder cannot be written, so every process compiles: {dir}"),
            "make the folder writable for this user",
        ));
    }
    found
}

/// Mesa's own reading of a switch.
fn is_true(value: &str) -> bool {
    matches!(
        value.to_ascii_lowercase().as_str(),
        "1" | "true" | "yes" | "y" | "on"
    )
}

fn inherited(machine: &Machine) -> Option<Finding> {
    let names: Vec<&str> = machine.inherited_env.keys().map(String::as_str).collect();
    (!names.is_empty()).then(|| {
        Finding::new(
            Level::Info,
            "inherited-env",
            format!("variables set here change llama.cpp outside Flux: {}", names.join(", ")),
            "nothing to do for Flux: it removes them from every process it starts; unset them to see the same speed elsewhere",
        )
    })
}

/// A settings file of llama.cpp's own: the user's is kept from Flux's runs, the system's cannot be.
pub fn settings_file(config: &LlamaConfig) -> Option<Finding> {
    let path = config.path.display();
    let (level, who, advice) = match config.reach {
        ConfigReach::User => (
            Level::Info,
            "your",
            "nothing to do for what Flux measures, which does not read it; `flux run` and servers started elsewhere do: move it away to get what was measured",
        ),
        ConfigReach::System => (
            Level::Warning,
            "this machine's",
            "move it away while measuring: every llama-server reads it, stock included (llama-bench does not)",
        ),
    };
    let title = match config.bad_line {
        Some(line) => format!("llama-server stops at line {line} of {who} settings file: {path}"),
        None if config.keys.is_empty() => return None,
        None => format!(
            "llama-server takes {} from {who} settings file: {path}",
            config.keys.join(", ")
        ),
    };
    Some(Finding::new(level, "llama-config", title, advice))
}

fn permission(machine: &Machine) -> Option<Finding> {
    (machine.host.render_nodes == Some(RenderNodes::Denied)).then(|| {
        Finding::new(
            Level::Problem,
            "dri-permission",
            "this user may not open the GPU: /dev/dri/renderD*",
            "add the user to the group render (`sudo usermod -aG render $USER`) and log in again",
        )
    })
}

fn vulkan(machine: &Machine) -> Option<Finding> {
    match &machine.vulkan.status {
        VulkanStatus::NoLoader { .. } => Some(Finding::new(
            Level::Info,
            "no-vulkan",
            "no Vulkan on this machine: GPUs cannot be read or used through it",
            "install the GPU's driver (Debian: mesa-vulkan-drivers), or measure on the CPU or with CUDA",
        )),
        VulkanStatus::NoDriver { .. } => Some(Finding::new(
            Level::Info,
            "no-vulkan-driver",
            "Vulkan is installed, but no driver for it",
            "install the GPU's driver (Debian: mesa-vulkan-drivers)",
        )),
        VulkanStatus::Ready { .. } if only_software(machine) => Some(Finding::new(
            Level::Info,
            "software-gpu",
            "the only Vulkan device is a software renderer: it is never tuned",
            "measure on the CPU, or install the GPU's driver",
        )),
        VulkanStatus::Ready { .. } => None,
    }
}

fn only_software(machine: &Machine) -> bool {
    let entries = &machine.vulkan.entries;
    !entries.is_empty() && entries.iter().all(|e| e.kind == DeviceKind::Software)
}

fn resizable_bar(machine: &Machine) -> Vec<Finding> {
    let off = |gpu: &Gpu| gpu.memory.as_ref().and_then(|m| m.resizable_bar) == Some(false);
    gpus(machine)
        .into_iter()
        .filter(off)
        .map(|gpu| {
            Finding::new(
                Level::Info,
                "resizable-bar",
                format!("resizable BAR is off: the host sees at most 256 MiB of {} at once", gpu.name),
                "switch on Above 4G Decoding and Resizable BAR in the firmware, if it has them; loading gets faster",
            )
        })
        .collect()
}

fn data_dir(facts: &Facts) -> Option<Finding> {
    facts.data_dir_unwritable.as_ref().map(|dir| {
        Finding::new(
            Level::Problem,
            "data-dir",
            format!("the data folder cannot be written, so nothing can be kept: {dir}"),
            "make it writable, or choose another with --data-dir",
        )
    })
}

#[cfg(test)]
mod tests;
