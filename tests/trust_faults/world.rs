//! A tune that is disturbed again and again in one data folder, and what must hold after each time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::flux_cli::{Bed, FLASH_WINS, document};
use super::running_tune::{End, ONLY, Running, nothing_survives, result_of};

/// Milliseconds of one repetition: a run then lasts some 25 ms, a session of 19 half a second.
const REPETITION: &str = "sleep_ms_per_rep = 3\n";

/// A stored run, with all its samples in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    id: i64,
    pub session: i64,
    pub seq: i64,
    outcome: String,
    samples: Option<String>,
}

/// Every run of a sound database; none where there is none yet.
pub fn rows(data: &Path) -> Vec<Row> {
    let path = data.join("flux.db");
    if !path.exists() {
        return Vec::new();
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).unwrap();
    let format: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    if format == 0 {
        // Its making was cut short: nothing was promised yet.
        return Vec::new();
    }
    let found: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(found, "ok");
    let strays: i64 = database
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(strays, 0, "rows without what they refer to");
    let mut all = database
        .prepare(
            "SELECT id, session, seq, outcome,
                    (SELECT group_concat(ns) FROM samples WHERE samples.run = runs.id)
             FROM runs ORDER BY id",
        )
        .unwrap();
    let read = all.query_map([], |row| {
        Ok(Row {
            id: row.get(0)?,
            session: row.get(1)?,
            seq: row.get(2)?,
            outcome: row.get(3)?,
            samples: row.get(4)?,
        })
    });
    read.unwrap().map(Result::unwrap).collect()
}

/// The runs of a session, which are numbered without a gap, and the valid ones have their samples.
pub fn of_session(rows: &[Row], session: i64) -> usize {
    let mut own = 0;
    for row in rows.iter().filter(|row| row.session == session) {
        assert_eq!(row.seq, own, "a gap in session {session}");
        assert_eq!(row.outcome == "valid", row.samples.is_some(), "{row:?}");
        own += 1;
    }
    usize::try_from(own).unwrap()
}

/// A bed, what was stored in it, and how often it was disturbed.
pub struct World {
    pub bed: Bed,
    pub random: fastrand::Rng,
    pub injections: usize,
    stored: Vec<Row>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self {
            bed: Bed::new(&(REPETITION.to_owned() + FLASH_WINS)),
            random: fastrand::Rng::with_seed(seed),
            injections: 0,
            stored: Vec::new(),
        }
    }

    /// What the simulated llama-bench does besides, from its next process on.
    pub fn children(&self, acts: &[&str]) {
        let acts = acts
            .iter()
            .map(|act| format!("[[behaviour]]\ndo = {act}\n"));
        let script = REPETITION.to_owned() + FLASH_WINS + &acts.collect::<String>();
        fs::write(self.bed.fake.dir().join("fake-bench.toml"), script).unwrap();
    }

    /// Its data folder as this test reaches it.
    pub fn data(&self) -> PathBuf {
        let data = &self.bed.data;
        self.bed.within.map_or_else(
            || data.clone(),
            |pid| PathBuf::from(format!("/proc/{pid}/root{}", data.display())),
        )
    }

    /// Every run stored.
    fn rows(&self) -> Vec<Row> {
        if self.bed.within.is_none() {
            return rows(&self.bed.data);
        }
        // SQLite would take the name of another name space's file for one of this.
        let copy = tempfile::tempdir_in(self.bed.fake.scratch()).unwrap();
        for name in ["flux.db", "flux.db-wal"] {
            let _ = fs::copy(self.data().join(name), copy.path().join(name));
        }
        rows(copy.path())
    }

    /// Does the history hold a tune that has no result yet?
    fn is_unfinished(&self) -> bool {
        if !self.data().join("flux.db").exists() {
            return false;
        }
        let history = document(&mut self.bed.flux(&["history", "--json"]));
        let newest = &history["sessions"][0];
        !newest.is_null() && newest["state"] != "done"
    }

    /// The tune that goes on, or a new one.
    pub fn command(&self) -> Command {
        if self.is_unfinished() {
            self.bed.flux(&["tune", "--resume", "--json"])
        } else {
            self.bed.tune(ONLY)
        }
    }

    pub fn start(&self) -> Running {
        Running::start(&mut self.command())
    }

    /// What must hold after every disturbance, however it ended.
    pub fn check(&mut self, end: &End) {
        nothing_survives(&self.bed);
        let rows = self.rows();
        assert!(rows.len() >= self.stored.len(), "{}", end.words());
        assert_eq!(rows[..self.stored.len()], self.stored, "changed afterwards");
        let (session, announced) = end.announced();
        if let Some(session) = session {
            let stored = of_session(&rows, session);
            assert!(
                stored >= announced,
                "{stored} stored of session {session}\n{}",
                end.words()
            );
            self.is_told_as_it_is(session, stored, end);
        }
        self.stored = rows;
        self.injections += 1;
    }

    /// The history knows the session and its runs, and says of a Flux that is gone no more than that.
    fn is_told_as_it_is(&self, session: i64, runs: usize, end: &End) {
        let history = document(&mut self.bed.flux(&["history", "--json"]));
        let lines = history["sessions"].as_array().unwrap();
        let line = lines.iter().find(|line| line["id"] == session).unwrap();
        assert_eq!(line["runs"], runs);
        let state = line["state"].as_str();
        let words = end.words();
        match end.status.code() {
            Some(0) => assert_eq!(state, Some("done"), "{words}"),
            Some(130) => assert_eq!(state, Some("cancelled"), "{words}"),
            _ => assert!(!matches!(state, Some("running" | "done")), "{words}"),
        }
    }

    /// What was stored is gone with its database.
    pub fn begins_anew(&mut self) {
        self.stored.clear();
    }

    /// At last nothing is in its way, and it ends as if nothing ever had been.
    pub fn ends_well(&mut self, unbroken: &[Value; 4]) {
        self.children(&[]);
        let result = document(&mut self.command());
        assert_eq!(result_of(&result), *unbroken);
        nothing_survives(&self.bed);
        let rows = self.rows();
        assert_eq!(rows[..self.stored.len()], self.stored, "changed afterwards");
    }
}
