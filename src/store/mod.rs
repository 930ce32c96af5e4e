//! Evidence on disk (design section 11): an append-only `SQLite` database, written by one thread, read beside it.
//! A call returns when its transaction is on the medium, so a killed Flux loses nothing it has announced.

mod error;
mod history;
mod imports;
mod lock;
mod open;
mod packed;
mod place;
mod placements;
mod read;
mod room;
mod rows;
mod telemetry;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::{Connection, Transaction};

use crate::domain::handover::SharedProfile;
use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::telemetry::{Reading, Windowed};
use crate::domain::types::{
    Fingerprint, PlannedRun, Profile, RawOutput, Run, Settings, Timestamp, Verdict,
};
use crate::ports::{
    Erasable, Holdings, ImportedProfile, Introduction, Measured, Measuring, NewPlacement,
    NewProfile, NewSession, Notice, PortError, PortResult, RunHead, Session, SessionEnd,
    SessionFilter, SessionPage, Store, StoredFit, StoredPlacement, StoredRun, StoredVerdict,
};

use error::{moved, sql_error};
use place::Place;
use write::Writer;

pub use lock::MeasureLock;

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Measuring: the whole database is checked, and a damaged one set aside. Take a [`MeasureLock`] per job.
    Measure,
    /// Looking (`history`, `show`, `scan`): opens at once, repairs nothing, and still reads what is there when the
    /// folder cannot be written; calls that append fail then, otherwise they work.
    Look,
}

/// What opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The database.
    pub path: PathBuf,
    /// Things worth saying: a damaged database was set aside, nothing can be remembered.
    pub notices: Vec<Notice>,
}

/// The store in `<data folder>/flux.db`.
pub struct SqliteStore {
    opened: Opened,
    place: Place,
    // Before the writer: the connection that closes last tidies the log away, and a reader cannot.
    reader: Mutex<Connection>,
    writer: Result<Writer, PortError>,
}

impl SqliteStore {
    /// Opens the database of `data_dir`, making folder and database where they are missing.
    ///
    /// # Errors
    /// It was made by a newer Flux (it is left untouched); it is damaged, and `access` is to look; another program
    /// holds it; with [`Access::Measure`], the folder cannot be written or the disk is full.
    pub fn open(data_dir: &Path, access: Access) -> PortResult<Self> {
        let found = open::open(data_dir, access)?;
        let path = found.path;
        let writer = match found.writer {
            Ok(connection) => Ok(Writer::start(connection)
                .map_err(|e| PortError::caused("the database's thread cannot be started", &e))?),
            Err(why) => Err(why),
        };
        Ok(Self {
            place: Place::of(&path, writer.is_ok()),
            opened: Opened {
                path,
                notices: found.notices,
            },
            reader: Mutex::new(found.reader),
            writer,
        })
    }

    /// Is there a database in this folder?
    pub fn is_in(data_dir: &Path) -> bool {
        data_dir.join(open::FILE).exists()
    }

    /// What opening found.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction) -> rusqlite::Result<T> + Send + 'static,
    ) -> PortResult<T> {
        self.written(|writer| writer.write(work))
    }

    fn written<T>(
        &self,
        work: impl FnOnce(&Writer) -> Option<rusqlite::Result<T>>,
    ) -> PortResult<T> {
        let path = &self.opened.path;
        let writer = self.writer.as_ref().map_err(Clone::clone)?;
        match work(writer) {
            Some(done) => self.settled(done, "written"),
            None => Err(PortError::new(format!(
                "Flux hit a bug while it stored something, which was not stored: {}",
                path.display()
            ))),
        }
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> PortResult<T> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // One transaction: all parts of an answer are of the same moment.
        let answer = reader.unchecked_transaction().and_then(|tx| work(&tx));
        self.settled(answer, "read")
    }

    /// What came of an operation, unless it was done on files that are not the database any more.
    fn settled<T>(&self, done: rusqlite::Result<T>, doing: &str) -> PortResult<T> {
        let path = &self.opened.path;
        if !self.place.is_kept() {
            return Err(moved(path));
        }
        done.map_err(|e| sql_error(doing, path, &e))
    }
}

