//! A placement changed by hand: what a click on a cell or a move of a slider makes of it, always in terms that llama.cpp can
//! carry out.

use std::collections::BTreeSet;

use super::layout::{ModelLayout, TensorClass};
use super::placement::{Home, HostTensors, Placement};

/// What a placement is changed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hand {
    /// Blocks of the model.
    pub n_layer: u32,
    /// Devices of the machine.
    pub devices: usize,
    /// The class that can leave its layer's device: [`TensorClass::Experts`] of a mixture, else the feed-forward weights.
    pub class: TensorClass,
}

impl Hand {
    /// For this model, on a machine with so many devices.
    pub fn of(layout: &ModelLayout, devices: usize) -> Self {
        Self {
            n_layer: layout.n_layer(),
            devices,
            class: if layout.experts.is_some() {
                TensorClass::Experts
            } else {
                TensorClass::FeedForward
            },
        }
    }

    /// Blocks on devices.
    pub fn blocks(self, placement: &Placement) -> u32 {
        placement
            .offloaded(self.n_layer, self.devices)
            .saturating_sub(1)
    }

    /// Blocks whose movable class is in RAM, for whatever reason.
    pub fn in_ram(self, placement: &Placement) -> Vec<u32> {
        let homes = placement.resolve(self.n_layer, self.devices);
        (0..self.n_layer)
            .filter(|l| homes.home(*l as usize, self.class) == Home::Host)
            .collect()
    }

    /// `layers` of blocks + output offloaded.
    pub fn offloading(self, placement: &Placement, layers: u32) -> Placement {
        Placement {
            n_gpu_layers: Some(layers.min(self.n_layer + 1)),
            ..placement.clone()
        }
    }

    /// The boundary between RAM and devices at this block: one in RAM comes to a device with all after it, one on a device
    /// goes to RAM with all before it.
    pub fn boundary_at(self, placement: &Placement, layer: u32) -> Placement {
        let all = self.n_layer + 1;
        let first = all - placement.offloaded(self.n_layer, self.devices);
        let layers = if layer < first {
            all - layer
        } else {
            all - layer - 1
        };
        self.offloading(placement, layers)
    }

    /// The movable class of this block goes to RAM, or back to its block's device. That of a block in RAM cannot leave it
    /// alone: the boundary moves.
    pub fn toggled(self, placement: &Placement, layer: u32) -> Placement {
        if placement.layer_home(layer, self.n_layer, self.devices) == Home::Host {
            return self.boundary_at(placement, layer);
        }
        let mut kept: BTreeSet<u32> = (0..self.n_layer)
            .filter(|l| placement.keeps_on_host(*l, self.class))
            .collect();
        if !kept.remove(&layer) {
            kept.insert(layer);
        }
        self.with_rule(placement, &kept)
    }

    /// The movable class of `count` blocks in RAM, those among them that are there as a whole; further ones from the front
    /// of each device's own, by the share of blocks that it holds (case C36).
    pub fn keeping(self, placement: &Placement, count: u32) -> Placement {
        let homes = placement.resolve(self.n_layer, self.devices).layers;
        let on_devices = homes.iter().filter(|h| **h != Home::Host).count() as u32;
        let whole = self.n_layer - on_devices;
        let extra = count.saturating_sub(whole).min(on_devices);
        let mut kept = BTreeSet::new();
        if self.devices == 1 {
            kept.extend(0..if extra > 0 { whole + extra } else { 0 });
            return self.with_rule(placement, &kept);
        }
        let (mut seen, mut given) = (0, 0);
        for device in 0..self.devices {
            let is_own = |l: &u32| homes[*l as usize] == Home::Device(device);
            let own: Vec<u32> = (0..self.n_layer).filter(is_own).collect();
            seen += own.len() as u32;
            let due = (seen * extra).div_ceil(on_devices.max(1));
            kept.extend(own.into_iter().take((due - given) as usize));
            given = due;
        }
        self.with_rule(placement, &kept)
    }

    /// `more` blocks leave the devices: their movable class where the placement is split by class, else as a whole.
    pub fn with_less_on_devices(self, placement: &Placement, more: u32) -> Placement {
        if more == 0 {
            return placement.clone();
        }
        let by_class = (0..self.n_layer).any(|l| placement.keeps_on_host(l, self.class));
        if by_class {
            let now = self.in_ram(placement).len() as u32;
            self.keeping(placement, now + more)
        } else {
            let now = placement.offloaded(self.n_layer, self.devices);
            self.offloading(placement, now.saturating_sub(more))
        }
    }

