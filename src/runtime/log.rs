//! llama.cpp's log, line by line: buffers per device, offloaded layers, context, flash attention, the devices used.
//! Placement is judged from these lines, never from the `backends` column (design section 4; cases C05, C18, C21).

use std::collections::BTreeMap;

use crate::domain::types::{BufferUse, Bytes, PciAddress};

/// Marks a line that reports a buffer; the destructor's `buffer size is` is not one.
const BUFFER: &str = " buffer size =";
/// Said by a build that finds no GPU, before it goes on with the CPU (case C21).
const NO_GPU: &str = "no usable GPU found";

/// A device the log says it used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedDevice {
    /// Name in this runtime: `Vulkan0`.
    pub id: String,
    /// The device's own name.
    pub name: String,
}

/// What the log of one process told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogFacts {
    /// Per device, in order of appearance, the largest model and the largest context of the process.
    pub buffers: Vec<BufferUse>,
    /// Layers offloaded, and layers in all (blocks and the output layer).
    pub offloaded: Option<(u32, u32)>,
    /// Largest context made, tokens.
    pub n_ctx: Option<u32>,
    /// What flash attention came to, where the log says.
    pub flash_attention: Option<bool>,
    /// Devices used for the model.
    pub used: Vec<UsedDevice>,
    /// Vulkan's banner: device by runtime name (`Vulkan0`), with the driver in brackets.
    pub banner: BTreeMap<String, String>,
    /// It warned that there is no usable GPU.
    pub no_usable_gpu: bool,
}

impl LogFacts {
    /// Does a buffer line show a device other than the CPU (`CPU_Mapped`, `CPU_REPACK`, `AMX`) and pinned host memory?
    pub fn has_gpu_buffers(&self) -> bool {
        let is_host = |d: &str| d.starts_with("CPU") || d.ends_with("_Host") || d == "AMX";
        self.buffers.iter().any(|b| !is_host(&b.device))
    }
}

/// Reads a log as it comes. llama-bench makes a context per test, so the maximum counts, not the sum.
#[derive(Debug, Default)]
pub struct LogReader {
    facts: LogFacts,
    model: Vec<(String, Bytes)>,
    context: Vec<(String, Bytes)>,
    compute: Vec<(String, Bytes)>,
}

impl LogReader {
    /// A reader at the start of a log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &str) {
        if let Some((left, right)) = line.split_once(BUFFER) {
            self.buffer(left, right);
        } else if line.contains("llama_model_loader: loaded meta data") {
            self.fold_model();
        } else if let Some(n) = context_size(line) {
            self.fold_context();
            self.facts.n_ctx = self.facts.n_ctx.max(Some(n));
        } else if let Some((_, counts)) = line.split_once(" offloaded ") {
            self.facts.offloaded = fraction(counts).or(self.facts.offloaded);
        } else if line.contains("Flash Attention") {
            self.flash_attention(line);
        } else if let Some((_, device)) = line.split_once("using device ") {
            self.facts.used.extend(used_device(device));
        } else if let Some(entry) = line.strip_prefix("ggml_vulkan: ") {
            self.facts.banner.extend(vulkan_banner(entry));
        }
        self.facts.no_usable_gpu |= line.contains(NO_GPU);
    }

    /// What it all told.
    pub fn finish(mut self) -> LogFacts {
        self.fold_model();
        self.fold_context();
        self.facts
    }

    /// `load_tensors:        CUDA0 model buffer size =  2375.91 MiB`, after any prefix.
    fn buffer(&mut self, left: &str, right: &str) {
        let mut words = left.split_whitespace().rev();
        let (Some(kind), Some(device)) = (words.next(), words.next()) else {
            return;
        };
        let Some(size) = mebibytes(right) else {
            return;
        };
        match kind {
            "model" => entry(&mut self.model, device).0 += size,
            // The graph may be reserved twice in one context: the last reservation stands.
            "compute" => *entry(&mut self.compute, device) = Bytes(size),
            _ => entry(&mut self.context, device).0 += size,
        }
    }

    fn flash_attention(&mut self, line: &str) {
        if line.ends_with("enabled") {
            self.facts.flash_attention = Some(true);
        } else if line.ends_with("disabled") {
            self.facts.flash_attention = Some(false);
        }
    }

    fn fold_model(&mut self) {
        for (device, size) in std::mem::take(&mut self.model) {
            let known = &mut device_mut(&mut self.facts.buffers, &device).model;
            *known = size.max(*known);
        }
    }

    /// The maximum is per part: an upper bound of any one context, and exact when the largest leads in both.
    fn fold_context(&mut self) {
        for (device, size) in std::mem::take(&mut self.context) {
            let known = &mut device_mut(&mut self.facts.buffers, &device).context;
            *known = size.max(*known);
        }
        for (device, size) in std::mem::take(&mut self.compute) {
            let known = &mut device_mut(&mut self.facts.buffers, &device).compute;
            *known = size.max(*known);
        }
    }
}

/// The size of `device` in a list in order of appearance.
fn entry<'a>(list: &'a mut Vec<(String, Bytes)>, device: &str) -> &'a mut Bytes {
    let at = list.iter().position(|(d, _)| d == device);
    let at = at.unwrap_or_else(|| {
        list.push((device.to_owned(), Bytes(0)));
        list.len() - 1
    });
    &mut list[at].1
}

fn device_mut<'a>(buffers: &'a mut Vec<BufferUse>, device: &str) -> &'a mut BufferUse {
    let at = buffers.iter().position(|b| b.device == device);
    let at = at.unwrap_or_else(|| {
        buffers.push(BufferUse {
            device: device.to_owned(),
            ..BufferUse::default()
        });
        buffers.len() - 1
    });
    &mut buffers[at]
}

