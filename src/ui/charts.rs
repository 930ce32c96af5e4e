//! Paints a chart's scene with egui, says its exact values under the pointer, and shows the same numbers as a table.

use std::sync::Arc;

use eframe::egui::{
    Align2, Color32, CornerRadius, Pos2, Rect, Response, Sense, Shape, Stroke, StrokeKind, Ui,
    WidgetInfo, accesskit::Role as AccessRole, epaint::PathShape, pos2, vec2,
};

use crate::chart::{AREA_OPACITY, Align, Anchor, Item, Mark, Point, Role, Scene, Table};

use super::theme::icons::Icon;
use super::theme::{self, Tokens, tokens};
use super::widgets::{self, Column, Press, Width};

/// How near the pointer must come to a mark to hear its value, points.
const REACH: f32 = 6.0;

/// Paints a scene over the whole width. `scene` is asked for the width there is.
pub fn chart(ui: &mut Ui, scene: impl FnOnce(f32) -> Scene) -> Response {
    let scene = scene(ui.available_width());
    show(ui, &scene)
}

/// A chart with a switch under it that shows its numbers.
pub fn with_table(ui: &mut Ui, id: &str, scene: impl FnOnce(f32) -> Scene) {
    let scene = scene(ui.available_width());
    shown_with_table(ui, id, &scene);
}

/// The same for data that changes only with its `version`: laid out once per width.
pub fn kept(ui: &mut Ui, id: &str, version: u64, scene: impl FnOnce(f32) -> Scene) {
    type Kept = (u64, f32, Arc<Scene>);
    let width = ui.available_width();
    let place = ui.scope_id().with(("kept scene", id));
    let known = ui.data(|data| data.get_temp::<Kept>(place));
    let known = known.filter(|(of, at, _)| *of == version && (at - width).abs() < 0.5);
    let scene = known.map_or_else(
        || {
            let made = Arc::new(scene(width));
            let kept: Kept = (version, width, Arc::clone(&made));
            ui.data_mut(|data| data.insert_temp(place, kept));
            made
        },
        |(_, _, scene)| scene,
    );
    shown_with_table(ui, id, &scene);
}

fn shown_with_table(ui: &mut Ui, id: &str, scene: &Scene) {
    show(ui, scene);
    let id = ui.scope_id().with(("chart table", id));
    let mut open = ui.data(|data| data.get_temp::<bool>(id)).unwrap_or(false);
    let (words, icon) = if open {
        ("Hide table", Icon::Down)
    } else {
        ("Show table", Icon::Right)
    };
    if ui.add(Press::new(words).icon(icon).link()).clicked() {
        open = !open;
        ui.data_mut(|data| data.insert_temp(id, open));
    }
    if open {
        numbers(ui, &scene.table);
    }
}

/// A chart's numbers, or any others.
pub fn numbers(ui: &mut Ui, table: &Table) {
    let columns: Vec<Column> = table
        .columns
        .iter()
        .map(|(head, align)| match align {
            Align::Left => Column::left(head, Width::Share(1.4)),
            Align::Right => Column::right(head, Width::Share(1.0)),
        })
        .collect();
    widgets::Table::new("numbers", &columns).show(ui, table.rows.len(), |row, cells| {
        for cell in &table.rows[row] {
            cells.text(cell);
        }
    });
}

/// Paints a scene that is kept between frames; it was made for the width there is.
pub fn show(ui: &mut Ui, scene: &Scene) -> Response {
    let (rect, response) = ui.allocate_exact_size(vec2(scene.width, scene.height), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(AccessRole::Image, true, &scene.summary));
    if !ui.is_rect_visible(rect) {
        return response;
    }
    let t = tokens(ui);
    for item in &scene.items {
        paint(ui, t, rect.min, item);
    }
    let hint = response
        .hover_pos()
        .and_then(|at| hint_at(scene, at - rect.min.to_vec2()));
    match hint {
        Some(hint) => response.on_hover_text_at_pointer(hint),
        None => response,
    }
}

fn at(origin: Pos2, p: Point) -> Pos2 {
    pos2(origin.x + p.x, origin.y + p.y)
}

fn paint(ui: &Ui, t: &Tokens, origin: Pos2, item: &Item) {
    let painter = ui.painter();
    match &item.mark {
        Mark::Rect {
            x,
            y,
            w,
            h,
            radius,
            fill,
            stroke,
        } => {
            let rect = Rect::from_min_size(origin + vec2(*x, *y), vec2(*w, *h));
            let corner = CornerRadius::same(*radius as u8);
            if let Some(role) = fill {
                painter.rect_filled(rect, corner, fill_color(t, *role));
            }
            if let Some(role) = stroke {
                let line = Stroke::new(1.0, color(t, *role));
                painter.rect_stroke(rect, corner, line, StrokeKind::Inside);
            }
        }
        Mark::Polyline {
            points,
            role,
            width,
            dash,
        } => {
            let path: Vec<Pos2> = points.iter().map(|p| at(origin, *p)).collect();
            let stroke = Stroke::new(*width, color(t, *role));
            if *dash {
                painter.extend(Shape::dashed_line(&path, stroke, 3.0, 3.0));
            } else {
                painter.add(Shape::line(path, stroke));
            }
        }
        Mark::Area {
            points,
            base_y,
            role,
        } => area(
            ui,
            origin,
            points,
            *base_y,
            color(t, *role).gamma_multiply(AREA_OPACITY),
        ),
        Mark::Circle { x, y, r, role } => {
            painter.circle_filled(origin + vec2(*x, *y), *r, color(t, *role));
        }
        text @ Mark::Text { .. } => words(ui, t, origin, text),
    }
}

