//! Which placements fit: layers spread over the devices, classes kept in RAM, by a quick estimate of the memory.

use crate::domain::placement::assignment::{ContextParams, Home, HostTensors, Placement};
use crate::domain::placement::devices::CpuLayout;
use crate::domain::placement::layout::TensorClass;
use crate::domain::placement::memory::{self, DeviceMemory, Prompts};
use crate::domain::placement::speed::Constant;

use super::Planner;

/// Layers more in RAM than must be, that are tried too: the first guess of the memory may be on the safe side.
const SPARE_STEPS: [u32; 3] = [0, 1, 2];

/// Where compute buffers are alike: simulating one placement stands for all of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Resident,
    Layers,
    Class,
}

/// What a placement takes of one memory, in the quick estimate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Need {
    weights: f64,
    rest: f64,
}

impl Planner<'_> {
    /// Placements that fit by the quick estimate, for one context.
    pub(super) fn placements(&self, context: &ContextParams) -> Vec<Placement> {
        let mut found = vec![Placement::cpu_only()];
        if self.devices() == 0 {
            if self.memories.host.layout != CpuLayout::File {
                found.push(Placement {
                    no_repack: true,
                    ..Placement::cpu_only()
                });
            }
            return found;
        }
        let all = self.footprint.n_layer() + 1;
        for layers in 1..=all {
            let kind = if layers == all {
                Kind::Resident
            } else {
                Kind::Layers
            };
            let placement = self.spread(Placement::layers(layers), kind, context);
            found.extend(placement);
        }
        let class = self.host_class();
        let most = self.footprint.n_layer();
        let fits = |kept: &u32| self.class_split(class, *kept, context).is_some();
        // Fewer layers in RAM need more of the device: what fits first is where the search begins.
        if let Some(least) = (1..=most).find(fits) {
            let steps = SPARE_STEPS.iter().map(|step| (least + step).min(most));
            let kept: std::collections::BTreeSet<u32> = steps.chain([most]).collect();
            found.extend(
                kept.iter()
                    .filter_map(|k| self.class_split(class, *k, context)),
            );
        }
        found
    }

    /// The class that goes to RAM in a split by class.
    pub(super) fn host_class(&self) -> TensorClass {
        if self.layout.experts.is_some() {
            TensorClass::Experts
        } else {
            TensorClass::FeedForward
        }
    }

    /// Everything offloaded but a class of `kept` layers; with several devices of as many layers of each as its share.
    pub(super) fn class_split(
        &self,
        class: TensorClass,
        kept: u32,
        context: &ContextParams,
    ) -> Option<Placement> {
        let n = self.footprint.n_layer();
        let mut placement = Placement::layers(n + 1);
        if class == TensorClass::Experts && self.devices() == 1 {
            placement.n_cpu_moe = kept;
        } else if self.devices() == 1 {
            let layers = (0..kept).collect();
            placement.host_tensors = vec![HostTensors { class, layers }];
        } else {
            return self.class_split_over(class, kept, context);
        }
        self.fits(&placement, Kind::Class, context)
            .then_some(placement)
    }

    /// Several devices (case C36): layers by the room each device has, and of each its own first layers' class in RAM.
    fn class_split_over(
        &self,
        class: TensorClass,
        kept: u32,
        context: &ContextParams,
    ) -> Option<Placement> {
        let n = self.footprint.n_layer();
        let rooms: Vec<f64> = self
            .memories
            .devices
            .iter()
            .map(|d| d.usable.0 as f64)
            .collect();
        let mut placement = Placement::layers(n + 1);
        placement.tensor_split = shares(&rooms, n + 1);
        let homes = self.resolve(&placement);
        let mut layers = Vec::new();
        for device in 0..self.devices() {
            let own: Vec<u32> = (0..n)
                .filter(|l| homes.layers[*l as usize] == Home::Device(device))
                .collect();
            let part = (own.len() as f64 * f64::from(kept) / f64::from(n)).ceil() as usize;
            layers.extend(own.into_iter().take(part));
        }
        placement.host_tensors = vec![HostTensors { class, layers }];
        self.fits(&placement, Kind::Class, context)
            .then_some(placement)
    }

    /// The same number of layers spread over the devices so that each has room, the fastest filled first.
    pub(super) fn spread(
        &self,
        mut placement: Placement,
        kind: Kind,
        context: &ContextParams,
    ) -> Option<Placement> {
        if self.devices() == 1 {
            return self.fits(&placement, kind, context).then_some(placement);
        }
        let layers = placement.offloaded(self.footprint.n_layer(), self.devices());
        let mut counts = self.fill(&placement, kind, context, layers)?;
        for _ in 0..=layers {
            placement.tensor_split = counts.iter().map(|c| f64::from(*c)).collect();
            let over = self.over(&placement, kind, context);
            let Some(full) = over.iter().position(|o| *o > 0.0) else {
                return Some(placement);
            };
            // What is too much moves to where most room is left.
            let free = (0..counts.len()).min_by(|a, b| over[*a].total_cmp(&over[*b]))?;
            if over[free] > 0.0 || counts[full] == 0 {
                return None;
            }
            counts[full] -= 1;
            counts[free] += 1;
        }
        None
    }

    /// Layers per device, by the mean size of the offloaded ones: the fastest devices first.
    fn fill(
        &self,
        placement: &Placement,
        kind: Kind,
        context: &ContextParams,
        layers: u32,
    ) -> Option<Vec<u32>> {
        let needs = self.needs(placement, kind, context);
        let devices = needs.iter().take(self.devices());
        let all: f64 = devices.map(|n| n.weights).sum();
        let each = (all / f64::from(layers)).max(1.0);
        let compute = self.compute_of(kind, context);
        let mut order: Vec<usize> = (0..self.devices()).collect();
        let secs = |i: &usize| {
            self.constants
                .get(&Constant::DeviceRead(*i))
                .map_or(0.0, |k| k.seconds)
        };
        order.sort_by(|a, b| secs(a).total_cmp(&secs(b)));
        let mut counts = vec![0; self.devices()];
        let mut left = layers;
        for i in order {
            let room =
                self.memories.devices[i].usable.0 as f64 - compute.get(i).copied().unwrap_or(0.0);
            let take = ((room / each).floor().max(0.0) as u32).min(left);
            counts[i] = take;
            left -= take;
        }
        (left == 0).then_some(counts)
    }

    fn fits(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> bool {
        self.over(placement, kind, context)
            .iter()
            .all(|o| *o <= 0.0)
    }

    /// Bytes each device lacks (or has left, negative).
    fn over(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> Vec<f64> {
        let needs = self.needs(placement, kind, context);
        let devices = self.memories.devices.iter();
        devices
            .zip(needs)
            .map(|(d, need)| need.weights + need.rest - d.usable.0 as f64)
            .collect()
    }

    /// Devices, then the host.
    fn needs(&self, placement: &Placement, kind: Kind, context: &ContextParams) -> Vec<Need> {
        let homes = self.resolve(placement);
        let n = self.devices();
        let at = |home: Home| match home {
            Home::Device(i) => i,
            Home::Host => n,
        };
        let mut needs = vec![Need::default(); n + 1];
        for (home, _, part) in self.footprint.parts(&homes) {
            needs[at(home)].weights += part.bytes;
        }
        for (shape, home) in self.layout.layers.iter().zip(&homes.cache) {
            let parts = memory::layer_parts(context, shape);
            needs[at(*home)].rest += parts.iter().sum::<u64>() as f64;
        }
        for (need, compute) in needs.iter_mut().zip(self.compute_of(kind, context)) {
            need.rest += compute;
        }
        // As many as tensors of this very placement are in RAM: not the same for all of a kind.
        let graphs = memory::captured_graphs(
            self.layout,
            placement,
            context,
            self.memories,
            Prompts::Long,
        );
        needs[0].rest += graphs.0 as f64;
        needs
    }

    /// Compute buffers and logits of a kind of placement, simulated once per context.
    fn compute_of(&self, kind: Kind, context: &ContextParams) -> Vec<f64> {
        let key = (kind, context.clone());
        if let Some(known) = self.compute.borrow().get(&key) {
            return known.clone();
        }
        let n = self.footprint.n_layer();
        let half = n.div_ceil(2);
        let mut placement = match kind {
            Kind::Resident => Placement::layers(n + 1),
            Kind::Layers => Placement::layers(half),
            Kind::Class => Placement {
                host_tensors: vec![HostTensors {
                    class: self.host_class(),
                    layers: (0..half).collect(),
                }],
                ..Placement::layers(n + 1)
            },
        };
        if self.devices() > 1 {
            placement.tensor_split = vec![1.0; self.devices()];
        }
        let memory = memory::sketch(
            self.layout,
            &placement,
            context,
            self.memories,
            self.corrections,
        );
        let of = |m: &DeviceMemory| (m.compute.0 + m.output.0) as f64;
        let compute: Vec<f64> = memory.iter().map(of).collect();
        self.compute.borrow_mut().insert(key, compute.clone());
        compute
    }
}

/// `total` layers in proportion to `rooms`, whole, the remainder to the largest.
fn shares(rooms: &[f64], total: u32) -> Vec<f64> {
    let sum: f64 = rooms.iter().sum();
    let mut counts: Vec<f64> = rooms
        .iter()
        .map(|r| (r / sum * f64::from(total)).floor())
        .collect();
    let given: f64 = counts.iter().sum();
    if let Some(largest) = (0..rooms.len()).max_by(|a, b| rooms[*a].total_cmp(&rooms[*b])) {
        counts[largest] += f64::from(total) - given;
    }
    counts
}
