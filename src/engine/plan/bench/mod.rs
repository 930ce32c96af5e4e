//! `flux plan --bench` (paper section 5): stock and llama.cpp's own fitting first, the best few predictions, the neighbours of
//! the fastest, and A-B-B-A confirmations of it against the runner-up, the fitting and stock. Every run feeds the fit.

mod arm;
mod arms;
mod config;
mod first_guess;
mod keep;
mod own;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::placement::planner::Candidate;
use crate::domain::placement::words::Spoken;
use crate::domain::search::{Ab, AbOutcome, AbPlan, Driver, Objective, Tool, plan};
use crate::domain::server::output::OutputCheck;
use crate::domain::text::settings_phrase;
use crate::domain::types::{Backend, Machine, PlannedRun, Settings, Stage, Verdict};
use crate::ports::{NewPlacement, NoticeLevel, SessionKind};

use crate::engine::Ports;
use crate::engine::install::to_json;
use crate::engine::job::{Ended, JobContext};
use crate::engine::measure::Bench;
use crate::engine::message::{JobError, StageInfo};
use crate::engine::report::{
    self, AbDocument, ArmDocument, ConfirmationDocument, ModelDocument, Overhead,
};
use crate::engine::settings::PLACEMENT;
use crate::engine::tune::{begin, close};
use crate::engine::workplace::Workplace;
pub use arm::ArmResult;
use arm::result;
use arms::{FIRST, NEIGHBOURS, first, fit_within, neighbours, own_words, placed};
pub use config::{Judged, PlanConfig};

use super::{CandidateDocument, PlanBase, PlanDocument, PlanRequest, base_on};

/// A runner-up this near is confirmed against the fastest: processes of hybrid placements vary by so much (paper section 7).
const NEAR: f64 = 1.15;
/// Repetitions of a screening run (paper section 3).
const REPETITIONS: u32 = 3;
/// Processes per arm of each confirmation, unless told otherwise: the method's fewest.
const PROCESSES: u32 = 4;

/// What benchmarking came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchDocument {
    /// The stored session.
    pub session: i64,
    /// Stock, with what became of it.
    pub stock: ArmResult,
    /// llama.cpp's own fitting, where the build has it.
    pub fit: Option<ArmResult>,
    /// Every placement measured, in order.
    pub placements: Vec<ArmResult>,
    /// Confirmations, in order.
    pub confirmations: Vec<ConfirmationDocument>,
    /// The settings to use.
    pub settings: Settings,
    /// The same as llama-server's arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Verdict of the last confirmation.
    pub verdict: Option<Verdict>,
    /// What it came to, in a sentence.
    pub reason: String,
    /// What these settings say against what stock says, where they could become a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputCheck>,
    /// The profile stored.
    pub profile: Option<i64>,
}

/// What the fastest placement was not shown to beat.
struct Lost {
    to: &'static str,
    settings: Settings,
    why: Option<String>,
    outcome: Option<AbOutcome>,
}

/// The job's state between its steps.
struct Session<'a, 'b> {
    request: &'a PlanRequest,
    ports: &'a Ports,
    bench: Bench<'a>,
    context: &'b mut JobContext,
    confirmations: Vec<ConfirmationDocument>,
    last: Option<AbOutcome>,
    done: u32,
    expected: u32,
}

