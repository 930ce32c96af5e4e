//! Placements in words.

use std::fmt::Write as _;

use crate::domain::placement::assignment::Home;
use crate::domain::placement::layout::TensorClass;
use crate::domain::placement::planner::{Candidate, Tier};
use crate::domain::text::{capitalised, clean, count, grouped, plus_minus, three_digits};

use super::model::{Looked, Measured, Model};

/// Cache types of reduced precision that can be chosen where they are allowed.
pub const REDUCED: [&str; 2] = ["q8_0", "q4_0"];

/// A class as the grid's row is called.
pub const fn class_name(class: TensorClass) -> &'static str {
    match class {
        TensorClass::Embedding => "Embeddings",
        TensorClass::Output => "Output",
        TensorClass::Attention => "Attention",
        TensorClass::Recurrent => "Recurrent",
        TensorClass::FeedForward => "FFN",
        TensorClass::Experts => "Experts",
        TensorClass::Norm => "Norms",
    }
}

/// The movable class within a sentence.
fn movable(model: &Model) -> &'static str {
    match model.hand.class {
        TensorClass::Experts => "experts",
        _ => "FFN",
    }
}

/// The memory of a home: `GPU` where there is one, else the device's id.
pub fn home_name(model: &Model, home: Home) -> String {
    let devices = &model.base.memories.devices;
    match home {
        Home::Host => "RAM".to_owned(),
        Home::Device(_) if devices.len() == 1 => "GPU".to_owned(),
        Home::Device(i) => devices.get(i).map_or_else(String::new, |d| clean(&d.id)),
    }
}

/// `the GPU`, `2 GPUs`.
fn devices(model: &Model) -> String {
    match model.base.memories.devices.len() {
        0 | 1 => "the GPU".to_owned(),
        n => format!("{n} GPUs"),
    }
}

/// What is kept in RAM of layers that are on devices, as a part of a sentence.
fn kept(model: &Model, looked: &Looked) -> Option<String> {
    let hand = model.hand;
    let whole = hand.n_layer - hand.blocks(&looked.placement);
    let in_ram = hand.in_ram(&looked.placement).len() as u32;
    let more = in_ram.saturating_sub(whole);
    let mut parts = Vec::new();
    if more > 0 {
        parts.push(format!("{} of {in_ram} in RAM", movable(model)));
    }
    if looked.placement.kv_on_host {
        parts.push("KV cache in RAM".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A placement for a cell of the table: `36 of 40 on GPU`, `all; FFN of 12 in RAM`.
pub fn placed(model: &Model, looked: &Looked) -> String {
    let hand = model.hand;
    let offloaded = looked.placement.offloaded(hand.n_layer, hand.devices);
    let kept = kept(model, looked);
    let mut text = match (hand.blocks(&looked.placement), hand.n_layer) {
        _ if offloaded == 0 => "all in RAM".to_owned(),
        (blocks, all) if blocks == all => "all".to_owned(),
        (blocks, all) => format!("{blocks} of {all}"),
    };
    match kept {
        Some(kept) => {
            let _ = write!(text, "; {kept}");
        }
        None if offloaded > 0 => text.push_str(" on GPU"),
        None => {}
    }
    if looked.context.type_k != "f16" {
        let _ = write!(text, " · {} KV", looked.context.type_k);
    }
    text
}

/// The verdict: where the layers are and how fast that is, or what does not fit.
pub fn title(
    model: &Model,
    looked: &Looked,
    judged: Option<&Candidate>,
    (predicted, measured): (f64, Option<Measured>),
) -> String {
    if let Some(misfit) = judged.and_then(|c| c.misfits.first()) {
        return format!("This does not fit: {misfit}");
    }
    let hand = model.hand;
    let all = hand.n_layer;
    let on = match hand.blocks(&looked.placement) {
        _ if looked.placement.offloaded(all, hand.devices) == 0 => {
            format!("All {} in RAM", count(all.into(), "layer"))
        }
        blocks if blocks == all => {
            format!("All {} on {}", count(all.into(), "layer"), devices(model))
        }
        blocks => format!(
            "{blocks} of {} on {}",
            count(all.into(), "layer"),
            devices(model)
        ),
    };
    let kept = kept(model, looked).map_or_else(String::new, |k| format!(", {k}"));
    let rate = three_digits(measured.map_or(predicted, |m| m.mean));
    format!("{on}{kept}: {rate} tokens per second")
}

/// The line under it: quality, context, and what the number rests on.
pub fn under(
    model: &Model,
    looked: &Looked,
    judged: Option<&Candidate>,
    (predicted, measured): (f64, Option<Measured>),
) -> String {
    let context = &looked.context;
    let cache = if context.type_k == context.type_v {
        context.type_k.clone()
    } else {
        format!("{} / {}", context.type_k, context.type_v)
    };
    let fit = match model.base.fit.mean_abs_error_pct(false) {
        Some(error) => {
            let runs = count(model.base.benchmarks() as u64, "benchmark");
            format!("from a fit over {runs} (error {error:.1} %)")
        }
        None if model.base.benchmarks() > 0 => {
            "from a fit over other models of this machine".to_owned()
        }
        None => "from bandwidths, no benchmark yet".to_owned(),
    };
    let predicted = three_digits(predicted);
    let rests = match measured {
        Some(m) => format!(
            "Measured {} in {}; predicted {predicted} {fit}",
            m.text(),
            count(m.runs as u64, "run")
        ),
        None => format!("Predicted {predicted} {fit}"),
    };
    let disk = match judged {
        Some(c) if c.streams => " What RAM does not hold is read from the SSD for every token.",
        _ => "",
    };
    format!(
        "Exact weights, {cache} KV, {} tokens of context. {rests}.{disk}",
        grouped(context.context)
    )
}

impl Measured {
    /// `7.7 ± 0.3`.
    pub fn text(&self) -> String {
        match self.half_width {
            Some(half) => plus_minus(self.mean, half),
            None => three_digits(self.mean),
        }
    }
}

/// What a longer context asks for.
pub fn must_move(model: &Model, looked: &Looked, more: u32) -> String {
    let by_class = kept(model, looked).is_some();
    let layers = count(u64::from(more), "more layer");
    if by_class {
        format!("{} of {layers} must move to RAM", movable(model))
    } else {
        format!("{layers} must move to RAM")
    }
}

/// A tier at the beginning of a cell.
pub fn tier(tier: Tier) -> String {
    capitalised(tier.words())
}

/// Said where layers would go to other machines: llama.cpp's own warning, and what it means.
pub const RPC: &str = "RPC is for trusted networks only: llama.cpp's RPC server has no password and no encryption, and whoever reaches it can read what it computes";
