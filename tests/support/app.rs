//! The real app over a desk of scripted ports, driven by role and label; no sleeps: the test waits for messages.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eframe::egui::{
    Context, FullOutput, Key, Modifiers, OutputCommand, Plugin, RawInput, Rect, Theme, Vec2,
    ViewportCommand, ViewportEvent, ViewportId,
};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use flux::engine::Ports;
use flux::ui::{Answer, App, Choice, Chosen, Files};

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
            chosen(Answer::Path(path));
        }
    }
}

/// Hears what is copied in every frame: a step of the harness draws one for each event, and keeps the last.
struct Copies(Arc<Mutex<Option<String>>>);

impl Plugin for Copies {
    fn debug_name(&self) -> &'static str {
        "copies"
    }

    fn output_hook(&mut self, _: &Context, output: &mut FullOutput) {
        for command in &output.platform_output.commands {
            if let OutputCommand::CopyText(text) = command {
                *self.0.lock().unwrap() = Some(text.clone());
            }
        }
    }
}

/// The app on a stage.
pub struct Stage {
    pub harness: Harness<'static, App>,
    pub dialogs: Arc<ScriptedDialogs>,
    /// What was last put into the clipboard.
    pub copied: Option<String>,
    copies: Arc<Mutex<Option<String>>>,
    /// The window was closed.
    pub closed: bool,
}

impl Stage {
    /// As large as the target screens, dark.
    pub fn new(ports: Ports) -> Self {
        Self::sized(ports, TARGET, Theme::Dark, 1.0)
    }

    /// The same over other file dialogs.
    pub fn over(ports: Ports, files: Arc<dyn Files>) -> Self {
        Self::built(ports, files, Arc::default(), (TARGET, Theme::Dark, 1.0))
    }

    /// Of this size in points, theme and scale.
    pub fn sized(ports: Ports, size: Vec2, theme: Theme, scale: f32) -> Self {
        let dialogs = Arc::new(ScriptedDialogs::default());
        Self::built(ports, dialogs.clone(), dialogs, (size, theme, scale))
    }

    fn built(
        ports: Ports,
        files: Arc<dyn Files>,
        dialogs: Arc<ScriptedDialogs>,
        (size, theme, scale): (Vec2, Theme, f32),
    ) -> Self {
        let harness = Harness::builder()
            .with_size(size)
            .with_pixels_per_point(scale)
            .with_theme(theme)
            .with_render_cursor(false)
            .build_eframe(move |cc| {
                let app = App::new(&cc.egui_ctx, ports, Vec::new(), files).unwrap();
                cc.egui_ctx.set_theme(theme);
                app
            });
        let copies = Arc::default();
        harness.ctx.add_plugin(Copies(Arc::clone(&copies)));
        let mut stage = Self {
            harness,
            dialogs,
            copied: None,
            copies,
            closed: false,
        };
        stage.settle();
        stage
    }

    /// Draws until every question is answered and nothing moves.
    pub fn settle(&mut self) {
        loop {
            for _ in 0..FRAMES {
                self.frame();
            }
            if self.harness.state().link().unanswered() == 0 {
                return;
            }
            self.hear();
        }
    }

    /// Draws a frame and notes what it asks of the system.
    fn frame(&mut self) {
        self.harness.run_steps(1);
        if let Some(text) = self.copies.lock().unwrap().take() {
            self.copied = Some(text);
        }
        let output = self.harness.output();
        let commands = &output.viewport_output[&ViewportId::ROOT].commands;
        if commands.contains(&ViewportCommand::Close) && !self.ask_to_close() {
            self.closed = true;
        }
    }

    /// The window's own close button; `true` when the app would rather stay.
    pub fn ask_to_close(&mut self) -> bool {
        let root = |input: &mut RawInput| {
            let viewport = input.viewports.entry(ViewportId::ROOT).or_default();
            viewport.events.push(ViewportEvent::Close);
        };
        root(self.harness.input_mut());
        self.harness.run_steps(1);
        let output = &self.harness.output().viewport_output[&ViewportId::ROOT];
        let stays = output.commands.contains(&ViewportCommand::CancelClose);
        for viewport in self.harness.input_mut().viewports.values_mut() {
            viewport.events.clear();
        }
        stays
    }

    /// Waits for the next message and draws.
    pub fn hear(&mut self) {
        let message = self.harness.state().link().wait(PATIENCE);
        let message =
            message.unwrap_or_else(|| panic!("nothing comes any more:\n{}", self.words()));
        self.harness.state_mut().take(message);
        self.frame();
    }

    /// Hears messages until there is something with this label.
    pub fn until(&mut self, label: &str) {
        while !self.shows(label) {
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

    /// Hears messages until the measuring job has ended.
    pub fn until_ended(&mut self) {
        while self.is_measuring() {
            self.hear();
        }
        self.settle();
    }

    /// A measuring job runs.
    pub fn is_measuring(&self) -> bool {
        let job = self.harness.state().state().job.as_ref();
        job.is_some_and(flux::ui::JobView::is_running)
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

    /// Presses the first of those that have this label in their name.
    pub fn click_first(&mut self, label: &str) {
        let mut found = self.harness.query_all_by_label_contains(label);
        found.next().unwrap().click();
        drop(found);
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

    /// The label of what the keyboard is on.
    pub fn focused(&self) -> Option<String> {
        let mut nodes = self.harness.root().children_recursive();
        nodes
            .find(egui_kittest::Node::is_focused)
            .and_then(|node| node.accesskit_node().label())
    }

    /// Tabs on until the keyboard is on what bears this label.
    pub fn tab_to(&mut self, label: &str) {
        let mut passed = Vec::new();
        while self.focused().as_deref() != Some(label) {
            assert!(
                passed.len() < 60,
                "Tab never comes to {label:?}: {passed:?}"
            );
            self.key(Modifiers::NONE, Key::Tab);
            passed.push(self.focused());
        }
    }

    /// Tabs to it and presses Enter.
    pub fn enter(&mut self, label: &str) {
        self.tab_to(label);
        self.key(Modifiers::NONE, Key::Enter);
    }

    /// Asserts that nothing with a name reaches beyond the window's left or right edge.
    pub fn must_fit(&self, what: &str) {
        let window = self.harness.ctx.content_rect();
        for node in self.harness.root().children_recursive() {
            // The tree's own nodes have no place.
            if node.accesskit_node().bounding_box().is_none() {
                continue;
            }
            let rect = node.rect();
            let Some(label) = name(node) else {
                continue;
            };
            assert!(
                rect.left() >= window.left() - 1.0 && rect.right() <= window.right() + 1.0,
                "{what}: {label:?} at {rect:?} is not within {window:?}"
            );
        }
    }

    /// Where something with exactly this label is.
    pub fn rect(&self, label: &str) -> Rect {
        self.harness.get_by_label(label).rect()
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
        let nodes = self.harness.root().children_recursive();
        let words: Vec<String> = nodes.filter_map(name).collect();
        words.join("\n")
    }

    /// Dark or light from now on.
    pub fn theme(&mut self, theme: Theme) {
        self.harness.ctx.set_theme(theme);
        self.settle();
    }

    /// What is drawn, for looking at.
    pub fn save(&mut self, path: &str) {
        let image = self.harness.render().expect("a renderer on this machine");
        image.save(path).unwrap();
    }
}

/// What a node is called; text has its words as its value.
fn name(node: egui_kittest::Node<'_>) -> Option<String> {
    let node = node.accesskit_node();
    node.label().or_else(|| node.value())
}
