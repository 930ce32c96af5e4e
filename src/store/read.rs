//! Reading back exactly what was stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};
use serde::de::DeserializeOwned;

use crate::domain::types::{
    Fingerprint, ModelInfo, Profile, RawOutput, Run, RunOutcome, RunTelemetry, Runtime, Settings,
    TestEnergy, TestSamples, TestSpec, Timestamp,
};
use crate::ports::{
    Introduction, Measured, NewSession, Notice, RunHead, Session, SessionEnd, StoredRun,
    StoredVerdict,
};

use super::rows::Columns;

/// All rows of a query.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    row: impl FnMut(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    connection
        .prepare_cached(sql)?
        .query_map(params, row)?
        .collect()
}

/// The last remembered scan.
pub(super) fn last_scan(connection: &Connection) -> Result<Option<Fingerprint>> {
    let sql = "SELECT f.hash, f.fields FROM scans s JOIN fingerprints f ON f.hash = s.fingerprint
               ORDER BY s.id DESC LIMIT 1";
    connection.query_row(sql, [], fingerprint_row).optional()
}

/// A fingerprint by its hash.
pub(super) fn fingerprint(connection: &Connection, hash: &str) -> Result<Option<Fingerprint>> {
    let sql = "SELECT hash, fields FROM fingerprints WHERE hash = ?1";
    connection
        .query_row(sql, [hash], fingerprint_row)
        .optional()
}

fn fingerprint_row(row: &Row) -> Result<Fingerprint> {
    let mut c = Columns::of(row);
    Ok(Fingerprint {
        hash: c.get()?,
        fields: c.json()?,
    })
}

/// One session with its last end.
pub(super) fn session(connection: &Connection, id: i64) -> Result<Option<Session>> {
    let sql = "SELECT s.kind, s.started_at, f.hash, f.fields, h.document, r.document, m.document, s.goal, s.config,
               s.simulated, s.flux_version
               FROM sessions s JOIN fingerprints f ON f.hash = s.fingerprint JOIN machines h ON h.id = s.machine
               JOIN runtimes r ON r.id = s.runtime JOIN models m ON m.id = s.model WHERE s.id = ?1";
    let begun = connection
        .query_row(sql, [id], |row| {
            let mut c = Columns::of(row);
            Ok(NewSession {
                kind: c.word()?,
                started_at: Timestamp(c.get()?),
                fingerprint: Fingerprint {
                    hash: c.get()?,
                    fields: c.json()?,
                },
                machine: c.json()?,
                runtime: c.json()?,
                model: c.json()?,
                goal: c.word()?,
                config: c.json()?,
                simulated: c.get()?,
                flux_version: c.get()?,
            })
        })
        .optional()?;
    let Some(begun) = begun else { return Ok(None) };
    let sql = "SELECT ended_at, state, verdict, result FROM session_ends
               WHERE id = (SELECT max(id) FROM session_ends WHERE session = ?1) AND state <> 'resumed'";
    let end = connection
        .query_row(sql, [id], |row| {
            let mut c = Columns::of(row);
            Ok(SessionEnd {
                ended_at: Timestamp(c.get()?),
                state: c.word()?,
                verdict: c.word_or_none()?,
                result: c.json()?,
            })
        })
        .optional()?;
    Ok(Some(Session { id, begun, end }))
}

/// Columns of a run's head; what its process left behind comes after them in a row, and is not touched.
macro_rules! head_columns {
    () => {
        "id, seq, planned, started_at, wall_secs, outcome_detail, buffers"
    };
}

type Sensors = Option<Box<RunTelemetry>>;

/// Columns of what a run's process left behind.
macro_rules! raw_columns {
    () => {
        "argv, env, stdout, stderr, exit_code, signal"
    };
}

/// A session's runs in order.
pub(super) fn runs(connection: &Connection, session: i64) -> Result<Vec<StoredRun>> {
    let sql = concat!(
        "SELECT ",
        head_columns!(),
        ", ",
        raw_columns!(),
        " FROM runs WHERE session = ?1 ORDER BY seq"
    );
    all(connection, sql, [session], |row| run(connection, row))
}

/// The same without what their processes left behind.
pub(super) fn run_heads(connection: &Connection, session: i64) -> Result<Vec<RunHead>> {
    let sql = concat!(
        "SELECT ",
        head_columns!(),
        " FROM runs WHERE session = ?1 ORDER BY seq"
    );
    all(connection, sql, [session], |row| {
        head(connection, &mut Columns::of(row))
    })
}

