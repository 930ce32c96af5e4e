//! The one writer thread, and what it appends. Nothing here changes a row (design section 11).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use rusqlite::{Connection, Error, ErrorCode, OptionalExtension, Result, Transaction, params};

use crate::domain::types::{
    Fingerprint, PlannedRun, Run, RunOutcome, Settings, TestEnergy, TestSamples, Timestamp, Verdict,
};
use crate::ports::{NewProfile, NewSession, Notice, SessionEnd};

use super::open::BUSY;
use super::rows::{json, whole, word};

/// Writes that may wait for the thread; a caller waits for its own anyway.
const QUEUE: usize = 16;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The thread that owns the writing connection. Dropping it closes the database.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(mut connection: Connection) -> io::Result<Self> {
        let (jobs, queue) = bounded::<Job>(QUEUE);
        let thread = thread::Builder::new()
            .name("flux-store".to_owned())
            .spawn(move || {
                for job in queue {
                    job(&mut connection);
                }
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Runs `work` in a transaction and returns when it is on disk; `None` where it panicked.
    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction) -> Result<T> + Send + 'static,
    ) -> Option<Result<T>> {
        self.with(move |connection| {
            let tx = connection.transaction()?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        })
    }

    /// Runs `work` on the connection itself.
    pub(super) fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Option<Result<T>> {
        let (reply, answer) = bounded(1);
        let job: Job = Box::new(move |connection| {
            // A panic is rolled back and fails its caller alone: without a reply there is no answer.
            let Ok(done) = catch_unwind(AssertUnwindSafe(|| work(connection))) else {
                return;
            };
            // Who has kept the database locked for so long is not waited for once more by every write that follows.
            let patience = if is_held(&done) { Duration::ZERO } else { BUSY };
            let _ = connection.busy_timeout(patience);
            // Nobody listens when the caller's thread has died; what was committed stands.
            let _ = reply.send(done);
        });
        self.jobs.as_ref()?.send(job).ok()?;
        answer.recv().ok()
    }
}

fn is_held<T>(done: &Result<T>) -> bool {
    let code = done.as_ref().err().and_then(Error::sqlite_error_code);
    code == Some(ErrorCode::DatabaseBusy)
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to close.
            let _ = thread.join();
        }
    }
}

/// Begins a session.
pub(super) fn session(tx: &Transaction, s: &NewSession) -> Result<i64> {
    fingerprint(tx, &s.fingerprint)?;
    let machine = document(
        tx,
        "machines",
        &[("fingerprint", &s.fingerprint.hash)],
        &json(&s.machine)?,
    )?;
    let runtime = document(
        tx,
        "runtimes",
        &[("digest", &s.runtime.digest), ("name", &s.runtime.name)],
        &json(&s.runtime)?,
    )?;
    let model = document(
        tx,
        "models",
        &[("digest", &s.model.digest), ("name", &s.model.name)],
        &json(&s.model)?,
    )?;
    tx.execute(
        "INSERT INTO sessions (kind, started_at, fingerprint, machine, runtime, model, goal, config, simulated,
         flux_version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            word(&s.kind)?,
            s.started_at.0,
            s.fingerprint.hash,
            machine,
            runtime,
            model,
            word(&s.goal)?,
            json(&s.config)?,
            s.simulated,
            s.flux_version,
        ],
    )?;
    Ok(tx.last_insert_rowid())
}

