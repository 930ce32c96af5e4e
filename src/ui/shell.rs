//! What is around every page: the rail at the left, the bar at the top, the toast at the bottom.

use eframe::egui::{
    Align, CentralPanel, CornerRadius, CursorIcon, Frame, Layout, Margin, Panel, Rect, ScrollArea,
    Sense, Stroke, Ui, WidgetInfo, accesskit::Role, pos2, vec2,
};

use crate::domain::doctor::Level;
use crate::domain::machine::default_gpu;
use crate::domain::text::{capitalised, clean};

use super::app::Cx;
use super::pages;
use super::state::{AppState, Page};
use super::theme::icons::Icon;
use super::theme::{self, size, space, tokens};
use super::widgets::{Press, caption, status};

/// The pages of the rail: page, icon, name, key.
const PAGES: &[(Page, Icon, &str, &str)] = &[
    (Page::Machine, Icon::Machine, "Machine", "1"),
    (Page::Tune, Icon::Tune, "Tune", "2"),
    (Page::Dashboard, Icon::Dashboard, "Dashboard", "3"),
    (Page::Placement, Icon::Placement, "Placement", "4"),
    (Page::History, Icon::History, "History", "5"),
    (Page::Lab, Icon::Lab, "Lab", "6"),
    (Page::Settings, Icon::Settings, "Settings", ","),
];

/// Room for one more pill and the state at the right, points.
const LEAST_ROOM: f32 = 420.0;
/// A window narrower than this has icons only in its rail.
const NARROW: f32 = 1000.0;

/// Draws the frame and the page in it.
pub fn show(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let t = tokens(ui);
    let narrow = ui.available_width() < NARROW;
    let width = if narrow { 60.0 } else { space::RAIL };
    let rail = Frame::new()
        .fill(t.panel)
        .inner_margin(Margin::symmetric(10, 16));
    Panel::left("rail")
        .exact_size(width)
        .resizable(false)
        .frame(rail)
        .show(ui, |ui| rail_ui(ui, state, cx, narrow));
    let bar = Frame::new()
        .fill(t.background)
        .inner_margin(Margin::symmetric(space::XL as i8, 10));
    Panel::top("bar")
        .exact_size(48.0)
        .resizable(false)
        .show_separator_line(false)
        .frame(bar)
        .show(ui, |ui| bar_ui(ui, state, cx));
    if state.toast.is_some() {
        let frame = Frame::new()
            .fill(t.card)
            .inner_margin(Margin::symmetric(space::XL as i8, 8));
        Panel::bottom("toast")
            .resizable(false)
            .frame(frame)
            .show(ui, |ui| toast_ui(ui, state, cx));
    }
    let page = Frame::new().fill(t.background);
    CentralPanel::default().frame(page).show(ui, |ui| {
        ScrollArea::vertical()
            .id_salt(("page", state.page as u8))
            .auto_shrink([false, false])
            .show(ui, |ui| {
                follow_focus(ui);
                centered(ui, |ui| pages::show(ui, state, cx));
            });
    });
}

/// What the keyboard has just come to is scrolled to.
fn follow_focus(ui: &Ui) {
    let place = ui.scope_id().with("focus");
    let now = ui.memory(eframe::egui::Memory::focused);
    let before = ui.data_mut(|data| std::mem::replace(data.get_temp_mut_or_default(place), now));
    if now != before
        && let Some(response) = now.and_then(|id| ui.ctx().read_response(id))
    {
        ui.scroll_to_rect(response.rect.expand(space::S), None);
    }
}

/// Content keeps to a width that eyes can follow.
fn centered(ui: &mut Ui, content: impl FnOnce(&mut Ui)) {
    let room = ui.available_width();
    let width = (room - 2.0 * space::XL).min(space::CONTENT);
    let left = ui.min_rect().left() + ((room - width) / 2.0).max(space::XL);
    let top = ui.min_rect().top() + space::L + 4.0;
    let rect = Rect::from_min_size(pos2(left, top), vec2(width, f32::INFINITY));
    ui.scope_builder(eframe::egui::UiBuilder::new().max_rect(rect), |ui| {
        ui.set_width(width);
        ui.spacing_mut().item_spacing = vec2(space::S, space::L);
        content(ui);
        ui.add_space(space::XL);
    });
}

