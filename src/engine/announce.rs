//! What the readers of a measuring job are told: notices, runs, and what a method makes of them.

use std::collections::BTreeMap;

use crate::domain::doctor::{self, Facts, Level, settings_file};
use crate::domain::search::{Driver, Method, Objective, Remark, TuneNote};
use crate::domain::telemetry::around::{held_down, kind_of};
use crate::domain::text::{count, energy_line};
use crate::domain::types::{PlannedRun, Run, RunOutcome, TestSpec, Verdict};
use crate::ports::{Notice, NoticeLevel};

use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{CandidateResult, EventKind, StageInfo};
use super::report;

impl Bench<'_> {
    /// Tells, and keeps with the session, what may spoil it now and what is kept away from its runs.
    pub fn tell_conditions(&self, context: &mut JobContext) -> Result<(), Ended> {
        let machine = &self.place.machine;
        let inherited = machine.inherited_env.keys().map(|name| Notice {
            level: NoticeLevel::Info,
            code: "inherited-env".to_owned(),
            text: format!("{name} is set here; no run of Flux inherits it"),
        });
        let mut told: Vec<Notice> = inherited.collect();
        let configs = machine.llama_configs.iter().filter_map(settings_file);
        told.extend(configs.filter(|f| f.level == Level::Info).map(|f| Notice {
            level: NoticeLevel::Info,
            code: f.code,
            text: format!("{}; no run of Flux reads it", f.title),
        }));
        let runtimes = [Some(&self.place.runtime), self.other];
        let without_bench = runtimes.into_iter().flatten().filter(|r| r.bench.is_none());
        if !self.objective.is_live() {
            told.extend(without_bench.map(|runtime| Notice {
                level: NoticeLevel::Info,
                code: "through-server".to_owned(),
                text: format!(
                    "{} has no llama-bench: it is measured by new prompts to its llama-server, whose settings cannot be read back",
                    runtime.name
                ),
            }));
        }
        // The momentary readings of an exported machine say nothing of this one.
        if !machine.simulated {
            let found = doctor::findings(machine, &Facts::default()).into_iter();
            told.extend(found.filter(|f| f.level == Level::Warning).map(|f| Notice {
                level: NoticeLevel::Warning,
                code: f.code,
                text: format!("{}; {}", f.title, f.advice),
            }));
        }
        self.tell(&told, context)
    }

    /// Tells notices, and keeps them with the session.
    pub fn tell(&self, notices: &[Notice], context: &mut JobContext) -> Result<(), Ended> {
        let kept = self.ports.store.notices(self.session)?;
        for notice in notices {
            if !kept.contains(notice) {
                self.ports.store.append_notice(self.session, notice)?;
            }
            context.emit(EventKind::Notice(notice.clone()));
        }
        Ok(())
    }

    /// Doubts of kinds that no run before had.
    pub fn new_doubts(&mut self, run: &Run) -> Vec<String> {
        let doubts = run.telemetry.iter().flat_map(|t| &t.doubts);
        doubts
            .filter(|doubt| self.doubted.insert(kind_of(doubt)))
            .cloned()
            .collect()
    }

    /// Offers the reason that the sensors know for runs too unlike each other to decide.
    pub fn tell_reason(
        &self,
        verdict: Option<Verdict>,
        context: &mut JobContext,
    ) -> Result<(), Ended> {
        if verdict != Some(Verdict::Inconclusive) {
            return Ok(());
        }
        let runs = self.ports.store.run_heads(self.session)?;
        let told = held_down(runs.iter().filter_map(|run| run.telemetry.as_deref()));
        let notice = told.map(|text| Notice {
            level: NoticeLevel::Warning,
            code: "held-down".to_owned(),
            text,
        });
        self.tell(notice.as_slice(), context)
    }

    /// The event of a run that is stored.
    pub fn stored(&self, id: i64, seq: u32, planned: &PlannedRun, run: &Run) -> EventKind {
        let (metrics, failure) = shown(run, self.objective);
        let (scores, energy) = match &run.outcome {
            RunOutcome::Valid { tests } => (
                self.objective.repetition_scores(tests),
                tests.iter().filter_map(energy_line).collect(),
            ),
            _ => (Vec::new(), Vec::new()),
        };
        EventKind::RunStored {
            run: id,
            seq,
            planned: Box::new(planned.clone()),
            metrics,
            scores,
            energy,
            failure,
            wall_secs: run.wall_secs,
        }
    }

    /// Tells again what the runs kept of a session that goes on had shown, and that it goes on.
    pub fn tell_kept<M: Method>(&self, plan: M, context: &mut JobContext) -> Result<(), Ended> {
        if self.run_ids.is_empty() {
            return Ok(());
        }
        let mut driver = Driver::new(plan);
        let mut tell = |kind: EventKind| context.emit(EventKind::Earlier(Box::new(kind)));
        for kept in self.ports.store.runs(self.session)? {
            // Asking for the next run tells of a confirmation that is planned before it.
            driver.next();
            tell(self.stored(kept.id, kept.seq, &kept.planned, &kept.run));
            driver
                .record(&kept.run)
                .into_iter()
                .filter_map(event_of)
                .for_each(&mut tell);
        }
        let runs = count(self.run_ids.len() as u64, "run");
        let kept = format!("goes on after the {runs} kept of session {}", self.session);
        context.notice(NoticeLevel::Info, "resumed", kept);
        Ok(())
    }
}

