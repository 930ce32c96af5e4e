//! The Placement page: what a click, a slider and a row do, by role and label.

use eframe::egui::{Key, Modifiers, Theme, Vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};

use crate::app::{Stage, TARGET};
use crate::scripted_engine::{Answer, Desk};

/// The page over an RX 580 2048SP (8 GB) with a model of this shape.
fn over(shape: &str, size: Vec2) -> Stage {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, 1.0);
    stage.key(Modifiers::NONE, Key::Num4);
    stage.dialogs.answer(desk.synthesised(shape));
    stage.click("Choose a file…");
    stage
}

/// What a slider says.
fn value(stage: &Stage, label: &str) -> String {
    let node = stage.harness.get_by_label(label);
    node.accesskit_node().value().unwrap_or_default()
}

#[test]
fn looks() {
    for (name, size) in [("a", TARGET), ("b", Vec2::new(900.0, 600.0))] {
        for shape in ["gemma3-12b", "qwen3-235b-a22b"] {
            let mut stage = over(shape, size);
            println!("{}", stage.words());
            let _ = value(&stage, "Context");
            stage.save(&format!("target/tmp/{name}-{shape}.png"));
        }
    }
}
