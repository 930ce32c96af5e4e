//! The search as pure state machines (paper sections 2.3 and 3): what may be set, what to run next, what it came to.
//!
//! The steps by name: [`space`] and [`offer`] say what may be tried, then `baseline`, `screening`, `pairs`, `drop_one`,
//! `finalists` and [`confirmation`]; [`tuner`] strings them together over the runs recorded so far.

pub mod ab;
mod baseline;
pub mod clients;
pub mod confirmation;
mod drop_one;
mod finalists;
pub mod goal;
mod guard;
mod known;
pub mod launch;
pub mod offer;
pub mod outcome;
mod pairs;
pub mod plan;
mod rules;
pub mod schedule;
mod screening;
pub mod session;
pub mod space;
mod trials;
pub mod tuner;

pub use ab::{Ab, AbOutcome, AbPlan};
pub use baseline::HOPELESS_RATIO;
pub use clients::{ClientsOutcome, ClientsPlan, ClientsRow, MAX_CLIENTS};
pub use confirmation::{
    Confirmation, ConfirmationRun, FAILURES_BORNE, MemoryUse, MetricJudgement, Rejection, Size,
};
pub use goal::{ENERGY, FIRST_TOKEN, Objective, REQUEST};
pub use launch::{SettingsError, Tool};
pub use offer::{
    Capabilities, Offer, OfferRules, OfferedDimension, OfferedValue, Refusal, UnknownDimension,
};
pub use outcome::{BaselineSummary, Candidate, CandidateStatus, HARMFUL, StaleCheck, TuneOutcome};
pub use plan::{PlanError, PlanInput, TunePlan};
pub use schedule::interleaved;
pub use session::{Progress, Remark, StageProgress, TuneNote};
pub use space::{Dimension, SearchSpace, SpaceError};
pub use tuner::{Driver, Method, ReplayError, Step, Tuner};
