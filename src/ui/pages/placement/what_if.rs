//! The sliders: context, layers on the GPU, what of the layers stays in RAM, how much memory may be used, micro-batch and
//! cache types.

use eframe::egui::{Ui, vec2};

use crate::domain::placement::assignment::Home;
use crate::domain::placement::edit::Hand;
use crate::domain::placement::layout::TensorClass;
use crate::domain::text::grouped;
use crate::domain::types::Bytes;
use crate::ui::theme::space;
use crate::ui::widgets::{Card, caption, segmented, slider, toggle};

use super::State;
use super::model::{Looked, Model};
use super::words;

/// Shortest context offered, tokens.
const SHORTEST: u64 = 512;
/// Longest context offered of a model that does not say what it was made for, tokens.
const LONGEST: u64 = 131_072;
/// Micro-batches offered.
const MICRO_BATCHES: [u64; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Steps of memory.
const VRAM_STEP: Bytes = Bytes::mib(256);
const RAM_STEP: Bytes = Bytes::mib(512);
/// Room for one slider beside another.
const COLUMN: f32 = 240.0;

/// Draws the card; a slider changes what is looked at.
pub(super) fn show(ui: &mut Ui, page: &mut State, model: &Model, height: f32) {
    Card::new("What if").min_height(height).show(ui, |ui| {
        let Some(mut looked) = page.looked.clone() else {
            return;
        };
        let mut limits = page.limits.clone();
        let columns = (ui.available_width() / COLUMN).floor().clamp(1.0, 3.0) as usize;
        ui.spacing_mut().item_spacing = vec2(space::XL, 2.0);
        let memories = &model.base.memories;
        let vram = memories.devices.iter().map(|d| d.usable).max();
        ui.columns(columns, |uis| {
            let mut next = (0..columns).cycle();
            let mut here = || next.next().unwrap_or(0);
            context(&mut uis[here()], &mut looked, model);
            if vram.is_some() {
                layers(&mut uis[here()], &mut looked, model.hand);
                in_ram(&mut uis[here()], &mut looked, model.hand);
            }
            if let Some(most) = vram {
                let label = if memories.devices.len() > 1 {
                    "VRAM to use, each"
                } else {
                    "VRAM to use"
                };
                bytes(&mut uis[here()], label, &mut limits.vram, (most, VRAM_STEP));
            }
            bytes(
                &mut uis[here()],
                "RAM to use",
                &mut limits.ram,
                (memories.host.usable, RAM_STEP),
            );
            micro_batch(&mut uis[here()], &mut looked);
        });
        ui.add_space(space::XS);
        toggle(
            ui,
            &mut limits.allow_kv_quant,
            "Allow a KV cache of reduced precision",
        );
        if limits.allow_kv_quant {
            cache_types(ui, &mut looked);
        } else {
            let exact = "f16".to_owned();
            (looked.context.type_k, looked.context.type_v) = (exact.clone(), exact);
        }
        page.looked = Some(looked);
        page.limits = limits;
    });
}

/// A slider over values of which the one in use is always one.
fn among(
    ui: &mut Ui,
    label: &str,
    value: &mut u64,
    mut values: Vec<u64>,
    words: impl Fn(u64) -> String,
) {
    values.push(*value);
    values.sort_unstable();
    values.dedup();
    let mut at = values.binary_search(value).unwrap_or(0);
    let last = values.len() - 1;
    slider(ui, label, &mut at, 0..=last, |i| words(values[i]));
    *value = values[at];
}

fn context(ui: &mut Ui, looked: &mut Looked, model: &Model) {
    let longest = model.base.layout.info.context_length.unwrap_or(LONGEST);
    among(
        ui,
        "Context",
        &mut looked.context.context,
        contexts(longest),
        grouped,
    );
}

/// Doublings and the steps half way between them, up to `longest`.
fn contexts(longest: u64) -> Vec<u64> {
    let doublings = std::iter::successors(Some(SHORTEST), |c| Some(c * 2));
    let steps = doublings
        .flat_map(|c| [c, c + c / 2])
        .take_while(|c| *c < longest);
    steps.chain([longest]).collect()
}

fn layers(ui: &mut Ui, looked: &mut Looked, hand: Hand) {
    let all = hand.n_layer + 1;
    let before = looked.placement.offloaded(hand.n_layer, hand.devices) as usize;
    let mut at = before;
    let label = if hand.devices > 1 {
        "Layers on the GPUs"
    } else {
        "Layers on the GPU"
    };
    slider(ui, label, &mut at, 0..=all as usize, |n| match n {
        0 => "none".to_owned(),
        1 => "output only".to_owned(),
        n if n == all as usize => format!("all {}", hand.n_layer),
        n => format!("{} of {}", n - 1, hand.n_layer),
    });
    if at != before {
        looked.placement = hand.offloading(&looked.placement, at as u32);
    }
}

fn in_ram(ui: &mut Ui, looked: &mut Looked, hand: Hand) {
    let homes = looked.placement.resolve(hand.n_layer, hand.devices).layers;
    let whole = homes.iter().filter(|h| **h == Home::Host).count();
    let before = hand.in_ram(&looked.placement).len();
    let mut at = before;
    let label = match hand.class {
        TensorClass::Experts => "Expert layers in RAM",
        _ => "FFN layers in RAM",
    };
    slider(ui, label, &mut at, whole..=hand.n_layer as usize, |n| {
        n.to_string()
    });
    if at != before {
        looked.placement = hand.keeping(&looked.placement, at as u32);
    }
}

/// At the right end there is no limit.
fn bytes(ui: &mut Ui, label: &str, limit: &mut Option<Bytes>, (most, step): (Bytes, Bytes)) {
    let last = most.0.div_ceil(step.0).max(1) as usize;
    let at_place = |n: usize| {
        if n == last {
            most
        } else {
            Bytes(step.0 * n as u64)
        }
    };
    let before = limit.map_or(last, |l| (l.0 / step.0) as usize);
    let mut at = before;
    slider(ui, label, &mut at, 1..=last, |n| at_place(n).to_string());
    if at != before {
        *limit = (at < last).then(|| at_place(at));
    }
}

fn micro_batch(ui: &mut Ui, looked: &mut Looked) {
    let context = &mut looked.context;
    among(
        ui,
        "Micro-batch",
        &mut context.micro_batch,
        MICRO_BATCHES.to_vec(),
        |n| n.to_string(),
    );
    context.batch = context.batch.max(context.micro_batch);
}

fn cache_types(ui: &mut Ui, looked: &mut Looked) {
    let kinds = ["f16", words::REDUCED[0], words::REDUCED[1]];
    let context = &mut looked.context;
    let mut at = kinds.iter().position(|k| *k == context.type_k).unwrap_or(0);
    let choices: Vec<(usize, &str)> = kinds.iter().copied().enumerate().collect();
    segmented(ui, &mut at, &choices);
    (context.type_k, context.type_v) = (kinds[at].to_owned(), kinds[at].to_owned());
    caption(
        ui,
        "q8_0 and q4_0 save memory but change what the model answers",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_end_where_the_model_does() {
        assert_eq!(contexts(4096), [512, 768, 1024, 1536, 2048, 3072, 4096]);
        assert_eq!(contexts(2000), [512, 768, 1024, 1536, 2000]);
        assert_eq!(contexts(128), [128]);
    }
}
