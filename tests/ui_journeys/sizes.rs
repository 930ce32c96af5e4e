//! Every page at every size and scale: nothing panics, nothing lies beyond the window, nothing covers the title.

use eframe::egui::{Theme, Vec2};

use crate::app::Stage;
use crate::scripted_engine::{Answer, Desk};

const SIZES: [(f32, f32, f32); 5] = [
    (900.0, 600.0, 1.0),
    (1280.0, 800.0, 2.0),
    (3840.0, 2160.0, 1.0),
    (1280.0, 720.0, 3.0),
    (900.0, 600.0, 2.0),
];
const PAGES: [&str; 6] = [
    "Machine",
    "Tune",
    "Dashboard",
    "Placement",
    "History",
    "Settings",
];

fn at_every_size(machine: &str) {
    for (width, height, scale) in SIZES {
        let mut desk = Desk::new(|_| Answer::Valid);
        desk.moves_to(machine);
        let size = Vec2::new(width, height);
        let mut stage = Stage::sized(desk.ports.clone(), size, Theme::Dark, scale);
        let what = |page: &str| format!("{page} of {machine} at {width}x{height}, {scale}x");
        for page in PAGES {
            stage.click(page);
            stage.must_fit(&what(page));
        }
        stage.click("Tune");
        stage.dialogs.answer(&desk.bed.model);
        stage.click("Choose a file…");
        stage.click("Placement");
        stage.must_fit(&what("Placement of a model"));
        stage.click("Tune");
        for (title, next) in [
            ("Tune a model", "Next"),
            ("What should become faster?", "Next"),
            ("What will be tried", "Start measuring"),
        ] {
            stage.must_fit(&what(title));
            assert!(!stage.rect(title).intersects(stage.rect(next)), "{title}");
            stage.click(next);
        }
        stage.until("Save profile");
        stage.must_fit(&what("Result"));
        stage.click("Step 4, Screening");
        stage.must_fit(&what("Screening"));
        stage.click("Step 5, Confirmation");
        stage.must_fit(&what("Confirmation"));
    }
}

#[test]
fn with_a_gpu() {
    at_every_size("rx580-2048sp");
}

#[test]
fn with_two() {
    at_every_size("hybrid-laptop");
}

#[test]
fn without_one() {
    at_every_size("none");
}
