//! Tables: a muted head, thin lines between rows, numbers at the right. A row can be chosen, by pointer or keyboard.

use eframe::egui::{
    Align as EguiAlign, Color32, CornerRadius, CursorIcon, Id, Key, Label, Layout, Rect, RichText,
    Sense, Stroke, Ui, UiBuilder, WidgetInfo, accesskit::Role, pos2, vec2,
};

use crate::ui::theme::{self, size, space, tokens};

use super::button::focus_ring;

/// Which edge a column's content keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// How wide a column is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Width {
    /// Points.
    Fixed(f32),
    /// Share of what the fixed ones leave.
    Share(f32),
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    head: &'a str,
    align: Align,
    width: Width,
}

impl<'a> Column<'a> {
    /// A column of words.
    pub const fn left(head: &'a str, width: Width) -> Self {
        Self {
            head,
            align: Align::Left,
            width,
        }
    }

    /// A column of numbers.
    pub const fn right(head: &'a str, width: Width) -> Self {
        Self {
            head,
            align: Align::Right,
            width,
        }
    }
}

/// Rows of a table that is no longer drawn whole.
const LONG: usize = 40;

/// A table; `id` tells it from others on the page.
pub struct Table<'a> {
    id: &'a str,
    columns: &'a [Column<'a>],
    head: bool,
    wrap: bool,
    chosen: Option<usize>,
    name: Option<&'a dyn Fn(usize) -> String>,
    scrolls: bool,
}

/// Where the cells of one row are put, in order.
pub struct Cells<'u> {
    ui: &'u mut Ui,
    places: Vec<(Rect, Align)>,
    next: usize,
    wrap: bool,
    bottom: f32,
}

impl<'a> Table<'a> {
    /// A table with these columns.
    pub const fn new(id: &'a str, columns: &'a [Column<'a>]) -> Self {
        Self {
            id,
            columns,
            head: true,
            wrap: false,
            chosen: None,
            name: None,
            scrolls: false,
        }
    }

    /// Without a head.
    #[must_use]
    pub const fn headless(mut self) -> Self {
        self.head = false;
        self
    }

    /// Long text goes on in further lines instead of being cut.
    #[must_use]
    pub const fn wrap(mut self) -> Self {
        self.wrap = true;
        self
    }

    /// Rows can be chosen; `name` is what a screen reader calls them.
    #[must_use]
    pub const fn choosable(
        mut self,
        chosen: Option<usize>,
        name: &'a dyn Fn(usize) -> String,
    ) -> Self {
        self.chosen = chosen;
        self.name = Some(name);
        self
    }

    /// A row that becomes the chosen one is scrolled to.
    #[must_use]
    pub const fn in_sight(mut self) -> Self {
        self.scrolls = true;
        self
    }

    /// Shows `rows` rows; returns the row just chosen.
    pub fn show(
        mut self,
        ui: &mut Ui,
        rows: usize,
        mut row: impl FnMut(usize, &mut Cells),
    ) -> Option<usize> {
        ui.spacing_mut().item_spacing.y = 0.0;
        self.scrolls = self.scrolls && self.is_newly_chosen(ui);
        let edges = self.edges(ui.available_width());
        if self.head {
            self.head_row(ui, &edges);
        }
        let mut clicked = None;
        for index in 0..rows {
            if self.body_row(ui, &edges, (index, rows > LONG), &mut row) {
                clicked = Some(index);
            }
        }
        clicked
    }

    /// Has another row become the chosen one since the last frame? The first frame of a table changes nothing.
    fn is_newly_chosen(&self, ui: &Ui) -> bool {
        let id = Id::unique(("chosen row", self.id));
        let before = ui.data_mut(|data| {
            let before = data.get_temp::<Option<usize>>(id);
            data.insert_temp(id, self.chosen);
            before
        });
        before.is_some_and(|before| before != self.chosen)
    }

    /// Left edge and width of each column.
    fn edges(&self, width: f32) -> Vec<(f32, f32)> {
        const GAP: f32 = space::M;
        let room = width - 2.0 * space::S - GAP * self.columns.len().saturating_sub(1) as f32;
        let fixed: f32 = self.columns.iter().map(|c| c.width.fixed()).sum();
        let shares: f32 = self.columns.iter().map(|c| c.width.share()).sum();
        let left_over = (room - fixed).max(0.0);
        let mut x = space::S;
        let mut edges = Vec::new();
        for column in self.columns {
            let width = match column.width {
                Width::Fixed(points) => points,
                Width::Share(share) => left_over * share / shares.max(f32::EPSILON),
            };
            edges.push((x, width));
            x += width + GAP;
        }
        edges
    }

    fn places(&self, edges: &[(f32, f32)], rect: Rect) -> Vec<(Rect, Align)> {
        let place = |((x, width), column): (&(f32, f32), &Column)| {
            let left = pos2(rect.left() + x, rect.top());
            (
                Rect::from_min_size(left, vec2(*width, rect.height())),
                column.align,
            )
        };
        edges.iter().zip(self.columns).map(place).collect()
    }

    fn head_row(&self, ui: &mut Ui, edges: &[(f32, f32)]) {
        let t = tokens(ui);
        let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 26.0), Sense::hover());
        for ((place, align), column) in self.places(edges, rect).into_iter().zip(self.columns) {
            let text = RichText::new(column.head)
                .font(theme::body(size::CAPTION))
                .color(t.muted);
            let mut cell = cell_ui(ui, place, align);
            cell.add(Label::new(text).truncate());
        }
        line_below(ui, rect, t.hairline);
    }

    fn body_row(
        &self,
        ui: &mut Ui,
        edges: &[(f32, f32)],
        (index, long): (usize, bool),
        row: &mut impl FnMut(usize, &mut Cells),
    ) -> bool {
        let t = tokens(ui);
        let top = ui.available_rect_before_wrap().min;
        let wanted = Rect::from_min_size(top, vec2(ui.available_width(), space::ROW));
        // The row's own click target comes first, so that buttons in its cells lie above it.
        let response = self.name.map(|name| {
            let id = ui.scope_id().with((self.id, "row", index));
            let response = ui.interact(wanted, id, Sense::click());
            let chosen = self.chosen == Some(index);
            response.widget_info(|| WidgetInfo::selected(Role::Row, true, chosen, name(index)));
            let fill = match (chosen, response.hovered() || response.has_focus()) {
                (true, _) => t.raised,
                (false, true) => t.raised.gamma_multiply(0.5),
                (false, false) => Color32::TRANSPARENT,
            };
            ui.painter()
                .rect_filled(wanted, CornerRadius::same(4), fill);
            if chosen && self.scrolls {
                response.scroll_to_me(Some(EguiAlign::Center));
            }
            if response.has_focus() {
                focus_ring(ui, wanted.shrink(3.0));
            }
            response.on_hover_cursor(CursorIcon::PointingHand)
        });
        let mut whole = wanted;
        // In a long table, cells out of sight cost nothing: a row keeps its height and its name.
        if self.wrap || !long || ui.is_rect_visible(wanted) {
            let mut cells = Cells {
                places: self.places(edges, wanted),
                ui,
                next: 0,
                wrap: self.wrap,
                bottom: wanted.bottom(),
            };
            row(index, &mut cells);
            whole.set_bottom(cells.bottom);
        }
        ui.allocate_rect(whole, Sense::hover());
        line_below(ui, whole, t.hairline);
        response.is_some_and(|r| {
            r.clicked() || (r.has_focus() && ui.input(|i| i.key_pressed(Key::Enter)))
        })
    }
}