impl Store for SqliteStore {
    fn begin_measuring(&self) -> PortResult<Measuring> {
        // A store that cannot be written says so before anything is measured.
        self.writer.as_ref().map_err(Clone::clone)?;
        let data_dir = self.opened.path.parent().unwrap_or(Path::new("."));
        Ok(Measuring(Box::new(MeasureLock::acquire(data_dir)?)))
    }

    fn is_measured(&self) -> bool {
        let data_dir = self.opened.path.parent();
        data_dir.is_some_and(lock::is_held)
    }

    fn begin_session(&self, session: &NewSession) -> PortResult<i64> {
        let session = session.clone();
        self.write(move |tx| write::session(tx, &session))
    }

    fn append_run(
        &self,
        session: i64,
        seq: u32,
        planned: &PlannedRun,
        run: &Run,
    ) -> PortResult<i64> {
        let (planned, run) = (planned.clone(), run.clone());
        self.write(move |tx| write::run(tx, session, seq, &planned, &run))
    }

    fn append_notice(&self, session: i64, notice: &Notice) -> PortResult<()> {
        let notice = notice.clone();
        self.write(move |tx| write::notice(tx, session, &notice))
    }

    fn append_verdict(
        &self,
        session: i64,
        settings: &Settings,
        verdict: Verdict,
        detail: &serde_json::Value,
    ) -> PortResult<i64> {
        let (settings, detail) = (settings.clone(), detail.clone());
        self.write(move |tx| write::verdict(tx, session, &settings, verdict, &detail))
    }

    fn save_profile(&self, profile: &NewProfile) -> PortResult<i64> {
        let profile = profile.clone();
        self.write(move |tx| write::profile(tx, &profile))
    }

    fn end_session(&self, session: i64, end: &SessionEnd) -> PortResult<()> {
        let end = end.clone();
        self.write(move |tx| write::end(tx, session, &end))
    }

    fn resume_session(&self, session: i64, at: Timestamp) -> PortResult<bool> {
        self.write(move |tx| write::resume(tx, session, at))
    }

    fn remember_scan(&self, at: Timestamp, fingerprint: &Fingerprint) -> PortResult<()> {
        let fingerprint = fingerprint.clone();
        self.write(move |tx| write::scan(tx, at, &fingerprint))
    }

    fn set_deleted(&self, session: i64, deleted: bool, at: Timestamp) -> PortResult<()> {
        self.write(move |tx| write::mark(tx, session, deleted, at))
    }

    fn append_telemetry(&self, session: i64, readings: &[Reading]) -> PortResult<()> {
        let readings = readings.to_vec();
        self.write(move |tx| telemetry::append(tx, session, &readings))
    }

    fn forget_telemetry(&self, before: Timestamp) -> PortResult<()> {
        self.write(move |tx| telemetry::forget(tx, before))
    }

    fn compact(&self, before: Timestamp) -> PortResult<Erasable> {
        let (erased, shrunk) = self
            .written(|writer| writer.with(move |connection| room::compact(connection, before)))?;
        match shrunk {
            Ok(()) => Ok(erased),
            Err(e) => Err(error::not_shrunk(&self.opened.path, &e)),
        }
    }

    fn holdings(&self) -> PortResult<Holdings> {
        self.read(room::holdings)
    }

    fn erasable(&self, before: Timestamp) -> PortResult<Erasable> {
        self.read(|c| room::erasable(c, before))
    }

    fn append_bandwidth(&self, of: &Fingerprint, profile: &BandwidthProfile) -> PortResult<i64> {
        let (of, profile) = (of.clone(), profile.clone());
        self.write(move |tx| placements::append_bandwidth(tx, &of, &profile))
    }

    fn append_placement(&self, placement: &NewPlacement) -> PortResult<i64> {
        let placement = placement.clone();
        self.write(move |tx| placements::append_placement(tx, &placement))
    }

