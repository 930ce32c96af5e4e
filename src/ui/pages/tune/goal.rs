//! Step 2: what is to become faster, what may change for it, and how long it may take.

use eframe::egui::Ui;

use crate::domain::telemetry::SeriesId;
use crate::domain::text::clean;
use crate::domain::types::{Bytes, Goal};
use crate::engine::target::Target;
use crate::ui::app::Cx;
use crate::ui::state::AppState;
use crate::ui::theme::icons::Icon;
use crate::ui::theme::space;
use crate::ui::widgets::{
    Card, Press, caption, choice, columns, field, number, page_header, segmented, toggle,
};

use super::{Step, ask_plan, steps};

/// The goals with what each means.
const GOALS: &[(Goal, &str, &str)] = &[
    (
        Goal::Generation,
        "Generation speed",
        "Tokens per second while the answer is written: what one waits for in a chat",
    ),
    (
        Goal::Prompt,
        "Prompt speed",
        "Tokens per second while the question is read: long documents, code, retrieval",
    ),
    (
        Goal::Request,
        "Whole request",
        "Both together for a request of a length you name: what an agent waits for",
    ),
    (
        Goal::Energy,
        "Energy",
        "Tokens per joule of the device: as much text as possible for the power bill, without becoming slower",
    ),
];

/// Minutes a search may take, as offered; 0 is no limit.
pub const LIMITS: &[(u32, &str)] = &[(10, "10 min"), (30, "30 min"), (60, "1 h"), (0, "None")];

/// Draws the step.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    page_header(
        ui,
        "What should become faster?",
        "Only exact settings are tried unless you allow more",
        |ui| {
            if ui
                .add(Press::new("Next").icon(Icon::Next).primary())
                .clicked()
            {
                state.tune.step = Step::Candidates;
                if state.tune.plan.error().is_some() {
                    state.tune.planned = None;
                }
                ask_plan(state, cx.link);
            }
            if ui.add(Press::new("Back")).clicked() {
                state.tune.step = Step::Model;
            }
        },
    );
    if let Some(step) = steps::line(ui, Step::Goal, |step| step <= Step::Goal) {
        state.tune.step = step;
    }
    columns(ui, "goal", &[1.0, 1.0], |column, ui, height| match column {
        0 => goals(ui, state, height),
        _ => limits(ui, state, height),
    });
}

fn goals(ui: &mut Ui, state: &mut AppState, height: f32) {
    Card::new("Goal").min_height(height).show(ui, |ui| {
        let no_power = no_power(state);
        for (goal, title, meaning) in GOALS {
            let open = *goal != Goal::Energy || no_power.is_none();
            let chosen = state.tune.goal == *goal;
            let shown = |ui: &mut Ui| choice(ui, chosen, title, meaning);
            if ui.add_enabled_ui(open, shown).inner.clicked() {
                state.tune.goal = *goal;
            }
        }
        if let Some(why) = no_power {
            caption(ui, why);
        }
        if state.tune.goal == Goal::Request {
            ui.add_space(space::XS);
            let shape = &mut state.tune.request;
            field(ui, "Prompt tokens", "Length of the question", |ui| {
                number(ui, &mut shape.prompt_tokens, 1..=1_000_000, "")
            });
            field(ui, "Generated tokens", "Length of the answer", |ui| {
                number(ui, &mut shape.generated_tokens, 1..=100_000, "")
            });
        }
    });
}

/// Why energy cannot be the goal here, as far as the sensors of the device that will be tuned have told.
fn no_power(state: &AppState) -> Option<String> {
    let (runtime, scan) = (state.chosen_runtime()?, state.scan.value()?);
    let target = Target::of_stock(runtime, &scan.gpus, Bytes(0));
    let device = target.sensors(runtime, &scan.gpus);
    let counts = |series: &SeriesId| series.tells_energy_of(device.as_deref());
    let live = &state.dashboard.live;
    if live.now().is_none() || live.rings().series().any(counts) {
        return None;
    }
    let what = match target.gpu(runtime, &scan.gpus) {
        Some(gpu) => clean(&gpu.name),
        None if device.is_some() => "the GPU".to_owned(),
        None => "the processor".to_owned(),
    };
    let mut absent = live.absent().iter();
    let why = absent.find(|a| counts(&a.series)).map_or_else(
        || "no sensor of it is known".to_owned(),
        |a| clean(&a.reason),
    );
    Some(format!("Energy needs the power of {what}: {why}"))
}

fn limits(ui: &mut Ui, state: &mut AppState, height: f32) {
    Card::new("What may change, and how long it may take").min_height(height).show(ui, |ui| {
        toggle(ui, &mut state.tune.allow_kv_quant, "Also try a KV cache of reduced precision");
        caption(
            ui,
            "q8_0 and q4_0 save memory and can be faster at long contexts, but change what the model answers. Off, every answer stays exactly what stock gives.",
        );
        ui.add_space(space::S);
        field(ui, "Time limit", "After it, no further candidate is begun; the confirmation is always finished", |ui| {
            segmented(ui, &mut state.tune.limit_minutes, LIMITS)
        });
        toggle(ui, &mut state.tune.more, "Show rarely needed choices");
        if state.tune.more {
            field(ui, "Context depth", "Tokens already in the context while everything is measured", |ui| {
                number(ui, &mut state.tune.depth, 0..=1_000_000, "")
            });
            let mut planned = state.tune.processes.unwrap_or(0);
            field(ui, "Processes per arm", "Of the confirmation; 0 plans them from the noise seen", |ui| {
                number(ui, &mut planned, 0..=100, "")
            });
            state.tune.processes = (planned > 0).then_some(planned);
        }
    });
}
