//! Charts as pure data: a scene of marks in points, painted by the app and by the report from the same description.
//!
//! Widths are the caller's; heights are the builder's. Colours are roles, and every scene carries its numbers as a table.

mod axis;
mod bars;
mod curves;
mod growth;
mod interval;
mod lines;
mod parts;
mod ranking;
mod samples;
mod scatter;
mod scene;
mod sheet;
mod strip;
mod svg;
mod swarm;

pub use axis::{Axis, Digits};
pub use bars::{Bars, Heap, Segment};
pub use curves::{Curve, Curves};
pub use growth::{Growth, Step as GrowthStep, tokens_words};
pub use interval::{Intervals, Row as IntervalRow};
pub use lines::{Column, Lines, Shade};
pub use ranking::{Kind, Ranked, Ranking, Row as RankingRow};
pub use samples::{Row as SampleRow, Run, Samples};
pub use scatter::{Dot as ScatterDot, Scatter};
pub use scene::{
    AREA_OPACITY, Align, Anchor, BODY, CAPTION, Item, Mark, NARROWEST, Point, Role, Scene, Table,
    text_width_estimate, truncated,
};
pub use sheet::{Panel, Sheet};
pub use strip::{Cell, CellState, Strip};
pub use svg::{escaped, image, svg};
