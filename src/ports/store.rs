//! The store as the engine sees it: append evidence, read it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::handover::SharedProfile;
use crate::domain::placement::bandwidth::BandwidthProfile;
use crate::domain::telemetry::{Reading, Windowed};
use crate::domain::types::{
    BufferUse, Fingerprint, Goal, Machine, ModelInfo, PlannedRun, Profile, RawOutput, Run,
    RunOutcome, RunTelemetry, Runtime, Settings, Timestamp, Verdict,
};

use super::PortResult;
use super::history::{SessionFilter, SessionLine, SessionPage};
use super::placements::{NewPlacement, StoredFit, StoredPlacement};
use super::room::{Erasable, Holdings};

/// What kind of session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// `flux tune`.
    Tune,
    /// `flux ab`.
    Ab,
    /// `flux plan --bench`.
    Plan,
    /// `flux lab`: no runs of a runtime on a model; in their place stand Flux's own kernels and the card.
    Lab,
    /// `flux serve-check`.
    #[serde(rename = "serve-check")]
    ServeCheck,
}

impl SessionKind {
    /// The kind in a word, as its command is called.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tune => "tune",
            Self::Ab => "ab",
            Self::Plan => "plan",
            Self::Lab => "lab",
            Self::ServeCheck => "serve-check",
        }
    }
}

/// A session as it begins: all that is needed to judge and to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewSession {
    /// Kind.
    pub kind: SessionKind,
    /// When it began.
    pub started_at: Timestamp,
    /// The machine and runtime it belongs to.
    pub fingerprint: Fingerprint,
    /// The readings behind the fingerprint.
    pub machine: Machine,
    /// The build measured.
    pub runtime: Runtime,
    /// The model measured.
    pub model: ModelInfo,
    /// The goal.
    pub goal: Goal,
    /// The request and the plan made of it, whole: the state machine is rebuilt from this on resume.
    pub config: serde_json::Value,
    /// On an exported machine.
    pub simulated: bool,
    /// Version of Flux.
    pub flux_version: String,
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Row id.
    pub id: i64,
    /// How it began.
    #[serde(flatten)]
    pub begun: NewSession,
    /// How it ended; `None` while running, or when Flux was killed: it can be resumed.
    pub end: Option<SessionEnd>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// When.
    pub ended_at: Timestamp,
    /// State.
    pub state: SessionState,
    /// Verdict, where there is one.
    pub verdict: Option<Verdict>,
    /// The result document, as `flux tune --json` prints it, or the error.
    pub result: serde_json::Value,
}

/// The states a session ends in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Ran to its end.
    Done,
    /// Cancelled: samples kept, no profile; it can be resumed.
    Cancelled,
    /// Failed.
    Failed,
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Row id.
    pub id: i64,
    /// Place in the session, from 0.
    pub seq: u32,
    /// What was asked.
    pub planned: PlannedRun,
    /// What happened.
    pub run: Run,
}

/// A stored run without the output and the command of its process, which may be megabytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHead {
    /// Row id.
    pub id: i64,
    /// Place in the session, from 0.
    pub seq: u32,
    /// What was asked.
    pub planned: PlannedRun,
    /// When it began.
    pub started_at: Timestamp,
    /// Seconds from start to reaped.
    pub wall_secs: f64,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Buffers it allocated, where asked for.
    pub buffers: Vec<BufferUse>,
    /// What the sensors said around it, where any did.
    pub telemetry: Option<Box<RunTelemetry>>,
}

/// Something worth saying about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// How serious.
    pub level: NoticeLevel,
    /// Stable kebab-case code.
    pub code: String,
    /// One sentence for people.
    pub text: String,
}

/// How serious a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoticeLevel {
    /// For information.
    Info,
    /// May spoil the measurement.
    Warning,
}

/// A profile to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewProfile {
    /// All but the id, which the store gives.
    pub profile: Profile,
    /// Settings and the run that introduced each: `(dimension, run id)`.
    pub introduced_by: Vec<(String, i64)>,
    /// The stored verdict that confirmed it.
    pub verdict_id: i64,
}

/// What a session measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The build.
    pub runtime: Arc<Runtime>,
    /// The model.
    pub model: Arc<ModelInfo>,
}

/// A profile that came from elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImportedProfile {
    /// Row id.
    pub id: i64,
    /// When it came.
    pub imported_at: Timestamp,
    /// The document.
    pub profile: SharedProfile,
}

/// Why a setting is in a profile, read back from the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Introduction {
    /// Dimension.
    pub dimension: String,
    /// Value.
    pub value: String,
    /// The screening run that introduced it.
    pub run: StoredRun,
}

/// A stored judgement (a confirmation of one finalist, or an `ab`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredVerdict {
    /// Row id.
    pub id: i64,
    /// Session.
    pub session: i64,
    /// What was judged.
    pub settings: Settings,
    /// Verdict.
    pub verdict: Verdict,
    /// The judgement in full.
    pub detail: serde_json::Value,
}