fn rail_ui(ui: &mut Ui, state: &mut AppState, cx: &mut Cx, narrow: bool) {
    brand(ui, narrow);
    ui.add_space(space::S);
    ui.spacing_mut().item_spacing.y = 2.0;
    for (page, icon, name, key) in PAGES {
        if rail_item(ui, state.page == *page, *icon, name, key, narrow) {
            cx.go(*page);
        }
    }
    if narrow {
        return;
    }
    ui.with_layout(Layout::bottom_up(Align::Min), |ui| {
        ui.add_space(space::XS);
        ui.spacing_mut().item_spacing.y = 2.0;
        ui.horizontal(|ui| {
            ui.add_space(10.0);
            ui.with_layout(Layout::bottom_up(Align::Min), |ui| foot(ui, state));
        });
    });
}

fn brand(ui: &mut Ui, narrow: bool) {
    let t = tokens(ui);
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 30.0), Sense::hover());
    let mid = rect.center().y;
    let left = rect.left() + 12.0;
    // The mark: one clean rise, and back.
    let wave = [
        (0.0, 5.0),
        (4.0, 4.0),
        (7.0, -5.0),
        (10.0, -5.0),
        (13.0, 4.0),
        (17.0, 5.0),
    ];
    let points = wave.iter().map(|(x, y)| pos2(left + x, mid + y)).collect();
    ui.painter().line(points, Stroke::new(2.0, t.accent));
    if !narrow {
        ui.painter().text(
            pos2(left + 26.0, mid),
            eframe::egui::Align2::LEFT_CENTER,
            "Flux",
            theme::strong(17.0),
            t.text,
        );
    }
}

fn rail_item(ui: &mut Ui, chosen: bool, icon: Icon, name: &str, key: &str, narrow: bool) -> bool {
    let t = tokens(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 32.0), Sense::click());
    let fill = match (chosen, response.hovered()) {
        (true, _) => t.raised,
        (false, true) => t.raised.gamma_multiply(0.5),
        (false, false) => eframe::egui::Color32::TRANSPARENT,
    };
    ui.painter()
        .rect_filled(rect, CornerRadius::same(space::CONTROL_RADIUS), fill);
    let ink = if chosen { t.text } else { t.muted };
    let middle = rect.center().y;
    let painter = ui.painter();
    let icon_x = if narrow {
        rect.center().x
    } else {
        rect.left() + 18.0
    };
    painter.text(
        pos2(icon_x, middle),
        eframe::egui::Align2::CENTER_CENTER,
        icon.glyph(),
        theme::body(14.5),
        ink,
    );
    if !narrow {
        let font = if chosen {
            theme::strong(size::BODY)
        } else {
            theme::body(size::BODY)
        };
        let left = eframe::egui::Align2::LEFT_CENTER;
        painter.text(pos2(rect.left() + 36.0, middle), left, name, font, ink);
        let right = eframe::egui::Align2::RIGHT_CENTER;
        let at = pos2(rect.right() - 10.0, middle);
        painter.text(at, right, key, theme::body(size::CAPTION), t.muted);
    }
    if response.has_focus() {
        let stroke = Stroke::new(2.0, t.accent);
        let corner = CornerRadius::same(space::CONTROL_RADIUS);
        ui.painter()
            .rect_stroke(rect, corner, stroke, eframe::egui::StrokeKind::Inside);
    }
    response.widget_info(|| WidgetInfo::selected(Role::Tab, true, chosen, name));
    response.on_hover_cursor(CursorIcon::PointingHand).clicked()
}

