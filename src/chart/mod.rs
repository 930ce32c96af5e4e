//! Charts as pure data: a scene of marks in points, painted by the app and by the report from the same description.
//!
//! Widths are the caller's; heights are the builder's. Colours are roles, and every scene carries its numbers as a table.

mod axis;
mod ranking;
mod scene;
mod strip;
mod swarm;

pub use axis::{Axis, Digits};
pub use ranking::{Kind, Ranking, Row as RankingRow};
pub use scene::{
    AREA_OPACITY, Align, Anchor, BODY, CAPTION, Item, Mark, NARROWEST, Point, Role, Scene, Table,
    text_width_estimate, truncated,
};
pub use strip::{Cell, CellState, Strip};