/// Measures, confirms, recalibrates, stores.
///
/// # Errors
/// As [`super::base`]; no build with llama-bench; nothing fits, or nothing that llama-bench can run; the store cannot be written; cancelled.
pub fn perform(
    request: &PlanRequest,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let begun = ports.clock.elapsed();
    let machine = ports.probe.machine();
    let mut before = base_on(&machine, request, ports)?;
    let place = workplace(machine, request, ports)?;
    let mut candidates = first(&before)?;
    let asked = ports.clock.elapsed();
    let measured = first_guess::measure_bandwidths(&place.machine, request, ports, context)?;
    let mut bandwidth = Duration::ZERO;
    if measured {
        bandwidth = ports.clock.elapsed().saturating_sub(asked);
        before = base_on(&place.machine, request, ports)?;
        candidates = first(&before)?;
    }
    let (prompt, generated) = request.tokens();
    let tests = plan::workload(prompt, generated, 0, false);
    let objective = Objective::new(request.goal, request.request_shape, tests)
        .map_err(|e| JobError::new(super::USAGE, e.to_string()))?;
    let (session, _measuring) = begin(
        &place,
        SessionKind::Plan,
        request.goal,
        to_json(&PlanConfig {
            request: request.clone(),
            target: place.target.clone(),
            plan: Some(Judged {
                objective: objective.clone(),
            }),
        })?,
        ports,
    )?;
    let expected = 2 + FIRST + NEIGHBOURS + 6 * PROCESSES as usize;
    let stages = vec![StageInfo {
        name: "placements".to_owned(),
        runs: expected as u32,
    }];
    context.started("plan", Some(session), stages, Some(objective.primary()));
    let mut work = Session {
        request,
        ports,
        bench: Bench::new(ports, &place, &objective, session),
        context,
        confirmations: Vec::new(),
        last: None,
        done: 0,
        expected: expected as u32,
    };
    let result = work.run(&before, &candidates);
    let wall = ports.clock.elapsed().saturating_sub(begun);
    let overhead = Overhead::measuring_too(wall, work.bench.run_secs, bandwidth);
    let mut document = None;
    // Whatever fails, the session is closed with it.
    let ended = result.and_then(|(bench, mut plan)| {
        let summary = to_json(&work.summary(&bench, overhead))?;
        let verdict = bench.verdict;
        plan.bench = Some(bench);
        document = Some(to_json(&plan)?);
        Ok((summary, verdict))
    });
    let stored = close(ports, session, ended)?;
    Ok(document.unwrap_or(stored))
}

/// Where the arms run, with other machines' servers where they were named.
fn workplace(
    machine: Machine,
    request: &PlanRequest,
    ports: &Ports,
) -> Result<Workplace, JobError> {
    let device = (!request.devices.is_empty()).then(|| request.devices.join(","));
    let mut place = Workplace::on(
        machine,
        &request.model,
        request.runtime.as_deref(),
        device.as_deref(),
        request.memory_reserve,
        ports,
    )?;
    place.must_know_its_driver()?;
    if !request.rpc.is_empty() {
        place.target.rpc.clone_from(&request.rpc);
        place.target.backend = Backend::Rpc;
    }
    Ok(place)
}

impl Session<'_, '_> {
    /// Every step; what it came to, and the plan that all of it teaches.
    fn run(
        &mut self,
        before: &PlanBase,
        first: &[Candidate],
    ) -> Result<(BenchDocument, PlanDocument), Ended> {
        self.bench.tell_conditions(self.context)?;
        if self.request.ram_limit.is_some() {
            let told =
                "the limit on RAM binds the plan, not the runs: they may be faster than predicted";
            self.context.notice(NoticeLevel::Info, "ram-limit", told);
        }
        let stock = self.arm(&Settings::stock(), "stock", None)?;
        let flags = &self.bench.place.runtime.bench_flags;
        let fit = if flags.contains("--fit-target") {
            let within = fit_within(self.request, before);
            Some(self.arm(&placed(&within), "llama.cpp's own fitting", None)?)
        } else {
            None
        };
        let mut placements = Vec::new();
        for candidate in first {
            placements.push(self.candidate(candidate)?);
        }
        let learned = self.base()?;
        if let Some(best) = self.fastest(&placements) {
            for candidate in neighbours(&learned, &best, &placements) {
                placements.push(self.candidate(&candidate)?);
            }
        }
        let mut document = self.confirm(stock, fit, placements)?;
        document.profile = self.save(&mut document)?;
        let mut after = self.base()?;
        self.keep_fit(&mut after, &document.placements)?;
        let mut plan = PlanDocument::of(&after, &self.request.predict)?;
        if let Some(words) = own_words(&document.settings) {
            let candidate = after.predict(words)?;
            plan.chosen = Some(CandidateDocument::of(&candidate, &after)?);
        }
        Ok((document, plan))
    }

    /// What is known by now, on the machine as it was read, with the RAM that is free by now.
    fn base(&self) -> Result<PlanBase, JobError> {
        let machine = Machine {
            host: self.ports.probe.host(),
            ..self.bench.place.machine.clone()
        };
        base_on(&machine, self.request, self.ports)
    }