/// Fingerprint and what is known for it.
fn foot(ui: &mut Ui, state: &AppState) {
    let Some(scan) = state.scan.value() else {
        caption(ui, "Fingerprint not known yet");
        return;
    };
    let t = tokens(ui);
    // Bottom up: the last line first.
    match state.history.profile_state() {
        Some((true, words)) => status_small(ui, Icon::Check, t.improved, words),
        Some((false, words)) => status_small(ui, Icon::Warning, t.warning, words),
        None => {
            caption(ui, "No profile yet");
        }
    }
    caption(ui, format!("Fingerprint {}", scan.fingerprint.short()));
}

fn status_small(ui: &mut Ui, icon: Icon, color: eframe::egui::Color32, words: &str) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = space::XS;
        let (rect, _) = ui.allocate_exact_size(vec2(12.0, 14.0), Sense::hover());
        ui.painter().text(
            rect.center(),
            eframe::egui::Align2::CENTER_CENTER,
            icon.glyph(),
            theme::body(size::CAPTION),
            color,
        );
        caption(ui, words);
    });
}

/// GPU, runtime and model in use at the left; whether one can measure at the right.
fn bar_ui(ui: &mut Ui, state: &AppState, cx: &mut Cx) {
    let t = tokens(ui);
    let rect = ui.max_rect().expand2(vec2(space::XL, 10.0));
    ui.painter().hline(
        rect.x_range(),
        rect.bottom() - 0.5,
        Stroke::new(1.0, t.hairline),
    );
    ui.horizontal_centered(|ui| {
        for (page, head, tail) in in_use(state) {
            // Whether one can measure has its place first.
            if ui.available_width() < LEAST_ROOM {
                break;
            }
            if pill(ui, &head, &tail) {
                cx.go(page);
            }
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let (icon, color, words) = readiness(ui, state);
            if state_pill(ui, icon, color, &words) {
                cx.go(Page::Machine);
            }
        });
    });
}

fn in_use(state: &AppState) -> Vec<(Page, String, String)> {
    let mut pills = Vec::new();
    if let Some(scan) = state.scan.value() {
        match default_gpu(&scan.gpus) {
            Some(gpu) => {
                let memory = gpu.memory.as_ref().map(|m| m.vram.to_string());
                pills.push((Page::Machine, clean(&gpu.name), memory.unwrap_or_default()));
            }
            None => pills.push((
                Page::Machine,
                "CPU only".to_owned(),
                clean(&scan.machine.host.cpu),
            )),
        }
    }
    if let Some(runtime) = state.chosen_runtime() {
        let backends: Vec<&str> = runtime.backends.iter().map(|b| b.name()).collect();
        pills.push((
            Page::Machine,
            format!("llama.cpp {}", clean(&runtime.name)),
            backends.join(", "),
        ));
    }
    if let Some(model) = &state.model {
        let quant = model.quant_mix.first().map(|(name, _)| name.clone());
        pills.push((Page::Tune, clean(&model.name), quant.unwrap_or_default()));
    }
    pills
}

fn readiness(ui: &Ui, state: &AppState) -> (Icon, eframe::egui::Color32, String) {
    let t = tokens(ui);
    if let Some(job) = state.job.as_ref().filter(|job| job.is_running()) {
        let words = if job.stopping.is_some() {
            "stopping"
        } else {
            "measuring"
        };
        return (Icon::Play, t.accent, words.to_owned());
    }
    if state.scan.value().is_none() {
        return (Icon::Clock, t.muted, "looking at this machine".to_owned());
    }
    if state.chosen_runtime().is_none() {
        return (Icon::Problem, t.regressed, "no llama.cpp yet".to_owned());
    }
    let found = state.findings.value().map_or(&[][..], Vec::as_slice);
    let count = |level| found.iter().filter(|f| f.level == level).count();
    match (count(Level::Problem), count(Level::Warning)) {
        (0, 0) => (Icon::Check, t.improved, "ready to measure".to_owned()),
        (0, 1) => (Icon::Warning, t.warning, "1 thing to look at".to_owned()),
        (0, n) => (Icon::Warning, t.warning, format!("{n} things to look at")),
        (1, _) => (Icon::Problem, t.regressed, "1 problem".to_owned()),
        (n, _) => (Icon::Problem, t.regressed, format!("{n} problems")),
    }
}

