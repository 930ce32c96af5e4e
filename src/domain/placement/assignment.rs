//! A placement: which tensor goes to which memory, as llama.cpp decides it from `-ngl`, `-ts`, `-ncmoe` and `-ot`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::layout::{ModelLayout, TensorClass, TensorEntry};

/// Where a tensor lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Home {
    /// RAM, and the disk behind it where RAM does not hold it all.
    Host,
    /// The offload device of this position in [`super::devices::Memories::devices`].
    Device(usize),
}

/// Feed-forward tensors taken off their layer's device into RAM, written out as one `-ot` rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostTensors {
    /// Which class of each layer named: [`TensorClass::FeedForward`] or [`TensorClass::Experts`].
    pub class: TensorClass,
    /// The layers, ascending.
    pub layers: Vec<u32>,
}

/// Where everything goes. The stock placement offloads all layers and names nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// `-ngl`: the last so many of blocks + output are offloaded; `None` is llama.cpp's own "all".
    pub n_gpu_layers: Option<u32>,
    /// `-ncmoe`: experts of the first so many layers stay in RAM.
    pub n_cpu_moe: u32,
    /// Further tensors that stay in RAM, by exact layers (two GPUs: case C36).
    pub host_tensors: Vec<HostTensors>,
    /// `-ts`: share of the offloaded layers per device; empty with one device.
    pub tensor_split: Vec<f64>,
    /// `-nkvo`: the KV cache stays in RAM.
    pub kv_on_host: bool,
    /// `--no-repack`: the CPU backend computes with weights as they are in the file, and RAM need not hold them all.
    #[serde(default)]
    pub no_repack: bool,
}

/// The context a placement is judged for (`llama_context_params`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContextParams {
    /// `-c`: tokens of context.
    pub context: u64,
    /// `-b`: tokens of a logical batch.
    pub batch: u64,
    /// `-ub`: tokens of a micro-batch.
    pub micro_batch: u64,
    /// `-ctk`: type of the K cache, as in llama.cpp: `f16`, `q8_0`, …
    pub type_k: String,
    /// `-ctv`: type of the V cache.
    pub type_v: String,
    /// Flash attention is used (llama.cpp's `auto` uses it wherever the device can).
    pub flash_attention: bool,
    /// Sequences served at once (`-np`).
    pub sequences: u64,
}

impl Default for ContextParams {
    /// llama.cpp's own, with 4096 tokens of context.
    fn default() -> Self {
        Self {
            context: 4096,
            batch: 2048,
            micro_batch: 512,
            type_k: "f16".to_owned(),
            type_v: "f16".to_owned(),
            flash_attention: true,
            sequences: 1,
        }
    }
}

impl Placement {
    /// Everything in RAM.
    pub fn cpu_only() -> Self {
        Self {
            n_gpu_layers: Some(0),
            ..Self::default()
        }
    }

    /// The last `layers` of blocks + output offloaded, all else in RAM.
    pub fn layers(layers: u32) -> Self {
        Self {
            n_gpu_layers: Some(layers),
            ..Self::default()
        }
    }

    /// Blocks + output that are offloaded, of a model with `n_layer` blocks on a machine with `devices` devices.
    pub fn offloaded(&self, n_layer: u32, devices: usize) -> u32 {
        let all = n_layer + 1;
        if devices == 0 {
            0
        } else {
            self.n_gpu_layers.map_or(all, |n| n.min(all))
        }
    }

    /// Does llama.cpp work on several micro-batches at once (`pipeline_parallel`)? Only with several devices, everything
    /// offloaded and no tensor taken off.
    pub fn is_pipelined(&self, n_layer: u32, devices: usize) -> bool {
        let all = self.offloaded(n_layer, devices) > n_layer;
        let whole = self.n_cpu_moe == 0 && self.host_tensors.is_empty();
        devices > 1 && all && whole && !self.kv_on_host
    }

    /// Device of a block (`n_layer` stands for the output), by llama.cpp's rule: the first `n_layer + 1 − n_gpu_layers`
    /// stay in RAM; the others go to the first device whose cumulative share exceeds their place among the offloaded ones
    /// (`load_tensors` of llama-model.cpp).
    pub fn layer_home(&self, layer: u32, n_layer: u32, devices: usize) -> Home {
        let offloaded = self.offloaded(n_layer, devices);
        let first = n_layer + 1 - offloaded;
        if layer < first {
            return Home::Host;
        }
        let place = (layer - first) as f32 / offloaded as f32;
        let even = self.tensor_split.iter().all(|s| *s == 0.0);
        let share = |i: usize| match self.tensor_split.get(i) {
            _ if even => 1.0,
            Some(share) => *share as f32,
            None => 0.0,
        };
        let all: f32 = (0..devices).map(share).sum();
        let mut sum = 0.0;
        let reaches = |i: &usize| {
            sum += share(*i);
            sum / all > place
        };
        Home::Device((0..devices).find(reaches).unwrap_or(devices - 1))
    }