    fn append_fit(
        &self,
        of: &Fingerprint,
        at: Timestamp,
        document: &serde_json::Value,
    ) -> PortResult<i64> {
        let (of, document) = (of.clone(), document.clone());
        self.write(move |tx| placements::append_fit(tx, &of, at, &document))
    }

    fn last_scan(&self) -> PortResult<Option<Fingerprint>> {
        self.read(read::last_scan)
    }

    fn find_sessions(&self, filter: &SessionFilter) -> PortResult<SessionPage> {
        self.read(|c| history::find(c, filter))
    }

    fn session(&self, id: i64) -> PortResult<Option<Session>> {
        self.read(|c| read::session(c, id))
    }

    fn runs(&self, session: i64) -> PortResult<Vec<StoredRun>> {
        self.read(|c| read::runs(c, session))
    }

    fn run_heads(&self, session: i64) -> PortResult<Vec<RunHead>> {
        self.read(|c| read::run_heads(c, session))
    }

    fn run_heads_with(&self, session: i64, dimension: &str) -> PortResult<Vec<RunHead>> {
        self.read(|c| read::run_heads_with(c, session, dimension))
    }

    fn config(&self, session: i64) -> PortResult<Option<serde_json::Value>> {
        self.read(|c| read::config(c, session))
    }

    fn raw(&self, run: i64) -> PortResult<Option<RawOutput>> {
        self.read(|c| read::raw_output(c, run))
    }

    fn telemetry(&self, session: i64, from: Timestamp, to: Timestamp) -> PortResult<Vec<Reading>> {
        self.read(|c| telemetry::readings(c, session, from, to))
    }

    fn telemetry_span(&self, session: i64) -> PortResult<Option<(Timestamp, Timestamp)>> {
        self.read(|c| telemetry::span(c, session))
    }

    fn telemetry_window(
        &self,
        session: i64,
        from: Timestamp,
        to: Timestamp,
        columns: usize,
    ) -> PortResult<Vec<Windowed>> {
        self.read(|c| telemetry::window(c, session, from, to, columns))
    }

    fn notices(&self, session: i64) -> PortResult<Vec<Notice>> {
        self.read(|c| read::notices(c, session))
    }

    fn verdicts(&self, session: i64) -> PortResult<Vec<StoredVerdict>> {
        self.read(|c| read::verdicts(c, session))
    }

    fn profiles(&self) -> PortResult<Vec<Profile>> {
        self.read(read::profiles)
    }

    fn measured_with(&self) -> PortResult<BTreeMap<i64, Measured>> {
        self.read(read::measured_with)
    }

    fn fingerprint(&self, hash: &str) -> PortResult<Option<Fingerprint>> {
        self.read(|c| read::fingerprint(c, hash))
    }

    fn introductions(&self, profile: i64) -> PortResult<Vec<Introduction>> {
        self.read(|c| read::introductions(c, profile))
    }

    fn append_import(&self, at: Timestamp, profile: &SharedProfile) -> PortResult<i64> {
        let profile = profile.clone();
        self.write(move |tx| imports::append(tx, at, &profile))
    }

    fn remove_import(&self, import: i64) -> PortResult<bool> {
        self.write(move |tx| imports::remove(tx, import))
    }

    fn imports(&self, model_digest: Option<&str>) -> PortResult<Vec<ImportedProfile>> {
        self.read(|c| imports::list(c, model_digest))
    }

    fn confirmation_of(&self, profile: i64) -> PortResult<Option<StoredVerdict>> {
        self.read(|c| read::confirmation_of(c, profile))
    }

    fn bandwidth(&self, fingerprint: &str) -> PortResult<Option<BandwidthProfile>> {
        self.read(|c| placements::bandwidth(c, fingerprint))
    }

    fn placements(
        &self,
        fingerprint: &str,
        model_digest: Option<&str>,
    ) -> PortResult<Vec<StoredPlacement>> {
        self.read(|c| placements::placements(c, fingerprint, model_digest))
    }

    fn fits(&self, fingerprint: &str) -> PortResult<Vec<StoredFit>> {
        self.read(|c| placements::fits(c, fingerprint))
    }
}

#[cfg(test)]
mod tests;