/// The row of a document, made where there is none yet; `keys` are its other columns.
fn document(
    tx: &Transaction,
    table: &str,
    keys: &[(&str, &String)],
    document: &String,
) -> Result<i64> {
    let columns: Vec<&str> = keys.iter().map(|(name, _)| *name).collect();
    let mut values: Vec<&String> = keys.iter().map(|(_, value)| *value).collect();
    values.push(document);
    let same: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(i, name)| format!("{name} = ?{}", i + 1))
        .collect();
    let last = values.len();
    let find = format!(
        "SELECT id FROM {table} WHERE {} AND document = ?{last}",
        same.join(" AND ")
    );
    let found = tx
        .query_row(&find, rusqlite::params_from_iter(&values), |row| row.get(0))
        .optional()?;
    if let Some(id) = found {
        return Ok(id);
    }
    let marks = vec!["?"; last].join(", ");
    let insert = format!(
        "INSERT INTO {table} ({}, document) VALUES ({marks})",
        columns.join(", ")
    );
    tx.execute(&insert, rusqlite::params_from_iter(&values))?;
    Ok(tx.last_insert_rowid())
}

/// The fingerprint's row, made where there is none yet.
pub(super) fn fingerprint(tx: &Transaction, fingerprint: &Fingerprint) -> Result<()> {
    tx.execute(
        "INSERT INTO fingerprints (hash, fields) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![fingerprint.hash, json(&fingerprint.fields)?],
    )?;
    Ok(())
}

fn arm(tx: &Transaction, session: i64, settings: &Settings) -> Result<i64> {
    let settings = json(settings)?;
    tx.execute(
        "INSERT INTO arms (session, settings) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        params![session, settings],
    )?;
    tx.query_row(
        "SELECT id FROM arms WHERE session = ?1 AND settings = ?2",
        params![session, settings],
        |row| row.get(0),
    )
}

/// Appends a run with its samples.
pub(super) fn run(
    tx: &Transaction,
    session: i64,
    seq: u32,
    planned: &PlannedRun,
    run: &Run,
) -> Result<i64> {
    let arm = arm(tx, session, &planned.settings)?;
    let (outcome, detail, tests) = match &run.outcome {
        RunOutcome::Valid { tests } => ("valid", None, tests.as_slice()),
        RunOutcome::StoppedEarly { .. } => ("stopped-early", Some(json(&run.outcome)?), &[][..]),
        RunOutcome::Failed { .. } => ("failed", Some(json(&run.outcome)?), &[][..]),
        RunOutcome::Cancelled => ("cancelled", Some(json(&run.outcome)?), &[][..]),
    };
    tx.execute(
        "INSERT INTO runs (session, seq, arm, planned, started_at, wall_secs, outcome, outcome_detail, buffers,
         argv, env, stdout, stderr, exit_code, signal)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        params![
            session,
            seq,
            arm,
            json(planned)?,
            run.started_at.0,
            run.wall_secs,
            outcome,
            detail,
            json(&run.buffers)?,
            json(&run.raw.argv)?,
            json(&run.raw.env)?,
            run.raw.stdout,
            run.raw.stderr,
            run.raw.exit_code,
            run.raw.signal,
        ],
    )?;
    let id = tx.last_insert_rowid();
    for (position, test) in tests.iter().enumerate() {
        samples(tx, id, whole(position as u64)?, test)?;
    }
    if let Some(telemetry) = &run.telemetry {
        let energy: Vec<Option<TestEnergy>> = tests.iter().map(|t| t.energy.clone()).collect();
        tx.execute(
            "INSERT INTO run_telemetry (run, document, energy) VALUES (?1, ?2, ?3)",
            params![id, json(telemetry)?, json(&energy)?],
        )?;
    }
    Ok(id)
}

fn samples(tx: &Transaction, run: i64, position: i64, of: &TestSamples) -> Result<()> {
    let test = &of.test;
    tx.execute(
        "INSERT INTO run_tests (run, position, test, n_prompt, n_gen, n_depth, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            run,
            position,
            test.to_string(),
            test.n_prompt,
            test.n_gen,
            test.n_depth,
            json(&of.record)?,
        ],
    )?;
    let mut insert = tx.prepare_cached(
        "INSERT INTO samples (run, position, repetition, ns) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (repetition, &ns) in of.samples_ns.iter().enumerate() {
        insert.execute(params![
            run,
            position,
            whole(repetition as u64)?,
            whole(ns)?
        ])?;
    }
    Ok(())
}