    /// The homes of everything in a model with `n_layer` blocks, on a machine with `devices` devices.
    pub fn resolve(&self, n_layer: u32, devices: usize) -> Resolved {
        let layers: Vec<Home> = (0..n_layer)
            .map(|layer| self.layer_home(layer, n_layer, devices))
            .collect();
        let kept = |class| {
            let mut homes = layers.clone();
            let ncmoe = if class == TensorClass::Experts {
                self.n_cpu_moe.min(n_layer)
            } else {
                0
            };
            homes[..ncmoe as usize].fill(Home::Host);
            let rules = self.host_tensors.iter().filter(|r| r.class == class);
            for layer in rules.flat_map(|r| &r.layers) {
                if let Some(home) = homes.get_mut(*layer as usize) {
                    *home = Home::Host;
                }
            }
            homes
        };
        Resolved {
            feed_forward: kept(TensorClass::FeedForward),
            experts: kept(TensorClass::Experts),
            cache: if self.kv_on_host {
                vec![Home::Host; layers.len()]
            } else {
                layers.clone()
            },
            output: self.layer_home(n_layer, n_layer, devices),
            layers,
        }
    }

    /// Where a tensor's data is kept, and read from when it is used.
    pub fn home(&self, tensor: &TensorEntry, layout: &ModelLayout, devices: usize) -> Home {
        let n_layer = layout.n_layer();
        match (tensor.layer, tensor.class) {
            (None, TensorClass::Embedding) => Home::Host,
            (None, _) => self.layer_home(n_layer, n_layer, devices),
            (Some(layer), class) if self.keeps_on_host(layer, class) => Home::Host,
            (Some(layer), _) => self.layer_home(layer, n_layer, devices),
        }
    }

    /// Are there weights in RAM that every token reads? The embedding table, of which a token reads a row, always is.
    pub fn keeps_weights_in_ram(&self, layout: &ModelLayout, devices: usize) -> bool {
        let mut read = layout
            .tensors
            .iter()
            .filter(|t| t.class != TensorClass::Embedding);
        read.any(|t| self.home(t, layout, devices) == Home::Host)
    }

    /// Where a layer's KV cache is kept.
    pub fn cache_home(&self, layer: u32, n_layer: u32, devices: usize) -> Home {
        if self.kv_on_host {
            Home::Host
        } else {
            self.layer_home(layer, n_layer, devices)
        }
    }

    /// Does a rule take this class of this layer off its device?
    pub fn keeps_on_host(&self, layer: u32, class: TensorClass) -> bool {
        let ncmoe = class == TensorClass::Experts && layer < self.n_cpu_moe;
        let rule = |r: &HostTensors| r.class == class && r.layers.contains(&layer);
        ncmoe || self.host_tensors.iter().any(rule)
    }
}

/// `ngl=24 ncmoe=8`: what is not stock, in the words `--predict` reads.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(n) = self.n_gpu_layers {
            words.push(format!("ngl={n}"));
        }
        if self.n_cpu_moe > 0 {
            words.push(format!("ncmoe={}", self.n_cpu_moe));
        }
        for kept in self.host_tensors.iter().filter(|k| !k.layers.is_empty()) {
            let class = if kept.class == TensorClass::Experts {
                "experts"
            } else {
                "ffn"
            };
            words.push(format!("{class}={}", ranges(&kept.layers)));
        }
        if !self.tensor_split.is_empty() {
            let shares: Vec<String> = self.tensor_split.iter().map(f64::to_string).collect();
            words.push(format!("ts={}", shares.join("/")));
        }
        if self.kv_on_host {
            words.push("nkvo=1".to_owned());
        }
        if self.no_repack {
            words.push("repack=0".to_owned());
        }
        if words.is_empty() {
            words.push("stock".to_owned());
        }
        f.pad(&words.join(" "))
    }
}

/// `0-11.36-47`: a comma or a space would end the word.
pub fn ranges(layers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &layer in layers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == layer => *end = layer,
            _ => runs.push((layer, layer)),
        }
    }
    let text: Vec<String> = runs
        .into_iter()
        .map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    text.join(".")
}

/// A placement with every home looked up, for the loops that judge hundreds of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Device of each block: its attention, norms and all that no rule takes off it.
    pub layers: Vec<Home>,
    /// Where each block's dense feed-forward weights are.
    pub feed_forward: Vec<Home>,
    /// Where each block's experts are.
    pub experts: Vec<Home>,
    /// Where each block's cache is.
    pub cache: Vec<Home>,
    /// Where the output matrix is.
    pub output: Home,
}

impl Resolved {
    /// Where a class of a block is.
    pub fn home(&self, layer: usize, class: TensorClass) -> Home {
        match class {
            TensorClass::FeedForward => self.feed_forward[layer],
            TensorClass::Experts => self.experts[layer],
            _ => self.layers[layer],
        }
    }
}
