//! What the placement takes of each memory, of all that it has.

use eframe::egui::{Ui, vec2};

use crate::chart::{Bars, Heap, Role, Segment};
use crate::domain::placement::memory::{Basis, DeviceMemory, HOST_ID};
use crate::domain::text::clean;
use crate::domain::types::Bytes;
use crate::ui::charts;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::{space, tokens};
use crate::ui::widgets::{Card, caption, loading_note, status};

use super::State;
use super::grid::entry;
use super::model::Model;
use super::words;

/// Draws the card.
pub(super) fn show(ui: &mut Ui, page: &State, model: &Model, height: f32) {
    Card::new("Memory").min_height(height).show(ui, |ui| {
        let Some(candidate) = page.candidate() else {
            loading_note(ui, "Allocating as llama.cpp would");
            return;
        };
        let heaps = candidate.memory.iter().enumerate();
        let heaps = heaps.map(|(i, memory)| heap(model, memory, i)).collect();
        charts::with_table(ui, "placement memory", |width| Bars { heaps }.scene(width));
        let t = tokens(ui);
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing = vec2(space::XS, 2.0);
            for (color, word) in [
                (t.accent, "weights on a device"),
                (t.regressed, "in RAM"),
                (t.improved, "KV"),
                (t.inconclusive, "compute"),
                (t.unchanged, "other programs"),
            ] {
                entry(ui, color, word);
            }
        });
        for misfit in &candidate.misfits {
            status(
                ui,
                Icon::Problem,
                t.regressed,
                &format!("Does not fit: {misfit}"),
            );
        }
        if candidate.streams {
            let words =
                "RAM does not hold all its weights: the rest is read from the SSD for every token";
            status(ui, Icon::Warning, t.warning, words);
        }
        caption(ui, basis(&candidate.memory));
    });
}

/// How far the figures can be trusted.
fn basis(memory: &[DeviceMemory]) -> &'static str {
    let has = |basis| memory.iter().any(|m| m.compute_basis == basis);
    if has(Basis::Guessed) {
        "Weights exact; compute buffers guessed, this architecture is not known"
    } else if has(Basis::Corrected) {
        "Weights and KV exact; compute buffers corrected by runs"
    } else {
        "Weights and KV exact; compute buffers as llama.cpp allocates them"
    }
}

fn heap(model: &Model, memory: &DeviceMemory, position: usize) -> Heap {
    let base = &model.base.memories;
    let is_host = memory.id == HOST_ID;
    let device = base.devices.get(position).filter(|_| !is_host);
    let (label, total, others) = match device {
        Some(d) => (clean(&d.name), d.total, Bytes(0)),
        None => ("RAM".to_owned(), base.host.total, base.host.used_by_others),
    };
    let weights = if is_host {
        Role::Regressed
    } else {
        Role::Accent
    };
    let part = |label: &str, bytes: Bytes, role| Segment {
        label: label.to_owned(),
        value: bytes.0 as f64,
        text: bytes.to_string(),
        role,
    };
    let mut classes: Vec<_> = memory.weights.iter().collect();
    classes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let mut segments: Vec<Segment> = classes
        .into_iter()
        .map(|(class, bytes)| part(words::class_name(*class), *bytes, weights))
        .collect();
    segments.push(part("KV cache", memory.kv, Role::Memory));
    segments.push(part("Compute", memory.working(), Role::Inconclusive));
    segments.push(part("Other programs", others, Role::Unchanged));
    let used = Bytes(memory.total().0 + others.0);
    Heap {
        label,
        total: total.0 as f64,
        text: format!("{:.1} of {:.1} GiB", used.as_gib(), total.as_gib()),
        segments,
    }
}