    /// One process of an arm.
    fn arm(
        &mut self,
        settings: &Settings,
        purpose: &str,
        predicted: Option<&Candidate>,
    ) -> Result<ArmResult, Ended> {
        let planned = PlannedRun {
            stage: Stage::Screening,
            side: None,
            settings: settings.clone(),
            repetitions: REPETITIONS,
            early_stop: None,
            log_buffers: true,
            clients: 1,
            purpose: purpose.to_owned(),
        };
        let run = self
            .bench
            .one(&planned, (self.done, self.expected), self.context)?;
        self.done += 1;
        // Under a limit of the user's there is room beyond it: nothing spills.
        let may_spill = self.request.vram_limit.is_none();
        Ok(result(settings, &run, predicted, may_spill))
    }

    fn candidate(&mut self, candidate: &Candidate) -> Result<ArmResult, Ended> {
        let text = Spoken(&candidate.placement, &candidate.context).to_string();
        // A limit on RAM binds the plan alone: what streams under it was not predicted for these runs.
        let predicted = self.request.ram_limit.is_none() || !candidate.streams;
        let arm = self.arm(&placed(&text), &text, predicted.then_some(candidate))?;
        if arm.failure.is_some() && arm.tg.is_some() {
            let told = format!("{text}: {}", arm.failure.as_deref().unwrap_or_default());
            self.context.notice(NoticeLevel::Warning, "spilled", told);
        }
        let place = self.bench.place;
        self.ports.store.append_placement(&NewPlacement {
            session: Some(self.bench.session),
            at: self.ports.clock.now(),
            fingerprint: place.fingerprint.clone(),
            model_digest: place.model.digest.clone(),
            document: to_json(&arm)?,
        })?;
        Ok(arm)
    }

    fn fastest(&self, arms: &[ArmResult]) -> Option<ArmResult> {
        self.ranked(arms).into_iter().next()
    }

    fn ranked(&self, arms: &[ArmResult]) -> Vec<ArmResult> {
        let cost = |arm: &ArmResult| arm.cost(self.request.goal, self.request.request_shape);
        let mut ranked: Vec<ArmResult> =
            arms.iter().filter(|a| cost(a).is_some()).cloned().collect();
        let order = |a: &ArmResult| cost(a).unwrap_or(f64::INFINITY);
        ranked.sort_by(|a, b| order(a).total_cmp(&order(b)));
        ranked
    }

    /// The best of ours against llama.cpp's fitting and stock, as far as they run.
    fn confirm(
        &mut self,
        stock: ArmResult,
        fit: Option<ArmResult>,
        placements: Vec<ArmResult>,
    ) -> Result<BenchDocument, Ended> {
        let Some(winner) = self.best_of_ours(&placements)? else {
            return Err(
                JobError::new("no-placement", "no placement of this model ran here")
                    .hint("see each run's failure with `flux show`")
                    .into(),
            );
        };
        let mut verdict = None;
        let mut lost_to = None;
        let mut beaten = Vec::new();
        for (name, other) in [
            ("llama.cpp's own fitting", fit.as_ref()),
            ("stock", Some(&stock)),
        ] {
            // Under a forced budget only what keeps to it can be compared with.
            let unbound = name == "stock" && self.request.vram_limit.is_some();
            let Some(other) = other.filter(|o| o.tg.is_some() && !unbound) else {
                continue;
            };
            verdict = self.against(&other.settings, &winner.settings, true)?;
            if verdict == Some(Verdict::Improved) {
                beaten.push(name);
            } else if lost_to.is_none() {
                lost_to = Some(Lost {
                    to: name,
                    settings: other.settings.clone(),
                    why: self.rejection(),
                    outcome: self.last.clone(),
                });
            }
        }
        // The session came to what its choice rests on: a loss, whatever else was beaten.
        if let Some(lost) = &lost_to {
            self.last.clone_from(&lost.outcome);
            verdict = self.last.as_ref().and_then(|l| l.verdict);
        }
        let (settings, reason) = chosen(&winner, lost_to, &beaten);
        let place = self.bench.place;
        let server = place.launch(&settings, Tool::Server, self.ports)?;
        Ok(BenchDocument {
            args: server.args,
            session: self.bench.session,
            stock,
            fit,
            placements,
            confirmations: std::mem::take(&mut self.confirmations),
            settings,
            verdict,
            reason,
            output: None,
            profile: None,
        })
    }