fn words(ui: &Ui, t: &Tokens, origin: Pos2, mark: &Mark) {
    let Mark::Text {
        x,
        y,
        anchor,
        size,
        strong,
        role,
        text,
    } = mark
    else {
        return;
    };
    let align = match anchor {
        Anchor::Start => Align2::LEFT_CENTER,
        Anchor::Middle => Align2::CENTER_CENTER,
        Anchor::End => Align2::RIGHT_CENTER,
    };
    let font = if *strong {
        theme::strong(*size)
    } else {
        theme::body(*size)
    };
    ui.painter()
        .text(origin + vec2(*x, *y), align, text, font, color(t, *role));
}

/// Convex pieces between neighbouring points: egui fills convex shapes only.
fn area(ui: &Ui, origin: Pos2, points: &[Point], base_y: f32, fill: Color32) {
    let base = origin.y + base_y;
    let pieces = points.windows(2).map(|pair| {
        let (a, b) = (at(origin, pair[0]), at(origin, pair[1]));
        let corners = vec![a, b, pos2(b.x, base), pos2(a.x, base)];
        let mut path = PathShape::convex_polygon(corners, fill, Stroke::NONE);
        path.closed = true;
        Shape::Path(path)
    });
    ui.painter().extend(pieces);
}

/// A filled bar may be lighter than text of the same meaning.
fn fill_color(t: &Tokens, role: Role) -> Color32 {
    match role {
        Role::Warning => t.warning_fill,
        other => color(t, other),
    }
}

fn color(t: &Tokens, role: Role) -> Color32 {
    match role {
        Role::Text | Role::Dot => t.text,
        Role::Muted => t.muted,
        Role::Hairline => t.hairline,
        Role::Track => t.raised,
        Role::Accent | Role::Clock | Role::Load => t.accent,
        Role::Stock | Role::Unchanged => t.unchanged,
        Role::Improved | Role::Memory => t.improved,
        Role::Regressed | Role::Temperature => t.regressed,
        Role::Inconclusive | Role::Host => t.inconclusive,
        Role::Warning | Role::Power => t.warning,
        Role::Band => Tokens::tint(t.muted, 0.18),
        Role::Shade => Tokens::tint(t.muted, 0.08),
        Role::DotRing => t.card,
    }
}

/// The hint of the nearest mark within reach; the front one of equals.
fn hint_at(scene: &Scene, pointer: Pos2) -> Option<String> {
    let mut best: Option<(f32, &str)> = None;
    for item in scene.items.iter().rev() {
        let Some(hint) = &item.hint else { continue };
        let distance = distance(&item.mark, pointer);
        if distance <= REACH && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, hint));
        }
    }
    best.map(|(_, hint)| hint.to_owned())
}

fn distance(mark: &Mark, p: Pos2) -> f32 {
    match mark {
        Mark::Rect { x, y, w, h, .. } => {
            Rect::from_min_size(pos2(*x, *y), vec2(*w, *h)).distance_to_pos(p)
        }
        Mark::Circle { x, y, r, .. } => (pos2(*x, *y).distance(p) - r).max(0.0),
        Mark::Polyline { points, .. } | Mark::Area { points, .. } => points
            .windows(2)
            .map(|pair| segment_distance(pair[0], pair[1], p))
            .fold(f32::INFINITY, f32::min),
        Mark::Text { x, y, size, .. } => {
            Rect::from_center_size(pos2(*x, *y), vec2(*size * 4.0, *size)).distance_to_pos(p)
        }
    }
}

fn segment_distance(a: Point, b: Point, p: Pos2) -> f32 {
    let (a, b) = (pos2(a.x, a.y), pos2(b.x, b.y));
    let along = b - a;
    let length = along.length_sq();
    let share = if length > 0.0 {
        ((p - a).dot(along) / length).clamp(0.0, 1.0)
    } else {
        0.0
    };
    (a + along * share).distance(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(mark: Mark, hint: &str) -> Item {
        Item {
            mark,
            hint: Some(hint.to_owned()),
        }
    }

    #[test]
    fn the_nearest_mark_speaks_and_a_far_one_is_silent() {
        let dot = |x| Mark::Circle {
            x,
            y: 10.0,
            r: 2.0,
            role: Role::Dot,
        };
        let scene = Scene {
            width: 100.0,
            height: 20.0,
            items: vec![item(dot(10.0), "first"), item(dot(20.0), "second")],
            ..Scene::default()
        };
        assert_eq!(hint_at(&scene, pos2(13.0, 10.0)).as_deref(), Some("first"));
        assert_eq!(hint_at(&scene, pos2(17.0, 10.0)).as_deref(), Some("second"));
        assert_eq!(hint_at(&scene, pos2(60.0, 10.0)), None);
    }

    #[test]
    fn distance_to_a_line_is_to_its_nearest_point() {
        let p = |x, y| Point { x, y };
        assert!((segment_distance(p(0.0, 0.0), p(10.0, 0.0), pos2(5.0, 3.0)) - 3.0).abs() < 1e-5);
        assert!((segment_distance(p(0.0, 0.0), p(10.0, 0.0), pos2(13.0, 4.0)) - 5.0).abs() < 1e-5);
        assert!((segment_distance(p(2.0, 2.0), p(2.0, 2.0), pos2(2.0, 5.0)) - 3.0).abs() < 1e-5);
    }
}
