//! The real app over a desk of scripted ports, driven by role and label; no sleeps: the test waits for messages.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eframe::egui::{Key, Modifiers, Theme, Vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use flux::engine::Ports;
use flux::ui::{App, Choice, Chosen, Files};

/// How long a test waits for a worker before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames after which a page must be at rest.
const FRAMES: usize = 3;

/// Size of the target screens.
pub const TARGET: Vec2 = Vec2::new(1280.0, 800.0);

/// Answers every file dialog with the path put there.
#[derive(Default)]
pub struct ScriptedDialogs {
    next: Mutex<Option<PathBuf>>,
    pub asked: Mutex<Vec<Choice>>,
}

impl ScriptedDialogs {
    /// The next dialog is answered so.
    pub fn answer(&self, path: impl Into<PathBuf>) {
        *self.next.lock().unwrap() = Some(path.into());
    }
}

impl Files for ScriptedDialogs {
    fn choose(&self, what: Choice, chosen: Chosen) {
        self.asked.lock().unwrap().push(what);
        if let Some(path) = self.next.lock().unwrap().take() {
            chosen(path);
        }
    }
}

/// The app on a stage.
pub struct Stage {
    pub harness: Harness<'static, App>,
    pub dialogs: Arc<ScriptedDialogs>,
}

impl Stage {
    /// As large as the target screens, dark.
    pub fn new(ports: Ports) -> Self {
        Self::sized(ports, TARGET, Theme::Dark, 1.0)
    }

    /// Of this size in points, theme and scale.
    pub fn sized(ports: Ports, size: Vec2, theme: Theme, scale: f32) -> Self {
        let dialogs = Arc::new(ScriptedDialogs::default());
        let files = dialogs.clone();
        let harness = Harness::builder()
            .with_size(size)
            .with_pixels_per_point(scale)
            .with_theme(theme)
            .with_render_cursor(false)
            .wgpu()
            .build_eframe(move |cc| {
                let app = App::new(&cc.egui_ctx, ports, Vec::new(), files).unwrap();
                cc.egui_ctx.set_theme(theme);
                app
            });
        let mut stage = Self { harness, dialogs };
        stage.settle();
        stage
    }

    /// Draws until every question is answered and nothing moves.
    pub fn settle(&mut self) {
        loop {
            self.harness.run_steps(FRAMES);
            if self.harness.state().link().unanswered() == 0 {
                return;
            }
            self.hear();
        }
    }

    /// Waits for the next message and draws.
    pub fn hear(&mut self) {
        let app = self.harness.state_mut();
        let message = app.link().wait(PATIENCE).expect("a worker answers in time");
        app.take(message);
        self.harness.run_steps(1);
    }

    /// Hears messages until there is something with this label.
    pub fn until(&mut self, label: &str) {
        while self.harness.query_by_label_contains(label).is_none() {
            self.hear();
        }
        self.settle();
    }

    /// Hears every message that is there already.
    pub fn drain(&mut self) {
        let app = self.harness.state_mut();
        while let Some(message) = app.link().wait(Duration::from_millis(200)) {
            app.take(message);
        }
        self.settle();
    }

    /// Presses what bears exactly this label.
    pub fn click(&mut self, label: &str) {
        self.harness.get_by_label(label).click();
        self.settle();
    }

    /// Presses what has this label in its name.
    pub fn click_part(&mut self, label: &str) {
        self.harness.get_by_label_contains(label).click();
        self.settle();
    }

    /// Presses a key.
    pub fn key(&mut self, modifiers: Modifiers, key: Key) {
        self.harness.key_press_modifiers(modifiers, key);
        self.settle();
    }

    /// Types into the field of this label.
    pub fn type_into(&mut self, label: &str, text: &str) {
        let field = self.harness.get_by_label(label);
        field.focus();
        field.type_text(text);
        self.settle();
    }

    /// Something bears a label that contains this.
    pub fn shows(&self, label: &str) -> bool {
        self.harness
            .query_all_by_label_contains(label)
            .next()
            .is_some()
    }

    /// Asserts that it does.
    pub fn must_show(&self, label: &str) {
        assert!(
            self.shows(label),
            "{label:?} is not on the page:\n{}",
            self.words()
        );
    }

    /// Every label on the page, for failures.
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        for node in self.harness.root().children_recursive() {
            if let Some(label) = node.accesskit_node().label() {
                words.push(label);
            }
        }
        words.join("\n")
    }

    /// What is drawn, for looking at.
    pub fn save(&mut self, path: &str) {
        let image = self.harness.render().expect("a renderer on this machine");
        image.save(path).unwrap();
    }
}
