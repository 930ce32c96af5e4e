//! What readers are told of a run and of a method's notes.

use std::collections::BTreeMap;

use crate::domain::search::{Driver, Method, Objective, Remark, TuneNote};
use crate::domain::types::{Run, RunOutcome, TestSpec};
use crate::engine::message::{CandidateResult, EventKind, StageInfo};
use crate::engine::report;
use crate::ports::{Notice, NoticeLevel};

/// The stages of a method, for determinate progress.
pub(in crate::engine) fn stage_infos<M: Method>(driver: &Driver<M>) -> Vec<StageInfo> {
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
pub(super) fn shown(run: &Run, objective: &Objective) -> (BTreeMap<String, f64>, Option<String>) {
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
pub(in crate::engine) fn notice_of(remark: &Remark) -> Notice {
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
