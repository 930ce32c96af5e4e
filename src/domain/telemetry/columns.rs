//! Readings cut down to what a chart can show, without losing a peak.

use std::collections::BTreeMap;

use crate::domain::types::Timestamp;

use super::{SeriesId, Summary};

/// Ticks after which readings that did not come are a gap: one or two are lost to a busy machine.
pub const GAP_TICKS: i64 = 4;

/// What a chart draws in one column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Middle of the column.
    pub t: Timestamp,
    /// Lowest value in it.
    pub min: f64,
    /// Highest value in it.
    pub max: f64,
    /// Readings went on from the column before: a line may be drawn from there. Without it there is a gap.
    pub joined: bool,
}

/// One series over a time, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Windowed {
    /// Series.
    pub series: SeriesId,
    /// Its columns; those without readings are left out.
    pub columns: Vec<Column>,
    /// The time in numbers.
    pub summary: Summary,
}

/// One reading, or several that lie in one column together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece {
    /// When it begins, milliseconds since the epoch.
    pub at: i64,
    /// Lowest value.
    pub min: f64,
    /// Highest value.
    pub max: f64,
}

/// Width of `n` columns over a time, milliseconds. Rounded up: a little wider rather than one too many.
pub fn width_ms(from: Timestamp, to: Timestamp, n: usize) -> i64 {
    let span = to.0.saturating_sub(from.0).max(0).unsigned_abs();
    span.div_ceil(n.max(1) as u64).max(1).cast_signed()
}

/// Pieces in columns of `width` milliseconds on a fixed grid: columns do not flicker as a window moves along. Pieces
/// further apart than `gap_ms` are not joined. Times may repeat or step back, as a clock that is set does.
pub fn columns(pieces: impl Iterator<Item = Piece>, width: i64, gap_ms: i64) -> Vec<Column> {
    let mut columns: BTreeMap<i64, Column> = BTreeMap::new();
    // Kept beside the others while it grows: most pieces fall into the column of the one before.
    let mut growing: Option<(i64, Column)> = None;
    let mut before: Option<i64> = None;
    for piece in pieces {
        let joined = before.is_some_and(|before| piece.at.saturating_sub(before) <= gap_ms);
        before = Some(piece.at);
        match &mut growing {
            Some((start, column)) if (0..width).contains(&(piece.at - *start)) => {
                widen(column, piece.min, piece.max);
            }
            other => {
                let start = piece.at - piece.at.rem_euclid(width);
                let fresh = Column {
                    t: Timestamp(start + width / 2),
                    min: piece.min,
                    max: piece.max,
                    joined,
                };
                put(&mut columns, other.replace((start, fresh)));
            }
        }
    }
    put(&mut columns, growing);
    columns.into_values().collect()
}

fn put(columns: &mut BTreeMap<i64, Column>, grown: Option<(i64, Column)>) {
    if let Some((start, column)) = grown {
        columns
            .entry(start)
            .and_modify(|c| widen(c, column.min, column.max))
            .or_insert(column);
    }
}

fn widen(column: &mut Column, min: f64, max: f64) {
    column.min = column.min.min(min);
    column.max = column.max.max(max);
}