/// The stages of a method, for determinate progress.
pub(super) fn stage_infos<M: Method>(driver: &Driver<M>) -> Vec<StageInfo> {
    let stages = &driver.progress().stages;
    stages
        .iter()
        .map(|s| StageInfo {
            name: s.stage.words().to_owned(),
            runs: s.expected,
        })
        .collect()
}

/// Mean rate per metric, or why there are none.
fn shown(run: &Run, objective: &Objective) -> (BTreeMap<String, f64>, Option<String>) {
    match &run.outcome {
        RunOutcome::Valid { tests } => {
            let metrics = objective.metrics().into_iter();
            let of = |(label, test, unit): (String, TestSpec, f64)| {
                let samples = tests.iter().find(|t| t.test == test)?;
                Some((label, samples.mean_rate() / unit))
            };
            (metrics.filter_map(of).collect(), None)
        }
        RunOutcome::Failed { failure, .. } => (BTreeMap::new(), Some(failure.to_string())),
        RunOutcome::StoppedEarly {
            test,
            repetition_secs,
            limit_secs,
        } => (
            BTreeMap::new(),
            Some(format!(
                "stopped early: one repetition of {test} took over {repetition_secs:.1} s, the limit was {limit_secs:.1} s"
            )),
        ),
        RunOutcome::Cancelled => (BTreeMap::new(), Some("cancelled".to_owned())),
    }
}

/// What readers are told of a note.
pub(super) fn event_of(note: TuneNote) -> Option<EventKind> {
    Some(match note {
        // Announced when its first run begins, so that a stage without runs is never shown.
        TuneNote::Stage { .. } => return None,
        TuneNote::Screened { candidate } => EventKind::Screened(CandidateResult {
            id: candidate.id,
            settings: candidate.settings,
            metrics: candidate.metrics,
            status: candidate.status.name().to_owned(),
            reason: candidate.reason,
            change_pct: candidate.change_pct,
        }),
        TuneNote::ConfirmationPlanned {
            settings,
            processes,
            repetitions,
            smallest_effect_pct,
        } => EventKind::ConfirmationPlanned {
            settings,
            processes,
            repetitions,
            smallest_effect_pct,
        },
        TuneNote::Judged { confirmation } => EventKind::Verdict {
            settings: confirmation.settings.clone(),
            confirmation: serde_json::to_value(report::confirmation_document(&confirmation))
                .unwrap_or_default(),
        },
        TuneNote::Notice(remark) => EventKind::Notice(notice_of(&remark)),
    })
}

/// A notice of the method, as every reader knows notices.
pub(super) fn notice_of(remark: &Remark) -> Notice {
    Notice {
        level: if remark.warning {
            NoticeLevel::Warning
        } else {
            NoticeLevel::Info
        },
        code: remark.code.clone(),
        text: remark.text.clone(),
    }
}