/// The same of runs that set nothing but a dimension, or nothing at all.
pub(super) fn run_heads_with(
    connection: &Connection,
    session: i64,
    dimension: &str,
) -> Result<Vec<RunHead>> {
    let sql = concat!(
        "SELECT ",
        head_columns!(),
        " FROM runs WHERE session = ?1
          AND NOT EXISTS (SELECT 1 FROM json_each(planned, '$.settings') WHERE key <> ?2) ORDER BY seq"
    );
    all(connection, sql, params![session, dimension], |row| {
        head(connection, &mut Columns::of(row))
    })
}

/// What a session was asked.
pub(super) fn config(connection: &Connection, session: i64) -> Result<Option<serde_json::Value>> {
    let sql = "SELECT config FROM sessions WHERE id = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([session], |row| Columns::of(row).json())
        .optional()
}

/// What a run's process left behind.
pub(super) fn raw_output(connection: &Connection, id: i64) -> Result<Option<RawOutput>> {
    let sql = concat!("SELECT ", raw_columns!(), " FROM runs WHERE id = ?1");
    connection
        .query_row(sql, [id], |row| raw(&mut Columns::of(row)))
        .optional()
}

fn run(connection: &Connection, row: &Row) -> Result<StoredRun> {
    let mut c = Columns::of(row);
    let head = head(connection, &mut c)?;
    Ok(StoredRun {
        id: head.id,
        seq: head.seq,
        planned: head.planned,
        run: Run {
            started_at: head.started_at,
            wall_secs: head.wall_secs,
            outcome: head.outcome,
            buffers: head.buffers,
            raw: raw(&mut c)?,
            telemetry: head.telemetry,
        },
    })
}

fn head(connection: &Connection, c: &mut Columns) -> Result<RunHead> {
    let id = c.get()?;
    let (telemetry, energy) = sensors(connection, id)?;
    Ok(RunHead {
        id,
        seq: c.get()?,
        planned: c.json()?,
        started_at: Timestamp(c.get()?),
        wall_secs: c.get()?,
        outcome: outcome(connection, id, energy, c)?,
        buffers: c.json()?,
        telemetry,
    })
}

fn raw(c: &mut Columns) -> Result<RawOutput> {
    Ok(RawOutput {
        argv: c.json()?,
        env: c.json()?,
        stdout: c.get()?,
        stderr: c.get()?,
        exit_code: c.get()?,
        signal: c.get()?,
    })
}

/// What the sensors said around a run, and the energy of its tests.
fn sensors(connection: &Connection, run: i64) -> Result<(Sensors, Vec<Option<TestEnergy>>)> {
    let sql = "SELECT document, energy FROM run_telemetry WHERE run = ?1";
    let mut query = connection.prepare_cached(sql)?;
    let found = query.query_row([run], |row| {
        let mut c = Columns::of(row);
        Ok((Some(c.json()?), c.json()?))
    });
    Ok(found.optional()?.unwrap_or_default())
}

fn outcome(
    connection: &Connection,
    run: i64,
    energy: Vec<Option<TestEnergy>>,
    columns: &mut Columns,
) -> Result<RunOutcome> {
    if let Some(other) = columns.json_or_none()? {
        return Ok(other);
    }
    let sql = "SELECT position, n_prompt, n_gen, n_depth, record FROM run_tests WHERE run = ?1 ORDER BY position";
    let tests = all(connection, sql, [run], |row| {
        let mut c = Columns::of(row);
        let position: i64 = c.get()?;
        Ok(TestSamples {
            test: TestSpec {
                n_prompt: c.get()?,
                n_gen: c.get()?,
                n_depth: c.get()?,
            },
            samples_ns: samples(connection, run, position)?,
            record: c.json()?,
            energy: None,
        })
    })?;
    let known = energy.into_iter().chain(std::iter::repeat(None));
    let with = |(test, energy)| TestSamples { energy, ..test };
    let tests = tests.into_iter().zip(known).map(with).collect();
    Ok(RunOutcome::Valid { tests })
}

fn samples(connection: &Connection, run: i64, position: i64) -> Result<Vec<u64>> {
    let sql = "SELECT ns FROM samples WHERE run = ?1 AND position = ?2 ORDER BY repetition";
    all(connection, sql, [run, position], |row| {
        Columns::of(row).count()
    })
}

/// A session's notices in order.
pub(super) fn notices(connection: &Connection, session: i64) -> Result<Vec<Notice>> {
    let sql = "SELECT level, code, text FROM notices WHERE session = ?1 ORDER BY id";
    all(connection, sql, [session], |row| {
        let mut c = Columns::of(row);
        Ok(Notice {
            level: c.word()?,
            code: c.get()?,
            text: c.get()?,
        })
    })
}

