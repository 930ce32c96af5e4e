//! What to say when no GPU can be used: a normal state with a reason and next steps, never an error (cases C20, C21).

use serde::{Deserialize, Serialize};

use crate::domain::types::{Machine, RenderNodes, VulkanStatus};

use super::architecture::{VENDOR_AMD, VENDOR_INTEL, VENDOR_NVIDIA};
use super::{Gpu, default_gpu};

/// Why no GPU can be used through Vulkan, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoGpu {
    /// One sentence.
    pub headline: String,
    /// Next steps, the likeliest first.
    pub hints: Vec<String>,
}

/// `None` when a GPU is usable.
pub fn no_gpu(machine: &Machine, gpus: &[Gpu]) -> Option<NoGpu> {
    if default_gpu(gpus).is_some() {
        return None;
    }
    let cause = match &machine.vulkan.status {
        VulkanStatus::NoLoader { .. } => "no Vulkan loader on this machine",
        VulkanStatus::NoDriver { .. } => "no Vulkan driver installed",
        VulkanStatus::Ready { .. } if machine.vulkan.entries.is_empty() => {
            "the Vulkan drivers found no device"
        }
        VulkanStatus::Ready { .. } => "only a software renderer",
    };
    let mut hints = Vec::new();
    if matches!(machine.vulkan.status, VulkanStatus::NoLoader { .. }) {
        hints.push("install the Vulkan loader (Debian, Ubuntu: libvulkan1; Windows: the GPU driver brings it)".to_owned());
    }
    hints.extend(access_hint(machine.host.render_nodes));
    let listed: Vec<&Gpu> = gpus
        .iter()
        .filter(|g| g.preferred.is_none() && g.computes())
        .collect();
    hints.extend(listed.iter().map(|g| driver_hint(g)));
    if listed.is_empty() {
        hints.push("a GPU in this machine needs its vendor's Vulkan driver (Debian, Ubuntu: mesa-vulkan-drivers for AMD and Intel, nvidia-driver for NVIDIA)".to_owned());
    }
    let consequence = if listed.is_empty() {
        "CPU only"
    } else {
        "CPU only, unless the build brings its own backend (CUDA, HIP, SYCL)"
    };
    Some(NoGpu {
        headline: format!("No usable Vulkan GPU ({cause}): {consequence}"),
        hints,
    })
}

fn access_hint(nodes: Option<RenderNodes>) -> Option<String> {
    match nodes? {
        RenderNodes::Usable => None,
        RenderNodes::Missing => Some(
            "no render node in /dev/dri: the kernel driver is not loaded, or a container was started without --device /dev/dri".to_owned(),
        ),
        RenderNodes::Denied => Some(
            "the render node in /dev/dri may not be opened: add yourself to the group render (sudo usermod -aG render $USER), then log in again".to_owned(),
        ),
    }
}

fn driver_hint(gpu: &Gpu) -> String {
    let package = match gpu.vendor_id {
        VENDOR_AMD => "mesa-vulkan-drivers (Mesa RADV), or AMD's Adrenalin on Windows",
        VENDOR_INTEL => "mesa-vulkan-drivers, or Intel's graphics driver on Windows",
        VENDOR_NVIDIA => "nvidia-driver (in a container: NVIDIA_DRIVER_CAPABILITIES=all)",
        _ => "its vendor's driver",
    };
    let name = &gpu.name;
    format!("{name} has no Vulkan driver: install {package}")
}
