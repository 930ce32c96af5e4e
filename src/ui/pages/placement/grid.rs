//! Layer by class: a cell's colour is its memory, its brightness its bytes. Each row is one control: the pointer takes the
//! cell it is on, the keyboard moves a mark with the arrow keys and takes the cell with Enter.

use eframe::egui::{
    Align2, Color32, CornerRadius, CursorIcon, EventFilter, Key, Modifiers, Pos2, Rect, Response,
    Sense, Stroke, StrokeKind, Ui, WidgetInfo, accesskit::Role, pos2, vec2,
};

use crate::domain::placement::assignment::{Home, Resolved};
use crate::domain::placement::layout::TensorClass;
use crate::domain::types::Bytes;
use crate::ui::theme::{self, Tokens, size, space, tokens};
use crate::ui::widgets::{Card, caption, focus_ring};

use super::State;
use super::model::{Looked, Model};
use super::words;

/// Height of a row, from where it is easy to hit to where it is no longer a row of cells, and the gap below a cell.
const PITCH: std::ops::RangeInclusive<f32> = 26.0..=50.0;
const GAP_BELOW: f32 = 6.0;
/// What else is in the card: margins, title, legend, numbers, the line below.
const AROUND: f32 = 150.0;
/// Room for the rows' names.
const NAMES: f32 = 84.0;
/// Share of a cell's width that is a gap, and the widest gap.
const GAP_SHARE: f32 = 0.16;
const GAP: f32 = 3.0;
/// Least brightness: a cell of few bytes is still a cell.
const DIMMEST: f32 = 0.45;
/// Layers between two numbers below the grid, the first that leaves each its room.
const STEPS: [u32; 4] = [5, 10, 20, 50];
const NUMBER_ROOM: f32 = 34.0;

/// What a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Weights(TensorClass),
    Cache,
}

/// A row of the grid.
#[derive(Debug)]
struct Line {
    kind: Kind,
    /// By layer: memory and bytes; zero bytes are no cell.
    cells: Vec<(Home, f64)>,
}

/// The grid of one placement.
#[derive(Debug)]
pub(super) struct Grid {
    lines: Vec<Line>,
    /// Most bytes of a cell.
    most: f64,
    /// Weights in RAM are backed by the disk: it does not hold them all.
    pub streams: bool,
}

/// Rows from top to bottom.
const ORDER: [Kind; 6] = [
    Kind::Weights(TensorClass::Attention),
    Kind::Weights(TensorClass::Recurrent),
    Kind::Cache,
    Kind::Weights(TensorClass::FeedForward),
    Kind::Weights(TensorClass::Experts),
    Kind::Weights(TensorClass::Norm),
];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Weights(class) => words::class_name(class),
            Self::Cache => "KV cache",
        }
    }
}

impl Grid {
    pub fn of(model: &Model, looked: &Looked, streams: bool) -> Self {
        let devices = model.base.memories.devices.len();
        let homes = looked.placement.resolve(model.hand.n_layer, devices);
        let line = |kind| Line {
            kind,
            cells: (0..homes.layers.len())
                .map(|l| cell(model, looked, &homes, kind, l))
                .collect(),
        };
        let lines: Vec<Line> = ORDER.into_iter().map(line).filter(Line::is_there).collect();
        let most = lines
            .iter()
            .flat_map(|l| &l.cells)
            .map(|c| c.1)
            .fold(0.0, f64::max);
        Self {
            lines,
            most,
            streams,
        }
    }

    /// On the disk: weights in RAM that it does not hold all.
    fn on_disk(&self, kind: Kind, home: Home) -> bool {
        self.streams && home == Home::Host && kind != Kind::Cache
    }

    fn home_words(&self, model: &Model, kind: Kind, home: Home) -> String {
        if self.on_disk(kind, home) {
            "RAM as far as it reaches, the rest read from the SSD".to_owned()
        } else {
            words::home_name(model, home)
        }
    }
}

impl Line {
    fn is_there(&self) -> bool {
        self.cells.iter().any(|c| c.1 > 0.0)
    }
}

fn cell(model: &Model, looked: &Looked, homes: &Resolved, kind: Kind, layer: usize) -> (Home, f64) {
    let of = &model.footprint.layers[layer];
    match kind {
        Kind::Weights(class) => (homes.home(layer, class), of.part(class).bytes),
        Kind::Cache => {
            let context = &looked.context;
            // A state is read and written: twice what it takes.
            let share = match model.base.layout.layers[layer].attention {
                Some(_) => 1.0,
                None => 0.5,
            };
            (
                homes.cache[layer],
                of.cache_read(context.context as f64, context) * share,
            )
        }
    }
}

