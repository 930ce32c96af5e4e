//! Readings of sensors: appended as rows, packed into blocks when their stretch has passed, and read as one.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, Result, Row, Transaction, params};

use crate::domain::telemetry::columns::{GAP_TICKS, Piece, columns, width_ms};
use crate::domain::telemetry::{Metric, Reading, SeriesId, Summary, Windowed};
use crate::domain::types::Timestamp;

use super::packed::{self, PART_MS, Point, STRETCH_MS, stretch};
use super::read::all;
use super::rows::{Columns, unstorable, word};

/// Appends readings, and packs those before the stretch of the last.
pub(super) fn append(tx: &Transaction, session: i64, readings: &[Reading]) -> Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO telemetry (session, at, source, key, value) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for reading in readings {
        let series = &reading.series;
        insert.execute(params![
            session,
            reading.at.0,
            series.source,
            word(&series.metric)?,
            reading.value,
        ])?;
    }
    match readings.last() {
        Some(last) => pack(tx, session, Some(stretch(last.at.0))),
        None => Ok(()),
    }
}

/// Packs a session's rows of every stretch but `open`. A clock that steps back closes the stretch it leaves.
pub(super) fn pack(tx: &Transaction, session: i64, open: Option<i64>) -> Result<()> {
    // An empty range where none is open.
    let from = open.map_or(i64::MAX, |open| open * STRETCH_MS);
    let to = from.saturating_add(STRETCH_MS);
    let range = params![session, from, to];
    let passed = "session = ?1 AND (at < ?2 OR at >= ?3)";
    let sql =
        format!("SELECT at, source, key, value FROM telemetry WHERE {passed} ORDER BY at, id");
    // By the order in which the series came first: they are read back in it.
    let mut series: Vec<(String, String)> = Vec::new();
    let mut blocks: BTreeMap<(i64, usize), Vec<Point>> = BTreeMap::new();
    let mut statement = tx.prepare_cached(&sql)?;
    let mut rows = statement.query(range)?;
    while let Some(row) = rows.next()? {
        let mut c = Columns::of(row);
        let at: i64 = c.get()?;
        let named = (c.get()?, c.get()?);
        let known = series.iter().position(|s| *s == named);
        let index = known.unwrap_or_else(|| {
            series.push(named);
            series.len() - 1
        });
        let block = blocks.entry((stretch(at), index)).or_default();
        block.push((at, c.get()?));
    }
    for ((_, index), points) in &blocks {
        let (source, key) = &series[*index];
        write_block(tx, session, series_id(tx, source, key)?, points)?;
    }
    if !blocks.is_empty() {
        tx.execute(&format!("DELETE FROM telemetry WHERE {passed}"), range)?;
    }
    Ok(())
}

fn series_id(tx: &Transaction, source: &str, key: &str) -> Result<i64> {
    let find = "SELECT id FROM telemetry_series WHERE source = ?1 AND key = ?2";
    let mut find = tx.prepare_cached(find)?;
    if let Some(id) = find.query_row([source, key], |r| r.get(0)).optional()? {
        return Ok(id);
    }
    let insert = "INSERT INTO telemetry_series (source, key) VALUES (?1, ?2)";
    tx.execute(insert, [source, key])?;
    Ok(tx.last_insert_rowid())
}

