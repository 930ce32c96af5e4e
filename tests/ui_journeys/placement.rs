//! The Placement page: what a click, a slider and a row do, by role and label.

use std::fs;
use std::path::{Path, PathBuf};

use eframe::egui::{Key, Modifiers, Theme, Vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};

use flux::ports::Store as _;

use crate::app::{Stage, TARGET};
use crate::scripted_engine::{Answer, Desk, Gate};

/// A card of 8 GB, beside 16 GB of RAM.
const MACHINE: &str = "rx580-2048sp";

/// The page with a model of this shape.
fn over(shape: &str) -> (Desk, Stage) {
    sized(MACHINE, shape, TARGET)
}

fn sized(machine: &str, shape: &str, size: Vec2) -> (Desk, Stage) {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to(machine);
    let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, 1.0);
    stage.key(Modifiers::NONE, Key::Num4);
    stage.dialogs.answer(desk.synthesised(shape));
    stage.click("Choose a file…");
    (desk, stage)
}

/// What a slider says.
fn value(stage: &Stage, label: &str) -> String {
    let node = stage.harness.get_by_label(label);
    node.accesskit_node().value().unwrap_or_default()
}

/// Puts the keyboard on a control and presses a key.
fn press(stage: &mut Stage, label: &str, key: Key) {
    stage.harness.get_by_label(label).focus();
    stage.settle();
    stage.key(Modifiers::NONE, key);
}

/// Opens the first table of numbers: that of the memory.
fn open_numbers(stage: &mut Stage) {
    stage.click_first("Show table");
}

#[test]
fn the_context_slider_moves_every_figure() {
    let (_desk, mut stage) = over("qwen3-4b");
    stage.must_show("All 36 layers on the GPU");
    stage.must_show("4,096 tokens of context");
    open_numbers(&mut stage);
    // 36 layers × 8 heads × 128 values × 2 bytes × K and V × 4096 tokens.
    stage.must_show("576.0 MiB");
    press(&mut stage, "Context", Key::ArrowRight);
    assert_eq!(value(&stage, "Context"), "6,144");
    stage.must_show("6,144 tokens of context");
    stage.must_show("864.0 MiB");
    stage.must_show("tokens of context to");
}

#[test]
fn a_click_on_a_cell_moves_what_is_in_it() {
    let (_desk, mut stage) = over("qwen3-4b");
    assert_eq!(value(&stage, "FFN layers in RAM"), "0");
    // The middle of 36 cells is layer 18.
    stage.click("FFN by layer");
    assert_eq!(value(&stage, "FFN layers in RAM"), "1");
    stage.must_show("All 36 layers on the GPU, FFN of 1 in RAM");
    stage.click("FFN by layer");
    assert_eq!(value(&stage, "FFN layers in RAM"), "0");
    // Layers 0 to 18 go to RAM, 19 to 35 stay.
    stage.click("Attention by layer");
    stage.must_show("17 of 36 layers on the GPU");
    assert_eq!(value(&stage, "Layers on the GPU"), "17 of 36");
    stage.click("KV cache by layer");
    stage.must_show("18 of 36 layers on the GPU");
}

#[test]
fn a_row_is_shown_and_its_command_copied() {
    let (_desk, mut stage) = over("gemma3-12b");
    assert!(value(&stage, "Layers on the GPU").ends_with("of 48"));
    stage.click_part("CPU only, all in RAM");
    assert_eq!(value(&stage, "Layers on the GPU"), "none");
    stage.must_show("All 48 layers in RAM");
    stage.click("Copy command");
    let copied = stage.copied.clone().unwrap();
    assert!(copied.contains("llama-server"), "{copied}");
    assert!(copied.contains(" -ngl 0 "), "{copied}");
    assert!(copied.contains(" -c 4096 "), "{copied}");
    // 11 of the 48 blocks and the output: twelve.
    press(&mut stage, "Layers on the GPU", Key::Home);
    for _ in 0..12 {
        stage.key(Modifiers::NONE, Key::ArrowRight);
    }
    stage.must_show("11 of 48 layers on the GPU");
    stage.click("Copy command");
    assert!(stage.copied.clone().unwrap().contains(" -ngl 12 "));
}

#[test]
fn what_does_not_fit_says_so() {
    let (_desk, mut stage) = over("gemma3-12b");
    press(&mut stage, "Layers on the GPU", Key::End);
    assert_eq!(value(&stage, "Layers on the GPU"), "all 48");
    stage.must_show("This does not fit: device 0 would need");
    stage.must_show("stock fails here");
    let button = stage.harness.get_by_label("Use this plan");
    let why = button.accesskit_node().description();
    assert_eq!(why.as_deref(), Some("it does not fit"));
}

#[test]
fn less_memory_is_another_plan() {
    let (_desk, mut stage) = over("gemma3-12b");
    let before = value(&stage, "Layers on the GPU");
    assert_eq!(value(&stage, "VRAM to use"), "7.24 GiB");
    // The step below the whole is 7.00 GiB, each further one a quarter less.
    press(&mut stage, "VRAM to use", Key::ArrowLeft);
    for _ in 0..3 {
        stage.key(Modifiers::NONE, Key::ArrowLeft);
    }
    assert_eq!(value(&stage, "VRAM to use"), "6.25 GiB");
    stage.must_show("of 6.25 GiB");
    stage.click_first("Split by layer, ");
    assert!(!stage.shows("This does not fit"));
    let layers = |text: &str| text.split(' ').next().unwrap().parse::<u32>().unwrap();
    let after = value(&stage, "Layers on the GPU");
    assert!(layers(&after) < layers(&before), "{before}, then {after}");
}