/// `  2375.91 MiB` → bytes.
fn mebibytes(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix("MiB")?.trim();
    let mib: f64 = number.parse().ok()?;
    (mib.is_finite() && mib >= 0.0).then(|| (mib * 1024.0 * 1024.0).round() as u64)
}

/// `llama_context: n_ctx                 = 512` → 512; `n_ctx_seq` is another line.
fn context_size(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("llama_context: n_ctx ")?;
    rest.trim_start().strip_prefix('=')?.trim().parse().ok()
}

/// `37/37 layers to GPU` → (37, 37).
fn fraction(text: &str) -> Option<(u32, u32)> {
    let (done, all) = text.split_whitespace().next()?.split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

/// `CUDA0 (NVIDIA H200) (0000:00:06.0) - 142629 MiB free`; older builds leave the PCI address out.
fn used_device(text: &str) -> Option<UsedDevice> {
    let (id, rest) = text.split_once(' ')?;
    let rest = rest.rsplit_once(" - ").map_or(rest, |(r, _)| r).trim();
    let rest = match rest.rsplit_once(" (") {
        Some((name, last)) if is_place(last.trim_end_matches(')')) => name,
        _ => rest,
    };
    let name = rest.strip_prefix('(')?.strip_suffix(')')?;
    Some(UsedDevice {
        id: id.to_owned(),
        name: name.to_owned(),
    })
}

fn is_place(text: &str) -> bool {
    text == "unknown id" || text.parse::<PciAddress>().is_ok()
}

/// `0 = NVIDIA H200 (NVIDIA) | uma: 0 | …` → (`Vulkan0`, `NVIDIA H200 (NVIDIA)`).
fn vulkan_banner(entry: &str) -> Option<(String, String)> {
    let (index, rest) = entry.split_once(" = ")?;
    let index: u32 = index.trim().parse().ok()?;
    let (name, _) = rest.split_once(" | ")?;
    Some((format!("Vulkan{index}"), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> LogFacts {
        let mut reader = LogReader::new();
        log.lines().for_each(|line| reader.line(line));
        reader.finish()
    }

    fn mib(value: f64) -> Bytes {
        Bytes((value * 1_048_576.0).round() as u64)
    }

    #[test]
    fn the_real_log_of_an_h200_is_read() {
        let facts = read(include_str!(
            "../../tests/fixtures/logs/llama-bench-v-cuda-b11149.txt"
        ));
        let cuda = facts.buffers.iter().find(|b| b.device == "CUDA0").unwrap();
        assert_eq!(cuda.model, mib(2375.91));
        assert_eq!(cuda.context, mib(72.00));
        assert_eq!(cuda.compute, mib(301.75));
        let pinned = facts.buffers.iter().find(|b| b.device == "CUDA_Host");
        let pinned = pinned.unwrap();
        assert_eq!(
            (pinned.context, pinned.compute),
            (mib(0.58), mib(10.51)),
            "the larger of the two contexts, not their sum"
        );
        assert_eq!(facts.offloaded, Some((37, 37)));
        assert_eq!(facts.n_ctx, Some(512));
        assert_eq!(facts.flash_attention, Some(true));
        assert_eq!(facts.used[0].id, "CUDA0");
        assert_eq!(facts.used[0].name, "NVIDIA H200");
        assert!(facts.has_gpu_buffers());
        assert!(!facts.no_usable_gpu);
    }

    #[test]
    fn two_caches_of_one_context_add_up() {
        // Gemma 3: a cache for the global layers and one for the window layers.
        let facts = read(
            "llama_context: n_ctx                 = 256\n\
             llama_context:        CPU  output buffer size =     1.00 MiB\n\
             llama_kv_cache:        CPU KV buffer size =     0.75 MiB\n\
             llama_kv_cache:        CPU KV buffer size =     3.75 MiB\n\
             sched_reserve:        CPU compute buffer size =    32.16 MiB\n\
             ~llama_context:        CPU compute buffer size is  32.1564 MiB, matches expectation\n\
             llama_context: n_ctx                 = 256\n\
             llama_kv_cache:        CPU KV buffer size =     3.75 MiB\n\
             sched_reserve:        CPU compute buffer size =     8.04 MiB\n",
        );
        assert_eq!(facts.buffers.len(), 1);
        assert_eq!(facts.buffers[0].context, mib(5.5));
        assert_eq!(facts.buffers[0].compute, mib(32.16));
        assert!(!facts.has_gpu_buffers());
    }

    #[test]
    fn names_with_brackets_and_prefixes_are_read() {
        let facts = read(
            "ggml_vulkan: Found 1 Vulkan devices:\n\
             ggml_vulkan: 0 = AMD Radeon RX 580 Series (RADV POLARIS10) (radv) | uma: 0 | fp16: 0\n\
             using device Vulkan0 (AMD Radeon RX 580 Series (RADV POLARIS10)) (0000:01:00.0) - 7900 MiB free\n\
             llama_model_load_from_file_impl: using device Vulkan1 (Intel(R) UHD) - 99 MiB free\n\
             0.00.412 I load_tensors:      Vulkan0 model buffer size =  2375.91 MiB\n\
             warning: no usable GPU found, --gpu-layers option will be ignored\n",
        );
        assert_eq!(
            facts.banner["Vulkan0"],
            "AMD Radeon RX 580 Series (RADV POLARIS10) (radv)"
        );
        assert_eq!(
            facts.used[0].name,
            "AMD Radeon RX 580 Series (RADV POLARIS10)"
        );
        assert_eq!(facts.used[1].name, "Intel(R) UHD");
        assert_eq!(facts.buffers[0].device, "Vulkan0");
        assert!(facts.no_usable_gpu);
    }
}