fn write_block(tx: &Transaction, session: i64, series: i64, points: &[Point]) -> Result<()> {
    let mut numbers = Numbers::default();
    for &(_, value) in points {
        numbers.add(value);
    }
    let (Some(&(from, _)), Some(&(to, latest))) = (points.first(), points.last()) else {
        return Ok(());
    };
    tx.prepare_cached(
        "INSERT INTO telemetry_blocks (session, series, from_at, to_at, readings, lowest, highest, total, latest, parts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?
    .execute(params![
        session,
        series,
        from,
        to,
        numbers.count,
        numbers.min,
        numbers.max,
        numbers.sum,
        latest,
        packed::parts(points),
    ])?;
    let block = tx.last_insert_rowid();
    tx.prepare_cached("INSERT INTO telemetry_data (block, packed) VALUES (?1, ?2)")?
        .execute(params![block, packed::pack(points)])?;
    Ok(())
}

/// Deletes every reading before a moment, but for blocks that reach beyond it. Runs keep what was made of theirs.
pub(super) fn forget(tx: &Transaction, before: Timestamp) -> Result<()> {
    tx.execute("DELETE FROM telemetry_blocks WHERE to_at < ?1", [before.0])?;
    tx.execute("DELETE FROM telemetry WHERE at < ?1", [before.0])?;
    Ok(())
}

/// A block without its readings.
struct Block {
    id: i64,
    series: i64,
    from: i64,
    to: i64,
    numbers: Numbers,
    latest: f64,
}

impl Block {
    fn of(row: &Row) -> Result<Self> {
        let mut c = Columns::of(row);
        Ok(Self {
            id: c.get()?,
            series: c.get()?,
            from: c.get()?,
            to: c.get()?,
            numbers: Numbers {
                count: c.get()?,
                min: c.get()?,
                max: c.get()?,
                sum: c.get()?,
            },
            latest: c.get()?,
        })
    }

    fn points(&self, connection: &Connection) -> Result<Vec<Point>> {
        let sql = "SELECT packed FROM telemetry_data WHERE block = ?1";
        let mut find = connection.prepare_cached(sql)?;
        let n = self.numbers.count as usize;
        find.query_row([self.id], |row| {
            let packed = row.get_ref(0)?.as_blob().map_err(unstorable)?;
            packed::unpack(packed, n, self.from).map_err(unstorable)
        })
    }
}

/// Column of a block's parts, after those of [`Block`].
const PARTS: usize = 9;

macro_rules! blocks {
    ($parts:literal) => {
        concat!(
            "SELECT id, series, from_at, to_at, readings, lowest, highest, total, latest, ",
            $parts,
            " FROM telemetry_blocks
             WHERE session = ?1 AND from_at BETWEEN ?2 AND ?3 AND to_at >= ?4 ORDER BY from_at, series"
        )
    };
}

/// Goes through the blocks of a session that touch a time, in order; in the rows are their parts, where asked for.
fn each_block(
    connection: &Connection,
    session: i64,
    (from, to): (Timestamp, Timestamp),
    with_parts: bool,
    mut work: impl FnMut(Block, &Row) -> Result<()>,
) -> Result<()> {
    // A block is no longer than its stretch. Without parts, the index answers alone.
    let sql = if with_parts {
        blocks!("parts")
    } else {
        blocks!("NULL")
    };
    let earliest = from.0.saturating_sub(STRETCH_MS);
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([session, earliest, to.0, from.0])?;
    while let Some(row) = rows.next()? {
        work(Block::of(row)?, row)?;
    }
    Ok(())
}

/// The series with their numbers; those that only a later Flux knows are left out.
fn known_series(connection: &Connection) -> Result<BTreeMap<i64, SeriesId>> {
    let sql = "SELECT id, source, key FROM telemetry_series";
    let found = all(connection, sql, [], |row| {
        let mut c = Columns::of(row);
        let (id, source) = (c.get()?, c.get()?);
        let metric: Option<Metric> = c.word().ok();
        Ok(metric.map(|metric| (id, SeriesId { source, metric })))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Readings that are not packed yet, in order.
fn loose(
    connection: &Connection,
    session: i64,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Reading>> {
    let sql = "SELECT at, source, key, value FROM telemetry
               WHERE session = ?1 AND at BETWEEN ?2 AND ?3 ORDER BY at, id";
    let found = all(connection, sql, [session, from.0, to.0], |row| {
        let mut c = Columns::of(row);
        let (at, source) = (Timestamp(c.get()?), c.get()?);
        // A key nobody here knows is a later Flux's.
        let metric = c.word().ok();
        let value = c.get()?;
        Ok(metric.map(|metric| Reading {
            series: SeriesId { source, metric },
            at,
            value,
        }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// A session's readings in a time, in order.
pub(super) fn readings(
    connection: &Connection,
    session: i64,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Reading>> {
    let series = known_series(connection)?;
    let mut found = Vec::new();
    each_block(connection, session, (from, to), false, |block, _| {
        let Some(series) = series.get(&block.series) else {
            return Ok(());
        };
        let points = block.points(connection)?.into_iter();
        let inside = points.filter(|(at, _)| (from.0..=to.0).contains(at));
        found.extend(inside.map(|(at, value)| Reading {
            series: series.clone(),
            at: Timestamp(at),
            value,
        }));
        Ok(())
    })?;
    found.extend(loose(connection, session, from, to)?);
    found.sort_by_key(|r| r.at);
    Ok(found)
}

/// When a session's readings begin and end.
pub(super) fn span(
    connection: &Connection,
    session: i64,
) -> Result<Option<(Timestamp, Timestamp)>> {
    let sql = "SELECT min(a), max(b) FROM (
               SELECT min(at) AS a, max(at) AS b FROM telemetry WHERE session = ?1 UNION ALL
               SELECT min(from_at), max(to_at) FROM telemetry_blocks WHERE session = ?1)";
    connection.query_row(sql, [session], |row| {
        let ends: (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        Ok(ends
            .0
            .zip(ends.1)
            .map(|(a, b)| (Timestamp(a), Timestamp(b))))
    })
}

/// Values in numbers.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    count: u32,
    min: f64,
    max: f64,
    sum: f64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: 0.0,
        }
    }
}

impl Numbers {
    fn add(&mut self, value: f64) {
        self.join(Self {
            count: 1,
            min: value,
            max: value,
            sum: value,
        });
    }

    fn join(&mut self, other: Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }
}

/// One series while a window is put together.
#[derive(Default)]
struct Gathered {
    numbers: Numbers,
    /// The last reading.
    last: Option<Point>,
    pieces: Vec<Piece>,
    /// Milliseconds between two readings, at the closest.
    step_ms: Option<i64>,
}

impl Gathered {
    fn points(&mut self, points: impl Iterator<Item = Point>) {
        let (mut ends, mut count) = (None::<(i64, i64)>, 0);
        for (at, value) in points {
            self.numbers.add(value);
            self.pieces.push(Piece {
                at,
                min: value,
                max: value,
            });
            self.reached(at, value);
            ends.get_or_insert((at, at)).1 = at;
            count += 1;
        }
        if let Some((first, last)) = ends {
            self.step(first, last, count);
        }
    }

    fn reached(&mut self, at: i64, value: f64) {
        if self.last.is_none_or(|(last, _)| last <= at) {
            self.last = Some((at, value));
        }
    }

    fn step(&mut self, first: i64, last: i64, count: u32) {
        let steps = i64::from(count) - 1;
        if steps > 0 && last > first {
            let step = (last - first).div_euclid(steps).max(1);
            self.step_ms = Some(self.step_ms.map_or(step, |known| known.min(step)));
        }
    }

    /// A block that lies in the window, without unpacking it.
    fn whole(&mut self, block: &Block, parts: Option<&[u8]>) {
        self.numbers.join(block.numbers);
        self.reached(block.to, block.latest);
        self.step(block.from, block.to, block.numbers.count);
        let piece = |(at, min, max)| Piece { at, min, max };
        match parts {
            Some(parts) => self
                .pieces
                .extend(packed::parts_of(parts, block.from).map(piece)),
            None => self.pieces.push(Piece {
                at: stretch(block.from) * STRETCH_MS,
                min: block.numbers.min,
                max: block.numbers.max,
            }),
        }
    }

    fn windowed(mut self, series: SeriesId, width: i64, detail: Detail) -> Option<Windowed> {
        let (_, last) = self.last?;
        self.pieces.sort_by_key(|p| p.at);
        let gap_ms = GAP_TICKS * self.step_ms.unwrap_or(1) + detail.piece_ms();
        let numbers = self.numbers;
        Some(Windowed {
            series,
            columns: columns(self.pieces.into_iter(), width, gap_ms),
            summary: Summary {
                min: numbers.min,
                mean: numbers.sum / f64::from(numbers.count),
                max: numbers.max,
                last,
            },
        })
    }
}

/// What columns are made of; every kind lies in one column whole, as their widths are multiples of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Readings,
    Parts,
    Blocks,
}

impl Detail {
    /// The least detail that columns of `width` milliseconds need, and the width rounded up to it.
    fn of(width: i64) -> (Self, i64) {
        let up = |to: i64| width.div_euclid(to) * to + if width % to == 0 { 0 } else { to };
        match width {
            w if w < PART_MS => (Self::Readings, width),
            w if w < STRETCH_MS => (Self::Parts, up(PART_MS)),
            _ => (Self::Blocks, up(STRETCH_MS)),
        }
    }

    /// A piece begins up to so much before its first reading, milliseconds.
    const fn piece_ms(self) -> i64 {
        match self {
            Self::Readings => 0,
            Self::Parts => PART_MS,
            Self::Blocks => STRETCH_MS,
        }
    }
}

/// Every series over a time, in `n` columns or fewer, as [`Windowed`].
pub(super) fn window(
    connection: &Connection,
    session: i64,
    from: Timestamp,
    to: Timestamp,
    n: usize,
) -> Result<Vec<Windowed>> {
    let (detail, width) = Detail::of(width_ms(from, to, n));
    let series = known_series(connection)?;
    let mut gathered: BTreeMap<SeriesId, Gathered> = BTreeMap::new();
    let mut by_number: BTreeMap<i64, Gathered> = BTreeMap::new();
    let with_parts = detail == Detail::Parts;
    each_block(connection, session, (from, to), with_parts, |block, row| {
        let into = by_number.entry(block.series).or_default();
        let inside = block.from >= from.0 && block.to <= to.0;
        match detail {
            Detail::Parts if inside => {
                let parts = row.get_ref(PARTS)?.as_blob().map_err(unstorable)?;
                into.whole(&block, Some(parts));
            }
            Detail::Blocks if inside => into.whole(&block, None),
            _ => {
                let points = block.points(connection)?.into_iter();
                into.points(points.filter(|(at, _)| (from.0..=to.0).contains(at)));
            }
        }
        Ok(())
    })?;
    for (number, found) in by_number {
        if let Some(series) = series.get(&number) {
            gathered.insert(series.clone(), found);
        }
    }
    let mut apart: BTreeMap<SeriesId, Vec<Point>> = BTreeMap::new();
    for reading in loose(connection, session, from, to)? {
        let points = apart.entry(reading.series).or_default();
        points.push((reading.at.0, reading.value));
    }
    for (series, points) in apart {
        gathered
            .entry(series)
            .or_default()
            .points(points.into_iter());
    }
    let windowed = |(series, found): (SeriesId, Gathered)| found.windowed(series, width, detail);
    Ok(gathered.into_iter().filter_map(windowed).collect())
}