/// Appends a notice.
pub(super) fn notice(tx: &Transaction, session: i64, notice: &Notice) -> Result<()> {
    tx.execute(
        "INSERT INTO notices (session, level, code, text) VALUES (?1, ?2, ?3, ?4)",
        params![session, word(&notice.level)?, notice.code, notice.text],
    )?;
    Ok(())
}

/// Appends a judgement.
pub(super) fn verdict(
    tx: &Transaction,
    session: i64,
    settings: &Settings,
    verdict: Verdict,
    detail: &serde_json::Value,
) -> Result<i64> {
    let arm = arm(tx, session, settings)?;
    tx.execute(
        "INSERT INTO verdicts (session, arm, verdict, detail) VALUES (?1, ?2, ?3, ?4)",
        params![session, arm, word(&verdict)?, json(detail)?],
    )?;
    Ok(tx.last_insert_rowid())
}

/// Stores a profile; a setting that no run introduced is refused.
pub(super) fn profile(tx: &Transaction, new: &NewProfile) -> Result<i64> {
    let p = &new.profile;
    tx.execute(
        "INSERT INTO profiles (session, fingerprint, runtime_digest, model_digest, goal, bench, server, created_at,
         simulated, verdict) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            p.session,
            p.fingerprint,
            p.runtime_digest,
            p.model_digest,
            word(&p.goal)?,
            json(&p.bench)?,
            json(&p.server)?,
            p.created_at.0,
            p.simulated,
            new.verdict_id,
        ],
    )?;
    let id = tx.last_insert_rowid();
    for (dimension, value) in &p.settings.0 {
        let introduced_by = new.introduced_by.iter().find(|(d, _)| d == dimension);
        let (_, run) = introduced_by.ok_or_else(|| {
            Error::ToSqlConversionFailure(format!("no run introduced {dimension}").into())
        })?;
        tx.execute(
            "INSERT INTO profile_settings (profile, dimension, value, introduced_by) VALUES (?1, ?2, ?3, ?4)",
            params![id, dimension, value, run],
        )?;
    }
    Ok(id)
}

/// Ends a session, once more where it was resumed.
pub(super) fn end(tx: &Transaction, session: i64, end: &SessionEnd) -> Result<()> {
    super::telemetry::pack(tx, session, None)?;
    tx.execute(
        "INSERT INTO session_ends (session, ended_at, state, verdict, result) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            session,
            end.ended_at.0,
            word(&end.state)?,
            end.verdict.as_ref().map(word).transpose()?,
            json(&end.result)?,
        ],
    )?;
    Ok(())
}

/// Opens a session again, where it had ended; whether it had.
pub(super) fn resume(tx: &Transaction, session: i64, at: Timestamp) -> Result<bool> {
    let opened = tx.execute(
        "INSERT INTO session_ends (session, ended_at, state, result)
         SELECT session, ?2, 'resumed', 'null' FROM session_ends
         WHERE id = (SELECT max(id) FROM session_ends WHERE session = ?1) AND state <> 'resumed'",
        params![session, at.0],
    )?;
    Ok(opened > 0)
}

/// Remembers a scan.
pub(super) fn scan(tx: &Transaction, at: Timestamp, found: &Fingerprint) -> Result<()> {
    fingerprint(tx, found)?;
    tx.execute(
        "INSERT INTO scans (at, fingerprint) VALUES (?1, ?2)",
        params![at.0, found.hash],
    )?;
    Ok(())
}

/// Marks a session as deleted or restored.
pub(super) fn mark(tx: &Transaction, session: i64, deleted: bool, at: Timestamp) -> Result<()> {
    tx.execute(
        "INSERT INTO session_marks (session, at, deleted) VALUES (?1, ?2, ?3)",
        params![session, at.0, deleted],
    )?;
    Ok(())
}
