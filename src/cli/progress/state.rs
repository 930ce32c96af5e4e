//! What is known of a running job: a pure reducer over engine events, and the lines it is shown in.

use serde::Deserialize as _;

use crate::cli::output::notice_line;
use crate::domain::text::{
    capitalised, change, clean, count, quantity, rate, settings_phrase, settings_words, span,
};
use crate::domain::types::{PlannedRun, Settings};
use crate::engine::message::{CandidateResult, EventKind, StageInfo};

/// Candidates of the ranking shown while a job runs: the rest is in the result.
const RANKING_LINES: usize = 6;

/// What is known of a running job.
#[derive(Debug, Clone, Default)]
pub struct State {
    job_kind: String,
    plan: Vec<StageInfo>,
    stage: String,
    done: u64,
    total: u64,
    eta_secs: Option<f64>,
    doing: String,
    ranking: Vec<CandidateResult>,
}

impl State {
    /// Takes an event in.
    pub fn apply(&mut self, event: &EventKind) {
        match event {
            EventKind::Started { job_kind, plan, .. } => {
                *self = Self {
                    job_kind: job_kind.clone(),
                    plan: plan.clone(),
                    ..Self::default()
                };
            }
            EventKind::Stage { name } => {
                self.stage.clone_from(name);
            }
            EventKind::Progress {
                done,
                total,
                eta_secs,
                doing,
            } => {
                self.done = *done;
                self.total = *total;
                self.eta_secs = *eta_secs;
                self.doing.clone_from(doing);
            }
            EventKind::Screened(candidate) => self.rank(candidate),
            EventKind::Earlier(earlier) => self.apply(earlier),
            _ => {}
        }
    }

    /// The best first; a candidate without a result last.
    fn rank(&mut self, candidate: &CandidateResult) {
        self.ranking.retain(|known| known.id != candidate.id);
        self.ranking.push(candidate.clone());
        let key = |c: &CandidateResult| c.change_pct.unwrap_or(f64::NEG_INFINITY);
        self.ranking.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }

    /// The job counts runs; others count bytes or steps.
    pub fn measures(&self) -> bool {
        matches!(self.job_kind.as_str(), "tune" | "ab" | "serve-check")
    }

    /// `Screening (stage 2 of 4)`; before the first stage, what kind of job it is.
    fn stage_words(&self) -> String {
        if self.stage.is_empty() {
            return match self.job_kind.as_str() {
                "bandwidth" => "Measuring bandwidths".to_owned(),
                "install" => "Installing llama.cpp".to_owned(),
                "synth" => "Writing the model".to_owned(),
                "serve" => "Loading the model".to_owned(),
                other => capitalised(&clean(other)),
            };
        }
        let name = capitalised(&clean(&self.stage));
        match self.plan.iter().position(|stage| stage.name == self.stage) {
            Some(at) => format!("{name} (stage {} of {})", at + 1, self.plan.len()),
            None => name,
        }
    }

    /// `Screening (stage 2 of 4) · run 12 of 34 · about 4 min left`.
    fn headline(&self) -> String {
        let mut parts = vec![self.stage_words()];
        if self.total > 0 && self.measures() {
            parts.push(format!(
                "run {} of {}",
                (self.done + 1).min(self.total),
                self.total
            ));
        } else if self.total > 0 && self.done > 0 {
            parts.push(format!(
                "{:.0} %",
                100.0 * self.done as f64 / self.total as f64
            ));
        }
        if let Some(eta) = self.eta_secs {
            parts.push(format!("about {} left", span(eta)));
        }
        parts.join(" · ")
    }

    /// The live block, each line cut to `width`.
    pub fn block(&self, width: usize) -> Vec<String> {
        let mut lines = vec![self.headline()];
        if !self.doing.is_empty() {
            lines.push(format!("  {}", clean(&self.doing)));
        }
        for (place, candidate) in self.ranking.iter().take(RANKING_LINES).enumerate() {
            lines.push(format!(
                "  {:>2}. {}",
                place + 1,
                candidate_words(candidate)
            ));
        }
        if self.ranking.len() > RANKING_LINES {
            lines.push(format!(
                "      and {} more",
                self.ranking.len() - RANKING_LINES
            ));
        }
        lines.iter().map(|line| cut(line, width)).collect()
    }
}

