//! The Settings page: what is changed holds at once, is written once and is there after a restart.
#![cfg(all(feature = "test-support", feature = "gui"))]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/app.rs"]
mod app;
#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use app::Stage;
use eframe::egui::accesskit::Role;
use eframe::egui::{Key, Modifiers, Theme, vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use flux::domain::settings::AppSettings;
use flux::domain::settings::Theme as Chosen;
use flux::domain::types::Bytes;
use flux::ports::{Notice, PortResult, SettingsStore, Store as _};
use scripted_engine::{Answer, Desk};

fn desk() -> Desk {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    desk
}

fn settings_page(desk: &Desk) -> Stage {
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Settings");
    stage
}

fn stored(desk: &Desk) -> AppSettings {
    desk.ports.settings.load().0
}

/// Types into a number and leaves it.
fn set_number(stage: &mut Stage, name: &str, text: &str) {
    stage
        .harness
        .get_by_role_and_label(Role::SpinButton, name)
        .focus();
    stage.settle();
    let number = stage.harness.get_by_role_and_label(Role::SpinButton, name);
    number.type_text(text);
    stage.settle();
    stage.key(Modifiers::NONE, Key::Enter);
}

fn is_chosen(stage: &Stage, label: &str) -> bool {
    let node = stage.harness.get_by_label(label);
    node.accesskit_node().toggled() == Some(eframe::egui::accesskit::Toggled::True)
        || node.accesskit_node().is_selected() == Some(true)
}

#[test]
fn looks_change_at_once_and_survive_a_restart() {
    let desk = desk();
    let mut stage = settings_page(&desk);
    let dark = stage.harness.render().unwrap().get_pixel(640, 790).0[0];
    stage.click("Light");
    assert_eq!(stage.harness.ctx.theme(), Theme::Light);
    let light = stage.harness.render().unwrap().get_pixel(640, 790).0[0];
    assert!(dark < 60 && light > 200, "{dark} {light}");
    set_number(&mut stage, "Size", "150");
    assert!((stage.harness.ctx.zoom_factor() - 1.5).abs() < 1e-6);
    stage.click("MB, GB");
    stage.click("Reduce motion");
    let kept = stored(&desk);
    assert_eq!(
        (kept.theme, kept.zoom, kept.reduce_motion),
        (Chosen::Light, 1.5, true)
    );
    assert_eq!(kept.memory(Bytes(8_000_000_000)), "8.00 GB");
    drop(stage);
    let stage = settings_page(&desk);
    assert!((stage.harness.ctx.zoom_factor() - 1.5).abs() < 1e-6);
    assert!(is_chosen(&stage, "Light") && is_chosen(&stage, "MB, GB"));
}

#[test]
fn limits_reach_the_search() {
    let desk = desk();
    let mut stage = settings_page(&desk);
    stage.click("30 min");
    set_number(&mut stage, "Device memory left free", "768");
    assert_eq!(stored(&desk).time_limit_secs, Some(1800));
    stage.click("Tune");
    stage.dialogs.answer(&desk.bed.model);
    stage.click("Choose a file…");
    stage.click("Next");
    assert!(is_chosen(&stage, "30 min"));
    stage.click("Next");
    stage.click("Start measuring");
    stage.until("Save profile");
    let config = desk.store.session(1).unwrap().unwrap().begun.config;
    assert_eq!(config["request"]["memory_reserve"], 768_u64 * 1024 * 1024);
    assert_eq!(config["request"]["time_limit_secs"], 1800.0);
    // The model just used is remembered.
    let used = std::slice::from_ref(&desk.bed.model);
    assert_eq!(stored(&desk).recent_models, used);
    stage.click("Settings");
    stage.click("Forget 1 model");
    assert_eq!(stored(&desk).recent_models.len(), 0);
}

#[test]
fn the_runtime_chosen_is_chosen_again_after_a_restart() {
    let desk = desk();
    let mut stage = Stage::new(desk.ports.clone());
    stage.click("Use llama.cpp fake");
    drop(stage);
    let stage = Stage::new(desk.ports.clone());
    assert_eq!(
        stage.harness.state().state().runtime.as_deref(),
        Some("fake")
    );
}

#[test]
fn folders_come_and_go() {
    let desk = desk();
    let mut stage = settings_page(&desk);
    let folder = desk.bed.data.join("more models");
    fs::create_dir(&folder).unwrap();
    for _ in 0..2 {
        stage.dialogs.answer(&folder);
        stage.click("Add a folder…");
    }
    let words = folder.display().to_string();
    stage.must_show(&words);
    assert_eq!(stored(&desk).model_folders, [folder]);
    stage.click(&format!("Remove {words}"));
    assert!(stored(&desk).model_folders.is_empty() && !stage.shows(&words));
}

#[test]
fn a_search_space_of_ones_own_is_checked_and_taken_back() {
    let desk = desk();
    let mut stage = settings_page(&desk);
    stage.must_show("The one that ships with Flux, with ");
    let file = desk.bed.data.join("mine.toml");
    let space = |value: &str| {
        format!(
            "[[dimension]]\nid = \"x\"\ntitle = \"X\"\nsummary = \"s\"\naffects = \"both\"\n[[dimension.value]]\nid = \
             \"{value}\"\nenv = {{ GGML_VK_DISABLE_F16 = \"1\" }}\n"
        )
    };
    fs::write(&file, space("a b")).unwrap();
    stage.dialogs.answer(&file);
    stage.click("Use a file…");
    stage.must_show("he search space is wrong at x=a b: a value's id is plain and used once");
    stage.must_show("othing was changed: correct the file, then install it again");
    stage.must_show("The one that ships with Flux");
    fs::write(&file, space("on")).unwrap();
    stage.dialogs.answer(&file);
    stage.click("Use a file…");
    stage.must_show("Your own file, with 1 setting");
    assert!(!stage.shows("search space is wrong"));
    stage.click("Back to the shipped one");
    stage.must_show("The one that ships with Flux, with ");
}

#[test]
fn a_broken_settings_file_is_said() {
    let desk = desk();
    fs::write(desk.bed.data.join("settings.toml"), "theme = [").unwrap();
    let mut stage = settings_page(&desk);
    stage.must_show("he settings cannot be read");
    stage.click("Dismiss");
    stage.must_show("the defaults are used and no reading is erased");
}

/// Counts how often settings are written.
struct Counting(Arc<dyn SettingsStore>, Arc<AtomicU32>);

impl SettingsStore for Counting {
    fn load(&self) -> (AppSettings, Vec<Notice>) {
        self.0.load()
    }

    fn save(&self, settings: &AppSettings) -> PortResult<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.save(settings)
    }
}