/// A session's judgements in order.
pub(super) fn verdicts(connection: &Connection, session: i64) -> Result<Vec<StoredVerdict>> {
    let sql = "SELECT v.id, v.session, a.settings, v.verdict, v.detail FROM verdicts v JOIN arms a ON a.id = v.arm
               WHERE v.session = ?1 ORDER BY v.id";
    all(connection, sql, [session], verdict_row)
}

/// The judgement that confirmed a profile.
pub(super) fn confirmation_of(
    connection: &Connection,
    profile: i64,
) -> Result<Option<StoredVerdict>> {
    let sql = "SELECT v.id, v.session, a.settings, v.verdict, v.detail FROM profiles p
               JOIN verdicts v ON v.id = p.verdict JOIN arms a ON a.id = v.arm WHERE p.id = ?1";
    connection.query_row(sql, [profile], verdict_row).optional()
}

fn verdict_row(row: &Row) -> Result<StoredVerdict> {
    let mut c = Columns::of(row);
    Ok(StoredVerdict {
        id: c.get()?,
        session: c.get()?,
        settings: c.json()?,
        verdict: c.word()?,
        detail: c.json()?,
    })
}

/// Profiles, newest first, without those of deleted sessions.
pub(super) fn profiles(connection: &Connection) -> Result<Vec<Profile>> {
    let sql = "SELECT id, session, fingerprint, runtime_digest, model_digest, goal, bench, server, created_at,
               simulated FROM profiles WHERE session NOT IN (SELECT session FROM deleted_sessions) ORDER BY id DESC";
    all(connection, sql, [], |row| {
        let mut c = Columns::of(row);
        let id = c.get()?;
        Ok(Profile {
            id,
            session: c.get()?,
            fingerprint: c.get()?,
            runtime_digest: c.get()?,
            model_digest: c.get()?,
            goal: c.word()?,
            settings: settings(connection, id)?,
            bench: c.json()?,
            server: c.json()?,
            created_at: Timestamp(c.get()?),
            simulated: c.get()?,
        })
    })
}

fn settings(connection: &Connection, profile: i64) -> Result<Settings> {
    let sql = "SELECT dimension, value FROM profile_settings WHERE profile = ?1";
    let pairs = all(connection, sql, [profile], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(Settings(pairs.into_iter().collect()))
}

/// Builds and models of the sessions that saved a profile. Many sessions share a document: each is read once.
pub(super) fn measured_with(connection: &Connection) -> Result<BTreeMap<i64, Measured>> {
    let runtimes: BTreeMap<i64, Arc<Runtime>> = documents(connection, "runtime")?;
    let models: BTreeMap<i64, Arc<ModelInfo>> = documents(connection, "model")?;
    let sql = "SELECT DISTINCT s.id, s.runtime, s.model FROM profiles p JOIN sessions s ON s.id = p.session";
    let sessions = all(connection, sql, [], |row| {
        let mut c = Columns::of(row);
        Ok((c.get()?, c.get()?, c.get()?))
    })?;
    let measured = sessions
        .into_iter()
        .filter_map(|(session, runtime, model)| {
            let (runtime, model) = (runtimes.get(&runtime)?.clone(), models.get(&model)?.clone());
            Some((session, Measured { runtime, model }))
        });
    Ok(measured.collect())
}

/// Documents of the builds, or of the models, of those sessions.
fn documents<T: DeserializeOwned>(
    connection: &Connection,
    of: &str,
) -> Result<BTreeMap<i64, Arc<T>>> {
    let sql = format!(
        "SELECT id, document FROM {of}s
         WHERE id IN (SELECT s.{of} FROM profiles p JOIN sessions s ON s.id = p.session)"
    );
    let found = all(connection, &sql, [], |row| {
        let mut c = Columns::of(row);
        Ok((c.get()?, Arc::new(c.json()?)))
    })?;
    Ok(found.into_iter().collect())
}

/// Why each setting of a profile is there, by dimension.
pub(super) fn introductions(connection: &Connection, profile: i64) -> Result<Vec<Introduction>> {
    let sql = concat!(
        "SELECT ",
        head_columns!(),
        ", ",
        raw_columns!(),
        ", dimension, value FROM profile_settings JOIN runs ON id = introduced_by
          WHERE profile = ?1 ORDER BY dimension"
    );
    all(connection, sql, [profile], |row| {
        Ok(Introduction {
            run: run(connection, row)?,
            dimension: row.get("dimension")?,
            value: row.get("value")?,
        })
    })
}