fn pill(ui: &mut Ui, head: &str, tail: &str) -> bool {
    let t = tokens(ui);
    let limit = 260.0;
    let short = |text: &str, font, color| {
        let mut job =
            eframe::egui::text::LayoutJob::simple_singleline(text.to_owned(), font, color);
        job.wrap.max_width = limit;
        job.wrap.max_rows = 1;
        job.wrap.break_anywhere = true;
        ui.painter().layout_job(job)
    };
    let head_galley = short(head, theme::strong(size::SMALL), t.text);
    let tail_text = if tail.is_empty() {
        String::new()
    } else {
        format!("· {tail}")
    };
    let tail_galley = short(&tail_text, theme::body(size::SMALL), t.muted);
    let gap = if tail.is_empty() { 0.0 } else { space::XS };
    let wanted = vec2(
        head_galley.size().x + gap + tail_galley.size().x + 2.0 * space::M,
        26.0,
    );
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::click());
    outline(ui, rect, response.hovered(), response.has_focus());
    let y = |height: f32| rect.center().y - height / 2.0;
    let x = rect.left() + space::M;
    let after = x + head_galley.size().x + gap;
    let (hy, ty) = (y(head_galley.size().y), y(tail_galley.size().y));
    ui.painter().galley(pos2(x, hy), head_galley, t.text);
    ui.painter().galley(pos2(after, ty), tail_galley, t.muted);
    let name = if tail.is_empty() {
        head.to_owned()
    } else {
        format!("{head}, {tail}")
    };
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &name));
    response.on_hover_text(name).clicked()
}

fn outline(ui: &Ui, rect: Rect, hovered: bool, focused: bool) {
    let t = tokens(ui);
    let color = match (focused, hovered) {
        (true, _) => t.accent,
        (false, true) => t.muted,
        (false, false) => t.hairline,
    };
    ui.painter().rect_stroke(
        rect.shrink(0.5),
        CornerRadius::same(13),
        Stroke::new(if focused { 2.0 } else { 1.0 }, color),
        eframe::egui::StrokeKind::Inside,
    );
}

fn state_pill(ui: &mut Ui, icon: Icon, color: eframe::egui::Color32, words: &str) -> bool {
    let t = tokens(ui);
    let galley = ui
        .painter()
        .layout_no_wrap(words.to_owned(), theme::body(size::SMALL), t.muted);
    let wanted = vec2(galley.size().x + 18.0 + 2.0 * space::M, 26.0);
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::click());
    outline(ui, rect, response.hovered(), response.has_focus());
    ui.painter().text(
        pos2(rect.left() + space::M + 6.0, rect.center().y),
        eframe::egui::Align2::CENTER_CENTER,
        icon.glyph(),
        theme::body(size::SMALL),
        color,
    );
    let at = pos2(
        rect.left() + space::M + 18.0,
        rect.center().y - galley.size().y / 2.0,
    );
    ui.painter().galley(at, galley, t.muted);
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, words));
    response.clicked()
}

fn toast_ui(ui: &mut Ui, state: &mut AppState, cx: &mut Cx) {
    let Some(toast) = state.toast.clone() else {
        return;
    };
    let t = tokens(ui);
    ui.horizontal(|ui| {
        let (icon, color) = if toast.failed {
            (Icon::Problem, t.regressed)
        } else {
            (Icon::Check, t.improved)
        };
        status(ui, icon, color, &capitalised(&clean(&toast.text)));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            if ui
                .add(Press::new("Dismiss").icon_only(Icon::Close))
                .clicked()
            {
                state.toast = None;
            }
            if let Some(undo) = toast.undo
                && ui.add(Press::new("Undo").icon(Icon::Undo)).clicked()
            {
                state.toast = None;
                pages::history::bring_back(state, cx.link, undo);
            }
        });
    });
}