#[test]
fn reduced_caches_only_where_they_are_allowed() {
    let (_desk, mut stage) = over("qwen3-4b");
    let words = "Allow a KV cache of reduced precision";
    assert!(!stage.shows("q8_0"));
    stage.click(words);
    stage.click("q8_0");
    stage.must_show("Exact weights, q8_0 KV");
    stage.click(words);
    stage.must_show("Exact weights, f16 KV");
}

#[test]
fn by_keyboard_alone() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to(MACHINE);
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num4);
    stage.dialogs.answer(desk.synthesised("qwen3-4b"));
    stage.enter("Choose a file…");
    stage.tab_to("FFN by layer");
    for key in [Key::Home, Key::ArrowRight, Key::ArrowRight] {
        stage.key(Modifiers::NONE, key);
    }
    let cell = value(&stage, "FFN by layer");
    assert!(
        cell.starts_with("Layer 2, FFN: ") && cell.ends_with(" in GPU"),
        "{cell}"
    );
    stage.key(Modifiers::NONE, Key::Enter);
    assert!(value(&stage, "FFN by layer").ends_with(" in RAM"));
    assert_eq!(value(&stage, "FFN layers in RAM"), "1");
    stage.tab_to("Micro-batch");
    stage.key(Modifiers::NONE, Key::Home);
    assert_eq!(value(&stage, "Micro-batch"), "32");
    stage.enter("Show the constants");
    stage.must_show("cpu_bandwidth");
    stage.must_show("assumed");
}

#[test]
fn a_large_mixture_over_two_cards() {
    let (_desk, stage) = sized("hybrid-laptop", "qwen3-235b-a22b", TARGET);
    stage.must_show("94 layers on 2 GPUs");
    stage.must_show("Experts by layer");
    stage.must_fit("94 layers");
}

#[test]
fn without_a_model_or_a_build_it_says_what_to_do() {
    let mut desk = Desk::new(|_| Answer::Valid);
    let model = desk.bed.model.clone();
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num4);
    stage.must_show("Choose a model");
    stage.click("Show the models found");
    stage.must_show("Models on this machine");
    desk.lacks_runtime(|_, _| unreachable!());
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num4);
    stage.dialogs.answer(&model);
    stage.click("Choose a file…");
    stage.must_show("There is no llama.cpp to place it for");
    stage.click("Install llama.cpp");
    stage.must_show("Scan again");
}

#[test]
fn measuring_the_candidates_is_a_job_that_ends() {
    let (_desk, mut stage) = over("qwen3-4b");
    stage.must_show("Nothing of this model is measured here yet");
    stage.click("Benchmark these");
    stage.until_ended();
    // The scripted runner generates 20 tokens a second whatever it is asked: the fit follows it.
    stage.must_show("20.0 predicted, 19.99 ± 0.02 measured");
    stage.must_show("fitted");
    stage.must_show("Error of predictions so far: ");
    stage.must_show(" % over 1 benchmark of this machine");
}

#[test]
fn a_benchmark_shows_what_it_does_and_can_be_stopped() {
    let gate = Gate::new(2);
    let mut desk = Desk::new(gate.script());
    desk.moves_to(MACHINE);
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num4);
    stage.dialogs.answer(desk.synthesised("qwen3-4b"));
    stage.click("Choose a file…");
    stage.click("Benchmark these");
    gate.wait();
    stage.until("2 of ");
    let button = stage.harness.get_by_label("Benchmark these");
    let why = button.accesskit_node().description();
    assert_eq!(why.as_deref(), Some("something else is running"));
    stage.click("Cancel…");
    stage.must_show("Stop this benchmark?");
    stage.click("Stop after this run");
    stage.must_show("Stopping: what was measured is kept");
    gate.open();
    stage.until_ended();
    assert_eq!(desk.store.runs(1).unwrap().len(), 3);
    assert!(!stage.shows("Stopping: what was measured is kept"));
}

/// Arguments of the living process of a program in `dir`.
fn arguments(dir: &Path) -> String {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let of_dir = |path: &PathBuf| {
        fs::read_link(path.join("exe")).is_ok_and(|program| program.starts_with(dir))
    };
    let process = processes.map(|p| p.path()).find(of_dir).unwrap();
    let words = fs::read(process.join("cmdline")).unwrap();
    String::from_utf8(words).unwrap().replace('\0', " ")
}

#[test]
fn a_plan_is_served_as_it_is_shown() {
    let (desk, mut stage) = over("gemma3-12b");
    press(&mut stage, "Layers on the GPU", Key::Home);
    stage.click("Use this plan");
    stage.until("Answers on http://127.0.0.1:");
    let served = arguments(desk.bed.fake.dir());
    assert!(served.contains(" -ngl 0 "), "{served}");
    stage.click("Stop server");
    while stage.shows("Answers on") {
        stage.hear();
    }
}