/// Held while a job measures; dropping it lets another Flux measure.
pub struct Measuring(pub Box<dyn Send>);

/// Everything measured, kept. Every call returns after its transaction is on disk.
pub trait Store: Send + Sync {
    /// Claims this data folder for measuring: a second Flux may look, not measure.
    ///
    /// # Errors
    /// Another Flux is measuring with it, or the folder cannot be written.
    fn begin_measuring(&self) -> PortResult<Measuring>;
    /// Whether some Flux measures with this data folder now: without one, a session without an end was killed.
    fn is_measured(&self) -> bool;
    /// Begins a session.
    ///
    /// # Errors
    /// The database cannot be written (full disk, read-only, locked by another Flux).
    fn begin_session(&self, session: &NewSession) -> PortResult<i64>;
    /// Appends a run with every repetition and its raw output.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_run(
        &self,
        session: i64,
        seq: u32,
        planned: &PlannedRun,
        run: &Run,
    ) -> PortResult<i64>;
    /// Appends a notice.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_notice(&self, session: i64, notice: &Notice) -> PortResult<()>;
    /// Appends a judgement.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_verdict(
        &self,
        session: i64,
        settings: &Settings,
        verdict: Verdict,
        detail: &serde_json::Value,
    ) -> PortResult<i64>;
    /// Stores a profile.
    ///
    /// # Errors
    /// As `begin_session`.
    fn save_profile(&self, profile: &NewProfile) -> PortResult<i64>;
    /// Appends a profile that came from elsewhere; the same one again is the one that is there.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_import(&self, at: Timestamp, profile: &SharedProfile) -> PortResult<i64>;
    /// Removes a profile that came from elsewhere: the file it came from brings it back. `false` where there is none.
    ///
    /// # Errors
    /// As `begin_session`.
    fn remove_import(&self, import: i64) -> PortResult<bool>;
    /// Ends a session; a cancelled one may be ended again after a resume, and the last end counts.
    ///
    /// # Errors
    /// As `begin_session`.
    fn end_session(&self, session: i64, end: &SessionEnd) -> PortResult<()>;
    /// A session that had ended goes on: until it ends again it has no end. `false` of one that had not: it stays as it is.
    ///
    /// # Errors
    /// As `begin_session`.
    fn resume_session(&self, session: i64, at: Timestamp) -> PortResult<bool>;
    /// Remembers a scan, so that the next can say what changed.
    ///
    /// # Errors
    /// As `begin_session`.
    fn remember_scan(&self, at: Timestamp, fingerprint: &Fingerprint) -> PortResult<()>;
    /// Marks a session as deleted, or as restored; nothing is erased. Neither it nor its profiles are listed while it
    /// is deleted; what is asked for by its number still answers.
    ///
    /// # Errors
    /// There is no such session; as `begin_session`.
    fn set_deleted(&self, session: i64, deleted: bool, at: Timestamp) -> PortResult<()>;
    /// Appends readings taken while a session went on. The run a reading belongs to follows from its time.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_telemetry(&self, session: i64, readings: &[Reading]) -> PortResult<()>;
    /// Deletes readings of sensors from before a moment: they are many and explain, they do not prove. What was made of
    /// them for each run stays with the run.
    ///
    /// # Errors
    /// As `begin_session`.
    fn forget_telemetry(&self, before: Timestamp) -> PortResult<()>;

    /// Erases for good what [`Store::erasable`] counts, and gives the room back to the disk. Only while this Flux holds
    /// [`Store::begin_measuring`], and only when its owner said so.
    ///
    /// # Errors
    /// As `begin_session`; what was erased may then still take its room.
    fn compact(&self, before: Timestamp) -> PortResult<Erasable>;

    /// Appends what the memories of a machine were measured to deliver.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_bandwidth(&self, of: &Fingerprint, profile: &BandwidthProfile) -> PortResult<i64>;
    /// Appends a placement, predicted or measured.
    ///
    /// # Errors
    /// There is no such session; as `begin_session`.
    fn append_placement(&self, placement: &NewPlacement) -> PortResult<i64>;
    /// Appends a fit of the speed model.
    ///
    /// # Errors
    /// As `begin_session`.
    fn append_fit(
        &self,
        of: &Fingerprint,
        at: Timestamp,
        document: &serde_json::Value,
    ) -> PortResult<i64>;

    /// What is stored, and what it takes on the disk.
    ///
    /// # Errors
    /// The database cannot be read.
    fn holdings(&self) -> PortResult<Holdings>;
    /// What is older than a moment and may be erased.
    ///
    /// # Errors
    /// As `holdings`.
    fn erasable(&self, before: Timestamp) -> PortResult<Erasable>;
    /// The last remembered scan.
    ///
    /// # Errors
    /// The database cannot be read.
    fn last_scan(&self) -> PortResult<Option<Fingerprint>>;
    /// Sessions, newest first.
    ///
    /// # Errors
    /// As `last_scan`.
    fn sessions(&self, limit: u32) -> PortResult<Vec<SessionLine>> {
        let filter = SessionFilter {
            limit,
            ..SessionFilter::default()
        };
        Ok(self.find_sessions(&filter)?.lines)
    }
    /// A page of the sessions that pass a filter, newest first; deleted ones never do.
    ///
    /// # Errors
    /// As `last_scan`.
    fn find_sessions(&self, filter: &SessionFilter) -> PortResult<SessionPage>;
    /// One session.
    ///
    /// # Errors
    /// As `last_scan`.
    fn session(&self, id: i64) -> PortResult<Option<Session>>;
    /// What a session was asked, [`NewSession::config`], without the rest of it.
    ///
    /// # Errors
    /// As `last_scan`.
    fn config(&self, session: i64) -> PortResult<Option<serde_json::Value>>;
    /// A session's runs in order.
    ///
    /// # Errors
    /// As `last_scan`.
    fn runs(&self, session: i64) -> PortResult<Vec<StoredRun>>;
    /// The same without what their processes left behind: fast however long their logs are.
    ///
    /// # Errors
    /// As `last_scan`.
    fn run_heads(&self, session: i64) -> PortResult<Vec<RunHead>>;
    /// The same of those runs that set nothing but this dimension, or nothing at all.
    ///
    /// # Errors
    /// As `last_scan`.
    fn run_heads_with(&self, session: i64, dimension: &str) -> PortResult<Vec<RunHead>>;
    /// What the process of a run left behind.
    ///
    /// # Errors
    /// As `last_scan`.
    fn raw(&self, run: i64) -> PortResult<Option<RawOutput>>;
    /// A session's readings from `from` to `to`, both included, in the order of their times. Readings that only a later
    /// Flux knows are left out.
    ///
    /// # Errors
    /// As `last_scan`.
    fn telemetry(&self, session: i64, from: Timestamp, to: Timestamp) -> PortResult<Vec<Reading>>;
    /// The first and the last moment of a session's readings; `None` where none are stored.
    ///
    /// # Errors
    /// As `last_scan`.
    fn telemetry_span(&self, session: i64) -> PortResult<Option<(Timestamp, Timestamp)>>;
    /// Every series of a session from `from` to `to`, both included, in `columns` + 1 columns of equal width or fewer; the
    /// lowest, the mean and the highest are exact. Fast however long the time is.
    ///
    /// # Errors
    /// As `last_scan`.
    fn telemetry_window(
        &self,
        session: i64,
        from: Timestamp,
        to: Timestamp,
        columns: usize,
    ) -> PortResult<Vec<Windowed>>;
    /// A session's notices in order.
    ///
    /// # Errors
    /// As `last_scan`.
    fn notices(&self, session: i64) -> PortResult<Vec<Notice>>;
    /// A session's judgements in order.
    ///
    /// # Errors
    /// As `last_scan`.
    fn verdicts(&self, session: i64) -> PortResult<Vec<StoredVerdict>>;
    /// Profiles, newest first.
    ///
    /// # Errors
    /// As `last_scan`.
    fn profiles(&self) -> PortResult<Vec<Profile>>;
    /// Builds and models of the sessions that saved a profile, by session. Fast however many there are.
    ///
    /// # Errors
    /// As `last_scan`.
    fn measured_with(&self) -> PortResult<BTreeMap<i64, Measured>>;
    /// Profiles that came from elsewhere, newest first; of one model where its digest is given.
    ///
    /// # Errors
    /// As `last_scan`.
    fn imports(&self, model_digest: Option<&str>) -> PortResult<Vec<ImportedProfile>>;
    /// The fingerprint a profile or session was stored with, for saying what changed.
    ///
    /// # Errors
    /// As `last_scan`.
    fn fingerprint(&self, hash: &str) -> PortResult<Option<Fingerprint>>;
    /// Why each setting of a profile is there.
    ///
    /// # Errors
    /// As `last_scan`.
    fn introductions(&self, profile: i64) -> PortResult<Vec<Introduction>>;
    /// The judgement that confirmed a profile.
    ///
    /// # Errors
    /// As `last_scan`.
    fn confirmation_of(&self, profile: i64) -> PortResult<Option<StoredVerdict>>;
    /// The newest bandwidth profile of the machine with this fingerprint's hash.
    ///
    /// # Errors
    /// As `last_scan`.
    fn bandwidth(&self, fingerprint: &str) -> PortResult<Option<BandwidthProfile>>;
    /// Placements stored with a fingerprint's hash, of one model or of all, newest first.
    ///
    /// # Errors
    /// As `last_scan`.
    fn placements(
        &self,
        fingerprint: &str,
        model_digest: Option<&str>,
    ) -> PortResult<Vec<StoredPlacement>>;
    /// Fits stored with a fingerprint's hash, newest first.
    ///
    /// # Errors
    /// As `last_scan`.
    fn fits(&self, fingerprint: &str) -> PortResult<Vec<StoredFit>>;
}