/// Draws the card; a click changes the placement.
pub(super) fn show(ui: &mut Ui, page: &mut State, model: &Model, height: f32) {
    Card::new("Where each tensor lives")
        .min_height(height)
        .show(ui, |ui| {
            let Some((_, drawn)) = page.drawn.as_ref() else {
                return;
            };
            legend(ui, model, &drawn.grid);
            let mut clicked = None;
            let pitch = (height - AROUND) / drawn.grid.lines.len().max(1) as f32;
            let pitch = pitch.clamp(*PITCH.start(), *PITCH.end());
            for line in &drawn.grid.lines {
                if let Some(layer) =
                    line_ui(ui, (&drawn.grid, line, pitch), model, &mut page.marked)
                {
                    clicked = Some((line.kind, layer));
                }
            }
            numbers(ui, model.hand.n_layer);
            caption(ui, outside(model, page.looked.as_ref()));
            if let Some((kind, layer)) = clicked
                && let Some(looked) = &mut page.looked
            {
                let moves = kind == Kind::Weights(model.hand.class);
                looked.placement = if moves {
                    model.hand.toggled(&looked.placement, layer)
                } else {
                    model.hand.boundary_at(&looked.placement, layer)
                };
            }
        });
}

/// What belongs to no layer.
fn outside(model: &Model, looked: Option<&Looked>) -> String {
    let layout = &model.base.layout;
    let n = layout.n_layer();
    let devices = model.base.memories.devices.len();
    let output = looked.map_or(Home::Host, |l| l.placement.layer_home(n, n, devices));
    let bytes = |class| layout.bytes(None, class);
    let embedding = bytes(TensorClass::Embedding);
    let output_bytes = if layout.tied_embeddings {
        embedding
    } else {
        bytes(TensorClass::Output)
    };
    format!(
        "Beside the layers: embeddings {embedding} in RAM, output {output_bytes} on {}",
        words::home_name(model, output)
            .replace("GPU", "the GPU")
            .replace("RAM", "the CPU's side (RAM)")
    )
}

fn legend(ui: &mut Ui, model: &Model, grid: &Grid) {
    let t = tokens(ui);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(space::XS, 2.0);
        let devices = model.base.memories.devices.len();
        let homes = (0..devices).map(Home::Device).chain([Home::Host]);
        for home in homes {
            entry(ui, color(t, home, false), &words::home_name(model, home));
        }
        if grid.streams {
            entry(ui, color(t, Home::Host, true), "RAM + SSD");
        }
        caption(ui, "· brighter is more bytes · click to move");
    });
}

/// A legend's square with its word, never apart.
pub(super) fn entry(ui: &mut Ui, color: Color32, word: &str) {
    const SQUARE: f32 = 8.0;
    let (font, ink) = (theme::body(size::CAPTION), tokens(ui).muted);
    let galley = ui.painter().layout_no_wrap(word.to_owned(), font, ink);
    let wanted = vec2(
        SQUARE + space::XS + galley.size().x + space::XS,
        galley.size().y,
    );
    let (rect, response) = ui.allocate_exact_size(wanted, Sense::hover());
    let middle = pos2(rect.left() + SQUARE / 2.0, rect.center().y);
    let square = Rect::from_center_size(middle, vec2(SQUARE, SQUARE));
    ui.painter()
        .rect_filled(square, CornerRadius::same(1), color);
    ui.painter().galley(
        pos2(rect.left() + SQUARE + space::XS, rect.top()),
        galley,
        ink,
    );
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, word));
}

/// The colour of a memory. Devices beyond the fourth begin again: their names tell them apart.
pub(super) fn color(t: &Tokens, home: Home, disk: bool) -> Color32 {
    let devices = [t.accent, t.improved, t.warning_fill, t.unchanged];
    match home {
        Home::Host if disk => t.inconclusive,
        Home::Host => t.regressed,
        Home::Device(i) => devices[i % devices.len()],
    }
}