    /// The fastest, or the runner-up where that is near and did better in their interleaved runs; `None` where nothing ran.
    fn best_of_ours(&mut self, placements: &[ArmResult]) -> Result<Option<ArmResult>, Ended> {
        let cost = |a: &ArmResult| a.cost(self.request.goal, self.request.request_shape);
        let mut ranked = self.ranked(placements).into_iter();
        let Some(first) = ranked.next() else {
            return Ok(None);
        };
        let near = ranked.next().filter(|second| {
            let pair = cost(second).zip(cost(&first));
            pair.is_some_and(|(second, first)| second < first * NEAR)
        });
        let Some(second) = near else {
            return Ok(Some(first));
        };
        self.against(&first.settings, &second.settings, false)?;
        let runs = self.ports.store.run_heads(self.bench.session)?;
        let side = runs.last().and_then(|run| run.planned.side);
        let objective = self.bench.objective;
        let outcome = self.last.as_ref();
        let taken = outcome.is_some_and(|o| own::second_is_taken(o, objective, side));
        Ok(Some(if taken { second } else { first }))
    }

    /// Why the last comparison rejects what it found faster.
    fn rejection(&self) -> Option<String> {
        let last = self.last.as_ref()?.confirmation.as_ref()?;
        last.rejected.map(|_| last.reason.clone())
    }

    /// An interleaved confirmation, `guarded` where B shall replace A; `None` where an arm fails in it.
    fn against(
        &mut self,
        a: &Settings,
        b: &Settings,
        guarded: bool,
    ) -> Result<Option<Verdict>, Ended> {
        let plan = AbPlan {
            objective: self.bench.objective.clone(),
            a: a.clone(),
            b: b.clone(),
            repetitions: Some(REPETITIONS),
            processes: Some(self.request.processes.unwrap_or(PROCESSES)),
            guarded,
        };
        let before = u32::try_from(self.bench.run_ids.len()).unwrap_or(u32::MAX);
        let mut driver: Ab = Driver::new(plan).after(before);
        let outcome = self.bench.drive(&mut driver, self.context)?;
        let judged = outcome.confirmation.as_ref();
        self.confirmations
            .extend(judged.map(report::confirmation_document));
        let verdict = outcome.verdict;
        self.last = Some(outcome);
        Ok(verdict)
    }

    /// What the history shows of the session: the comparison its choice rests on.
    fn summary(&self, bench: &BenchDocument, overhead: Overhead) -> AbDocument {
        let place = self.bench.place;
        let arm = |settings: &Settings| ArmDocument {
            arm: settings_phrase(settings),
            settings: settings.clone(),
            runtime: place.runtime.name.clone(),
        };
        let last = self.last.as_ref().and_then(|l| l.confirmation.as_ref());
        let stock = Settings::stock();
        AbDocument {
            schema: report::SCHEMA,
            session: Some(self.bench.session),
            fingerprint: place.fingerprint.hash.clone(),
            model: ModelDocument {
                name: place.model.name.clone(),
                path: place.model.path.clone(),
                digest: None,
            },
            goal: Some(self.request.goal),
            primary: self.bench.objective.primary(),
            a: arm(last.map_or(&stock, |c| &c.baseline)),
            b: arm(last.map_or(&bench.settings, |c| &c.settings)),
            confirmation: last.map(report::confirmation_document),
            verdict: bench.verdict,
            reason: bench.reason.clone(),
            chosen: Some(bench.settings.clone()),
            live: None,
            notices: Vec::new(),
            overhead: Some(overhead),
        }
    }
}

/// The settings to use, and why.
fn chosen(winner: &ArmResult, lost_to: Option<Lost>, beaten: &[&str]) -> (Settings, String) {
    let placement = winner.settings.0.get(PLACEMENT);
    let placement = placement.map_or("stock", String::as_str);
    match lost_to {
        Some(Lost {
            to,
            settings,
            why,
            outcome,
        }) => {
            let slower = outcome.is_some_and(|o| o.verdict == Some(Verdict::Regressed));
            let reason = match why {
                Some(why) => format!("{placement} against {to}: {why}; {to} stays"),
                None if slower => format!("{placement} is slower than {to}, which stays"),
                None => format!("{placement} is not shown to be faster than {to}, which stays"),
            };
            (settings, reason)
        }
        None if beaten.is_empty() => (
            winner.settings.clone(),
            format!("nothing else that keeps to the memory runs here: {placement} does"),
        ),
        None => (
            winner.settings.clone(),
            format!("{placement} is faster than {}", beaten.join(" and ")),
        ),
    }
}