#[test]
fn every_change_is_written_once() {
    let mut desk = desk();
    let written = Arc::new(AtomicU32::new(0));
    desk.ports.settings = Arc::new(Counting(desk.ports.settings.clone(), written.clone()));
    let mut stage = settings_page(&desk);
    stage.click("Store readings with what is measured");
    assert_eq!(written.load(Ordering::SeqCst), 1);
    assert!(!stored(&desk).store_telemetry);
    set_number(&mut stage, "Sensors are read every", "1250");
    assert_eq!(written.load(Ordering::SeqCst), 2);
    assert_eq!(stored(&desk).telemetry_interval_ms, 1250);
    // Out of its bounds it is brought into them.
    set_number(&mut stage, "Sensors are read every", "5");
    assert_eq!(stored(&desk).telemetry_interval_ms, 100);
    set_number(&mut stage, "Readings are kept for", "0");
    assert_eq!(stored(&desk).telemetry_days, 0);
}

#[test]
fn licences_are_there_to_read_and_tab_reaches_every_control() {
    let desk = desk();
    let mut stage = settings_page(&desk);
    // Below the fold.
    stage.harness.get_by_label("Inter · OFL 1.1").scroll_to_me();
    stage.settle();
    stage.click("Inter · OFL 1.1");
    stage.must_show("SIL Open Font License, Version 1.1");
    stage.click("Close the licence");
    stage.must_show(&format!("Flux {}", env!("CARGO_PKG_VERSION")));
    let mut reached = BTreeSet::new();
    for _ in 0..60 {
        stage.harness.key_press(Key::Tab);
        stage.harness.run_steps(1);
        let focused = stage
            .harness
            .root()
            .children_recursive()
            .find(egui_kittest::Node::is_focused);
        let name = |n: egui_kittest::Node<'_>| {
            let own = n.accesskit_node().label();
            own.unwrap_or_default()
        };
        reached.extend(focused.map(name));
    }
    for control in [
        "System",
        "Dark",
        "Light",
        "Size",
        "MiB, GiB",
        "MB, GB",
        "Reduce motion",
        "10 min",
        "None",
        "Device memory left free",
        "Sensors are read every",
        "Store readings with what is measured",
        "Add a folder…",
        "Use a file…",
        "Copy the path",
        "Flux · MIT",
        "Lucide icons · ISC",
    ] {
        assert!(reached.contains(control), "{control} not in {reached:?}");
    }
    assert!(!reached.contains(""), "{reached:?}");
}

#[test]
fn it_fits_every_window_in_both_themes() {
    for (size, theme) in [
        ([900.0, 600.0], Theme::Dark),
        ([1280.0, 800.0], Theme::Dark),
        ([1280.0, 800.0], Theme::Light),
        ([1920.0, 1080.0], Theme::Light),
    ] {
        let desk = desk();
        let mut stage = Stage::sized(desk.ports.clone(), vec2(size[0], size[1]), theme, 1.0);
        stage.click("Settings");
        stage.must_show("Search space");
        stage.must_fit("Settings");
    }
}
