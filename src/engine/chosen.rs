//! The placement that the last `flux plan --bench` of a model chose here: what searches start from, and what is served
//! where stock does not run (paper section 5.4).

use crate::domain::types::{Fingerprint, Goal, ModelInfo, RunOutcome, Settings, Verdict};
use crate::ports::{Notice, NoticeLevel, Session, SessionKind, SessionLine, SessionState};

use super::Ports;
use super::message::{JobError, TuneRequest};
use super::plan::bench::PlanConfig;
use super::report::AbDocument;
use super::settings;
use super::workplace::Workplace;

/// Sessions looked through for what ran before.
const SESSIONS_LOOKED_AT: u32 = 200;

/// What a plan's benchmark chose.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The settings to use: a placement, llama.cpp's own fitting, or stock.
    pub settings: Settings,
    /// The session that measured it.
    pub session: i64,
    /// What that session was asked, and where it measured.
    pub config: PlanConfig,
    /// Stock ran there.
    pub stock_runs: bool,
    /// The choice was confirmed as faster than what else ran, for the session's goal.
    pub is_improved: bool,
}

impl Chosen {
    /// Is this choice better than stock for `goal`? Where stock fails, for every goal; else it was judged for one.
    pub fn holds_for(&self, goal: Goal) -> bool {
        let judged = self.is_improved && self.config.request.goal == goal;
        !self.settings.is_stock() && (!self.stock_runs || judged)
    }
}

/// The newest choice for a model on this machine and build; `None` where no benchmark of a plan came to its end here.
///
/// # Errors
/// The store cannot be read.
pub fn chosen(
    here: &Fingerprint,
    model: &ModelInfo,
    simulated: bool,
    ports: &Ports,
) -> Result<Option<Chosen>, JobError> {
    for line in ended_here(here, model, ports)? {
        if line.kind == SessionKind::Plan
            && let Some(session) = of_model(&line, model, ports)?
            && session.begun.simulated == simulated
            && let Some(chosen) = read(&session, ports)?
        {
            return Ok(Some(chosen));
        }
    }
    Ok(None)
}

/// Sessions of this fingerprint and of a model of this name, newest first.
pub(super) fn ended_here(
    here: &Fingerprint,
    model: &ModelInfo,
    ports: &Ports,
) -> Result<Vec<SessionLine>, JobError> {
    let mut lines = ports.store.sessions(SESSIONS_LOOKED_AT)?;
    lines.retain(|s| s.fingerprint == here.hash && s.model == model.name);
    Ok(lines)
}

/// The session of a line, if it came to its end and its model is this one.
pub(super) fn of_model(
    line: &SessionLine,
    model: &ModelInfo,
    ports: &Ports,
) -> Result<Option<Session>, JobError> {
    let session = ports.store.session(line.id)?;
    Ok(session.filter(|s| {
        let done = s
            .end
            .as_ref()
            .is_some_and(|e| e.state == SessionState::Done);
        done && s.begun.model.digest == model.digest
    }))
}

/// What a plan's session chose; `None` in sessions that did not keep it.
pub(super) fn read(session: &Session, ports: &Ports) -> Result<Option<Chosen>, JobError> {
    let result = session.end.as_ref().map(|e| e.result.clone());
    let document: AbDocument =
        serde_json::from_value(result.unwrap_or_default()).unwrap_or_default();
    let config = serde_json::from_value(session.begun.config.clone());
    let (Some(settings), Ok(config)) = (document.chosen, config) else {
        return Ok(None);
    };
    let runs = ports.store.run_heads(session.id)?;
    let mut stock = runs.iter().filter(|r| r.planned.settings.is_stock());
    Ok(Some(Chosen {
        settings,
        session: session.id,
        config,
        is_improved: document.verdict == Some(Verdict::Improved),
        stock_runs: stock.any(|r| matches!(r.outcome, RunOutcome::Valid { .. })),
    }))
}

/// What every arm of a search starts from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    /// A placement, or stock.
    pub settings: Settings,
    /// It is stock, or known to be better than stock: what beats it may be saved.
    pub confirmed: bool,
    /// What the user should know of it.
    pub notices: Vec<Notice>,
}

impl Start {
    fn stock(notices: Vec<Notice>) -> Self {
        Self {
            settings: Settings::stock(),
            confirmed: true,
            notices,
        }
    }
}

/// The placement asked for, else the one that a plan's benchmark chose here, else stock.
///
/// # Errors
/// A placement that is none; the store cannot be read.
pub(super) fn start(
    place: &mut Workplace,
    request: &TuneRequest,
    ports: &Ports,
) -> Result<Start, JobError> {
    if request.placement.as_deref() == Some("stock") {
        return Ok(Start::stock(Vec::new()));
    }
    let simulated = place.machine.simulated;
    let known = chosen(&place.fingerprint, &place.model, simulated, ports)?;
    let known = known.filter(|c| c.config.target.is_on(&place.target));
    let Some(text) = &request.placement else {
        return Ok(known.map_or_else(
            || Start::stock(Vec::new()),
            |known| start_chosen(known, place, request.goal),
        ));
    };
    let placed = settings::placed(text)?;
    let confirmed = known.is_some_and(|c| c.settings == placed && c.holds_for(request.goal));
    let mut notices = Vec::new();
    if !confirmed {
        notices.push(told(
            NoticeLevel::Warning,
            "unconfirmed-placement",
            format!("{placed} was not confirmed against stock here (`flux plan --bench` does): no profile is saved"),
        ));
    }
    Ok(Start {
        settings: placed,
        confirmed,
        notices,
    })
}

/// The placement that a plan's benchmark chose, where it is known to be better than stock for this goal.
fn start_chosen(known: Chosen, place: &mut Workplace, goal: Goal) -> Start {
    let nothing_gained = known.stock_runs && !known.is_improved;
    if known.settings.is_stock() || nothing_gained {
        return Start::stock(Vec::new());
    }
    let (settings, session) = (&known.settings, known.session);
    if !known.holds_for(goal) {
        let judged = known.config.request.goal;
        return Start::stock(vec![told(
            NoticeLevel::Info,
            "other-goal",
            format!(
                "starts from stock: session {session} chose {settings} for the {judged} goal, not for {goal}"
            ),
        )]);
    }
    let within = known
        .config
        .request
        .vram_limit
        .map_or_else(String::new, |limit| {
            for usable in place.target.memory_limits.values_mut() {
                *usable = (*usable).min(limit);
            }
            format!(" within {limit}")
        });
    let notice = told(
        NoticeLevel::Info,
        "chosen-placement",
        format!(
            "starts from {settings}, which session {session} chose{within}; `--placement stock` starts from stock"
        ),
    );
    Start {
        settings: known.settings,
        confirmed: true,
        notices: vec![notice],
    }
}

fn told(level: NoticeLevel, code: &str, text: String) -> Notice {
    Notice {
        level,
        code: code.to_owned(),
        text,
    }
}