/// Draws a row; returns the layer whose cell was taken.
fn line_ui(
    ui: &mut Ui,
    (grid, line, pitch): (&Grid, &Line, f32),
    model: &Model,
    marked: &mut u32,
) -> Option<u32> {
    let n = line.cells.len() as u32;
    let t = tokens(ui);
    ui.spacing_mut().item_spacing.y = GAP_BELOW;
    let wanted = vec2(ui.available_width(), pitch - GAP_BELOW);
    let (whole, _) = ui.allocate_exact_size(wanted, Sense::hover());
    let at = pos2(whole.left() + NAMES - 12.0, whole.center().y);
    let name = line.kind.name();
    ui.painter().text(
        at,
        Align2::RIGHT_CENTER,
        name,
        theme::body(size::SMALL),
        t.muted,
    );
    let rect = Rect::from_min_max(pos2(whole.left() + NAMES, whole.top()), whole.max);
    let response = ui.interact(rect, ui.scope_id().with(("cells", name)), Sense::click());
    let under = |p: Pos2| {
        ((p.x - rect.left()) / rect.width() * n as f32)
            .floor()
            .clamp(0.0, n as f32 - 1.0) as u32
    };
    let mut taken = None;
    if response.clicked() {
        if let Some(pointer) = response.interact_pointer_pos() {
            *marked = under(pointer);
        }
        taken = Some(*marked);
    }
    keys(ui, &response, marked, n);
    *marked = (*marked).min(n.saturating_sub(1));
    paint(ui, grid, line, rect);
    if response.has_focus() {
        focus_ring(ui, rect);
        let cell = cell_rect(rect, *marked, n).expand(1.0);
        let stroke = Stroke::new(2.0, t.text);
        ui.painter()
            .rect_stroke(cell, CornerRadius::same(2), stroke, StrokeKind::Outside);
    }
    describe(ui, grid, line, model, &response, *marked);
    let hovered = response.hover_pos().map(under);
    let response = response.on_hover_cursor(CursorIcon::PointingHand);
    if let Some(layer) = hovered {
        response.on_hover_ui_at_pointer(|ui| {
            caption(ui, cell_words(grid, line, model, layer));
        });
    }
    taken
}

fn keys(ui: &Ui, response: &Response, marked: &mut u32, n: u32) {
    if !response.has_focus() {
        return;
    }
    let filter = EventFilter {
        horizontal_arrows: true,
        ..EventFilter::default()
    };
    ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    let pressed = |key| ui.input_mut(|i| i.count_and_consume_key(Modifiers::NONE, key)) as u32;
    *marked = (*marked + pressed(Key::ArrowRight)).saturating_sub(pressed(Key::ArrowLeft));
    if pressed(Key::Home) > 0 {
        *marked = 0;
    }
    if pressed(Key::End) > 0 {
        *marked = n - 1;
    }
}

fn cell_rect(rect: Rect, layer: u32, n: u32) -> Rect {
    let pitch = rect.width() / n as f32;
    let gap = (pitch * GAP_SHARE).min(GAP);
    let left = rect.left() + pitch * layer as f32;
    Rect::from_min_max(
        pos2(left, rect.top()),
        pos2(left + pitch - gap, rect.bottom()),
    )
}

fn paint(ui: &Ui, grid: &Grid, line: &Line, rect: Rect) {
    let t = tokens(ui);
    let n = line.cells.len() as u32;
    let corner = CornerRadius::same(if rect.width() / n as f32 > 8.0 { 2 } else { 0 });
    for (layer, (home, bytes)) in (0..n).zip(&line.cells) {
        let cell = cell_rect(rect, layer, n);
        if *bytes > 0.0 {
            // The fourth root: norms are a thousandth of a feed-forward part, and still to be seen.
            let share = (bytes / grid.most).powf(0.25) as f32;
            let full = color(t, *home, grid.on_disk(line.kind, *home));
            let fill = t
                .card
                .lerp_to_gamma(full, DIMMEST + (1.0 - DIMMEST) * share);
            ui.painter().rect_filled(cell, corner, fill);
        } else {
            ui.painter()
                .rect_filled(cell, corner, t.raised.gamma_multiply(0.5));
        }
    }
}

fn cell_words(grid: &Grid, line: &Line, model: &Model, layer: u32) -> String {
    let name = line.kind.name();
    match line.cells.get(layer as usize) {
        Some((home, bytes)) if *bytes > 0.0 => format!(
            "Layer {layer}, {name}: {} in {}",
            Bytes(*bytes as u64),
            grid.home_words(model, line.kind, *home)
        ),
        _ => format!("Layer {layer} has no {name}"),
    }
}

fn describe(ui: &Ui, grid: &Grid, line: &Line, model: &Model, response: &Response, marked: u32) {
    let name = format!("{} by layer", line.kind.name());
    response.widget_info(|| WidgetInfo::labeled(Role::Button, true, &name));
    if response.has_focus() {
        let value = cell_words(grid, line, model, marked);
        ui.ctx()
            .accesskit_node_builder(response.id, |node| node.set_value(value));
    }
}

/// Numbers of layers below the cells.
fn numbers(ui: &mut Ui, n: u32) {
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 14.0), Sense::hover());
    let pitch = (rect.width() - NAMES) / n.max(1) as f32;
    let fits = |step: &&u32| pitch * **step as f32 >= NUMBER_ROOM;
    let step = STEPS.iter().find(fits).copied().unwrap_or(100);
    for layer in (0..n).step_by(step as usize) {
        let x = rect.left() + NAMES + pitch * (layer as f32 + 0.42);
        let (font, ink) = (theme::body(size::CAPTION), tokens(ui).muted);
        ui.painter().text(
            pos2(x, rect.center().y),
            Align2::CENTER_CENTER,
            layer,
            font,
            ink,
        );
    }
}
