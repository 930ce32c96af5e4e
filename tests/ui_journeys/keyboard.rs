//! The keyboard alone: never a pointer.

use eframe::egui::{Key, Modifiers, Theme, Vec2};

use crate::app::Stage;
use crate::scripted_engine::{Answer, Desk};

#[test]
fn from_a_first_run_to_a_saved_profile() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::NONE, Key::Num2);
    stage.dialogs.answer(&desk.bed.model);
    stage.enter("Choose a file…");
    for button in ["Next", "Next", "Start measuring"] {
        stage.enter(button);
    }
    stage.until("Save profile");
    stage.enter("Save profile");
    stage.must_show("Saved as profile 1");
    stage.enter("Copy command");
    assert!(stage.copied.is_some());
}

#[test]
fn the_palette_goes_where_one_types() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    stage.key(Modifiers::COMMAND, Key::K);
    stage.type_into("Command", "tune");
    stage.key(Modifiers::NONE, Key::Enter);
    stage.must_show("Models on this machine");
    assert!(!stage.shows("Command"), "the palette is closed");
    stage.key(Modifiers::COMMAND, Key::K);
    stage.key(Modifiers::NONE, Key::ArrowDown);
    stage.key(Modifiers::NONE, Key::ArrowUp);
    stage.key(Modifiers::NONE, Key::Enter);
    stage.must_show("Scan again");
}

#[test]
fn esc_closes_every_dialog_and_pages_have_keys() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    for (open, shown) in [
        ((Modifiers::COMMAND, Key::K), "Go to Machine"),
        ((Modifiers::NONE, Key::F1), "Esc closes"),
    ] {
        stage.key(open.0, open.1);
        stage.must_show(shown);
        stage.key(Modifiers::NONE, Key::Escape);
        assert!(!stage.shows(shown));
    }
    let pages = [
        (Key::Num2, "Tune a model"),
        (Key::Num4, "Placement"),
        (Key::Num5, "History"),
        (Key::Num1, "Scan again"),
    ];
    for (key, shown) in pages {
        // Also while the keyboard is on a button.
        stage.key(Modifiers::NONE, Key::Tab);
        stage.key(Modifiers::NONE, key);
        stage.must_show(shown);
    }
    // A digit typed into a field is text.
    stage.key(Modifiers::NONE, Key::Num2);
    stage.type_into("Path of a model file", "1");
    stage.must_show("Tune a model");
}

#[test]
fn the_page_scrolls_to_what_the_keyboard_comes_to() {
    let mut desk = Desk::new(|_| Answer::Valid);
    desk.moves_to("rx580-2048sp");
    let size = Vec2::new(900.0, 600.0);
    let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, 1.0);
    let title = "AMD Radeon RX 580 2048SP";
    let (before, lower) = (stage.rect(title).top(), stage.rect("Add folder…"));
    assert!(lower.bottom() > size.y, "out of sight at first");
    stage.tab_to("Add folder…");
    assert!(stage.rect("Add folder…").bottom() < size.y);
    assert!(stage.rect(title).top() < before);
    stage.tab_to("Scan again");
    assert!(stage.rect("Scan again").top() > 0.0, "and back");
}

#[test]
fn what_the_keyboard_is_on_is_to_be_seen() {
    let desk = Desk::new(|_| Answer::Valid);
    let mut stage = Stage::new(desk.ports.clone());
    let mut seen = std::collections::BTreeSet::new();
    let before = stage.harness.render().unwrap();
    for _ in 0..16 {
        stage.key(Modifiers::NONE, Key::Tab);
        let now = stage.harness.render().unwrap();
        let focused = stage.focused().unwrap();
        assert!(now != before, "nothing shows that {focused} has the focus");
        seen.insert(focused);
    }
    assert!(seen.len() > 10, "{seen:?}");
}