/// `Graphics queue on  +67.5 %`, or what became of it.
fn candidate_words(candidate: &CandidateResult) -> String {
    let name = settings_words(&candidate.settings);
    match (candidate.change_pct, &candidate.reason) {
        (Some(pct), _) if candidate.status == "ok" => format!("{name}  {}", change(pct, 1)),
        (_, Some(reason)) => format!("{name}  {}: {}", clean(&candidate.status), clean(reason)),
        _ => format!("{name}  {}", clean(&candidate.status)),
    }
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars()
        .take(width.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// The line that stays behind for an event, where one is worth keeping.
pub fn lasting_line(event: &EventKind) -> Option<String> {
    match event {
        EventKind::Started {
            session, goes_on, ..
        } => session.map(|id| {
            format!(
                "session {id} {}",
                if *goes_on { "goes on" } else { "began" }
            )
        }),
        EventKind::Stage { name } => Some(format!("{}:", clean(name))),
        EventKind::RunStored {
            seq,
            planned,
            metrics,
            failure,
            wall_secs,
            ..
        } => Some(run_line(
            *seq,
            planned,
            metrics,
            failure.as_deref(),
            *wall_secs,
        )),
        EventKind::Screened(candidate) => {
            Some(format!("  screened: {}", candidate_words(candidate)))
        }
        EventKind::ConfirmationPlanned {
            settings,
            processes,
            repetitions,
            smallest_effect_pct,
        } => Some(plan_line(
            settings,
            *processes,
            *repetitions,
            *smallest_effect_pct,
        )),
        EventKind::Verdict {
            settings,
            confirmation,
        } => Some(verdict_line(settings, confirmation)),
        EventKind::Serving { url, model, .. } => Some(format!("serving {} at {url}", clean(model))),
        EventKind::Notice(notice) => Some(notice_line(notice)),
        EventKind::Progress { .. } | EventKind::Earlier(_) | EventKind::Finished(_) => None,
    }
}

fn run_line(
    seq: u32,
    planned: &PlannedRun,
    metrics: &std::collections::BTreeMap<String, f64>,
    failure: Option<&str>,
    wall_secs: f64,
) -> String {
    let side = planned
        .side
        .map_or_else(String::new, |side| format!(" arm {side:?}"));
    let outcome = match failure {
        Some(failure) => clean(failure),
        None => metrics
            .iter()
            .map(|(test, value)| match quantity(test, *value) {
                (value, "t/s") => format!("{test} {}", rate(value, None)),
                (value, unit) => format!("{test} {} {unit}", rate(value, None)),
            })
            .collect::<Vec<_>>()
            .join(", "),
    };
    format!(
        "  run {}{side} ({}): {outcome} [{}]",
        seq + 1,
        clean(&planned.purpose),
        span(wall_secs)
    )
}

fn plan_line(
    settings: &Settings,
    processes: u32,
    repetitions: u32,
    smallest_effect_pct: Option<f64>,
) -> String {
    let effect = smallest_effect_pct
        .map(|pct| format!("; an effect of {pct:.1} % or more can be seen"))
        .unwrap_or_default();
    format!(
        "confirming {}: {processes} + {processes} runs of {}{effect}",
        settings_words(settings),
        count(u64::from(repetitions), "repetition"),
    )
}

fn verdict_line(settings: &Settings, confirmation: &serde_json::Value) -> String {
    let verdict = confirmation
        .get("verdict")
        .and_then(serde_json::Value::as_str);
    let baseline = confirmation.get("baseline");
    let baseline = baseline.and_then(|b| Settings::deserialize(b).ok());
    let against = baseline.map_or_else(String::new, |baseline| {
        format!(" against {}", settings_phrase(&baseline))
    });
    format!(
        "{}{against}: {}",
        settings_words(settings),
        clean(verdict.unwrap_or("judged"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{Side, Stage};
    use serde_json::json;
    use std::collections::BTreeMap;

    fn candidate(id: u32, settings: Settings, change_pct: Option<f64>, status: &str) -> EventKind {
        EventKind::Screened(CandidateResult {
            id,
            settings,
            metrics: BTreeMap::new(),
            status: status.to_owned(),
            reason: (status != "ok").then(|| "out of memory".to_owned()),
            change_pct,
        })
    }

    fn screening() -> State {
        let mut state = State::default();
        let stock = Settings::stock();
        for event in [
            EventKind::Started {
                job_kind: "tune".to_owned(),
                session: Some(3),
                goes_on: false,
                plan: ["baseline", "screening", "confirmation"]
                    .map(|name| StageInfo {
                        name: name.to_owned(),
                        runs: 8,
                    })
                    .to_vec(),
                primary: Some("tg128".to_owned()),
            },
            EventKind::Stage {
                name: "screening".to_owned(),
            },
            EventKind::Progress {
                done: 11,
                total: 34,
                eta_secs: Some(240.0),
                doing: "flash-attn=off, tg128, repetition 2 of 3".to_owned(),
            },
            candidate(1, stock.with("flash-attn", "off"), Some(-11.25), "ok"),
            candidate(2, stock.with("ubatch", "4096"), None, "failed"),
            candidate(3, stock.with("graphics-queue", "on"), Some(67.5), "ok"),
        ] {
            state.apply(&event);
        }
        state
    }

    #[test]
    fn the_block_shows_stage_run_time_left_and_the_ranking_best_first() {
        assert_eq!(
            screening().block(80),
            [
                "Screening (stage 2 of 3) · run 12 of 34 · about 4 min left",
                "  flash-attn=off, tg128, repetition 2 of 3",
                "   1. Graphics queue on  +67.5 %",
                "   2. Flash attention off  −11.2 %",
                "   3. Micro-batch 4096  failed: out of memory",
            ]
        );
    }

    #[test]
    fn lines_never_wrap() {
        assert!(
            screening()
                .block(24)
                .iter()
                .all(|line| line.chars().count() <= 24)
        );
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn a_better_second_result_of_a_candidate_replaces_the_first() {
        let mut state = screening();
        state.apply(&candidate(
            1,
            Settings::stock().with("flash-attn", "off"),
            Some(80.0),
            "ok",
        ));
        assert_eq!(state.ranking.len(), 3);
        assert_eq!(state.ranking[0].id, 1);
    }

    #[test]
    fn a_run_is_one_plain_line() {
        let event = EventKind::RunStored {
            run: 9,
            seq: 4,
            planned: Box::new(PlannedRun {
                stage: Stage::Confirmation,
                side: Some(Side::B),
                settings: Settings::stock(),
                repetitions: 3,
                early_stop: None,
                log_buffers: false,
                clients: 1,
                purpose: "graphics-queue=on\u{1b}[2J".to_owned(),
            }),
            metrics: BTreeMap::from([("tg128".to_owned(), 38.2)]),
            scores: vec![38.1, 38.3],
            energy: Vec::new(),
            failure: None,
            wall_secs: 31.0,
        };
        assert_eq!(
            lasting_line(&event).unwrap(),
            "  run 5 arm B (graphics-queue=on\\u{1b}[2J): tg128 38.2 [31 s]"
        );
    }

    #[test]
    fn the_plan_says_the_smallest_effect_before_the_first_run() {
        let event = EventKind::ConfirmationPlanned {
            settings: Settings::stock().with("graphics-queue", "on"),
            processes: 8,
            repetitions: 3,
            smallest_effect_pct: Some(0.94),
        };
        assert_eq!(
            lasting_line(&event).unwrap(),
            "confirming Graphics queue on: 8 + 8 runs of 3 repetitions; an effect of 0.9 % or more can be seen"
        );
    }

    #[test]
    fn bytes_of_a_file_are_shown_as_a_share() {
        let mut state = State::default();
        state.apply(&EventKind::Started {
            job_kind: "synth".to_owned(),
            session: None,
            goes_on: false,
            plan: vec![],
            primary: None,
        });
        state.apply(&EventKind::Progress {
            done: 512,
            total: 2048,
            eta_secs: None,
            doing: "writing random weights".to_owned(),
        });
        assert_eq!(
            state.block(80),
            ["Writing the model · 25 %", "  writing random weights"]
        );
    }

    #[test]
    fn a_verdict_says_against_what() {
        let placed = |words: &str| Settings::stock().with("placement", words);
        let judged = json!({"verdict": "inconclusive", "baseline": placed("ngl=9 ub=512")});
        assert_eq!(
            verdict_line(&placed("ngl=8 ub=512"), &judged),
            "Placement ngl=8 ub=512 against placement ngl=9 ub=512: inconclusive"
        );
        let judged = json!({"verdict": "improved", "baseline": {}});
        assert_eq!(
            verdict_line(&Settings::stock().with("poll", "0"), &judged),
            "CPU polling 0 against stock: improved"
        );
        assert_eq!(
            verdict_line(&Settings::stock(), &json!({})),
            "Stock: judged"
        );
    }
}