    /// Exactly these blocks' movable class kept in RAM, written the shortest way.
    fn with_rule(self, placement: &Placement, kept: &BTreeSet<u32>) -> Placement {
        let mut placement = placement.clone();
        placement.n_cpu_moe = 0;
        placement.host_tensors.retain(|r| r.class != self.class);
        let is_front = kept.iter().copied().eq(0..kept.len() as u32);
        if kept.is_empty() {
            return placement;
        }
        if self.class == TensorClass::Experts && self.devices == 1 && is_front {
            placement.n_cpu_moe = kept.len() as u32;
        } else {
            placement.host_tensors.push(HostTensors {
                class: self.class,
                layers: kept.iter().copied().collect(),
            });
        }
        placement
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten blocks, one device.
    const DENSE: Hand = Hand {
        n_layer: 10,
        devices: 1,
        class: TensorClass::FeedForward,
    };
    const MIXTURE: Hand = Hand {
        class: TensorClass::Experts,
        ..DENSE
    };
    /// Of ten blocks and the output, 5.5 places each: blocks 0 to 5 on the first, 6 to 9 and the output on the second.
    const TWO: Hand = Hand {
        devices: 2,
        ..MIXTURE
    };

    fn rule(placement: &Placement) -> &[u32] {
        &placement.host_tensors[0].layers
    }

    #[test]
    fn the_boundary_moves_to_the_block_clicked() {
        // Of ten blocks and the output, seven offloaded: blocks 4 to 9.
        let seven = Placement::layers(7);
        assert_eq!(DENSE.blocks(&seven), 6);
        assert_eq!(DENSE.boundary_at(&seven, 2), Placement::layers(9));
        assert_eq!(DENSE.boundary_at(&seven, 4), Placement::layers(6));
        assert_eq!(DENSE.boundary_at(&seven, 9), Placement::layers(1));
        assert_eq!(
            DENSE.boundary_at(&Placement::default(), 0),
            Placement::layers(10)
        );
    }

    #[test]
    fn a_blocks_weights_go_to_ram_and_back() {
        let there = DENSE.toggled(&Placement::layers(11), 3);
        assert_eq!(rule(&there), [3]);
        assert_eq!(DENSE.in_ram(&there), [3]);
        assert_eq!(DENSE.toggled(&there, 3), Placement::layers(11));
        // Block 2 is in RAM as a whole: it comes to the device with the others.
        let half = Placement::layers(6);
        assert_eq!(DENSE.toggled(&half, 2), Placement::layers(9));
    }

    #[test]
    fn experts_from_the_front_are_ncmoe_and_others_a_rule() {
        let front = MIXTURE.keeping(&Placement::layers(11), 3);
        assert_eq!((front.n_cpu_moe, front.host_tensors.len()), (3, 0));
        let gap = MIXTURE.toggled(&front, 1);
        assert_eq!((gap.n_cpu_moe, rule(&gap)), (0, &[0, 2][..]));
        assert_eq!(MIXTURE.toggled(&gap, 1), front);
    }

    #[test]
    fn blocks_in_ram_as_a_whole_count_among_those_kept() {
        // Blocks 0 to 3 are in RAM.
        let seven = Placement::layers(7);
        assert_eq!(MIXTURE.in_ram(&seven), [0, 1, 2, 3]);
        assert_eq!(MIXTURE.keeping(&seven, 2), seven);
        assert_eq!(MIXTURE.keeping(&seven, 6).n_cpu_moe, 6);
        assert_eq!(MIXTURE.in_ram(&MIXTURE.keeping(&seven, 6)).len(), 6);
        assert_eq!(MIXTURE.in_ram(&MIXTURE.keeping(&seven, 99)).len(), 10);
    }

    #[test]
    fn c36_each_device_gives_its_own_first_blocks() {
        // Five of ten: of six blocks 5 × 6 / 10 = 3, of four the other 2.
        let kept = TWO.keeping(&Placement::layers(11), 5);
        assert_eq!(rule(&kept), [0, 1, 2, 6, 7]);
    }

    #[test]
    fn less_on_devices_goes_the_placements_own_way() {
        let whole = DENSE.with_less_on_devices(&Placement::layers(7), 2);
        assert_eq!(whole, Placement::layers(5));
        let by_class = MIXTURE.keeping(&Placement::layers(11), 3);
        assert_eq!(MIXTURE.with_less_on_devices(&by_class, 2).n_cpu_moe, 5);
    }
}