impl Width {
    const fn fixed(self) -> f32 {
        match self {
            Self::Fixed(points) => points,
            Self::Share(_) => 0.0,
        }
    }

    const fn share(self) -> f32 {
        match self {
            Self::Fixed(_) => 0.0,
            Self::Share(share) => share,
        }
    }
}

fn cell_ui(ui: &mut Ui, place: Rect, align: Align) -> Ui {
    let layout = match align {
        Align::Left => Layout::left_to_right(EguiAlign::Center),
        Align::Right => Layout::right_to_left(EguiAlign::Center),
    };
    ui.new_child(UiBuilder::new().max_rect(place).layout(layout))
}

fn line_below(ui: &Ui, rect: Rect, color: Color32) {
    let y = rect.bottom() - 0.5;
    ui.painter()
        .hline(rect.x_range(), y, Stroke::new(1.0, color));
}

impl Cells<'_> {
    /// The next cell, drawn by `content`.
    pub fn add(&mut self, content: impl FnOnce(&mut Ui)) {
        const PADDING: f32 = 7.0;
        let Some((place, align)) = self.places.get(self.next).copied() else {
            return;
        };
        self.next += 1;
        if self.wrap && align == Align::Left {
            let place = place.translate(vec2(0.0, PADDING));
            let layout = Layout::top_down(EguiAlign::Min);
            let mut cell = self
                .ui
                .new_child(UiBuilder::new().max_rect(place).layout(layout));
            content(&mut cell);
            self.bottom = self.bottom.max(cell.min_rect().bottom() + PADDING);
        } else {
            content(&mut cell_ui(self.ui, place, align));
        }
    }

    fn put(&mut self, text: RichText) {
        let wrap = self.wrap;
        self.add(|ui| {
            let label = Label::new(text);
            ui.add(if wrap { label.wrap() } else { label.truncate() });
        });
    }

    /// Text.
    pub fn text(&mut self, text: impl Into<String>) {
        let color = tokens(self.ui).text;
        self.tinted(text, color);
    }

    /// Text of second rank.
    pub fn muted(&mut self, text: impl Into<String>) {
        let color = tokens(self.ui).muted;
        self.tinted(text, color);
    }

    /// Text in a colour that means something said elsewhere in the row by icon and word.
    pub fn tinted(&mut self, text: impl Into<String>, color: Color32) {
        self.put(
            RichText::new(text)
                .font(theme::body(size::BODY))
                .color(color),
        );
    }

    /// What the row is about.
    pub fn strong(&mut self, text: impl Into<String>) {
        let color = tokens(self.ui).text;
        self.put(
            RichText::new(text)
                .font(theme::strong(size::BODY))
                .color(color),
        );
    }
}
