//! Screening: one dimension after the other on top of the best so far (paper section 2.3). Cheap and fallible: what it
//! finds is only a finalist.

use crate::domain::text;
use crate::domain::types::Stage;

use super::offer::Refusal;
use super::outcome::StaleCheck;
use super::plan::{CONFIRMATION_RESERVE, DROP_ONE_RUNS, PAIR_RESERVE};
use super::session::{Known, Session};
use super::trials::{Search, TriedValue};

/// Code of the remark that the time limit left candidates untried.
pub(super) const TIME_LIMIT: &str = "time-limit";
/// Code of the remark that the process budget did.
pub(super) const PROCESS_BUDGET: &str = "process-budget";

impl<'h> Search<'_, 'h> {
    /// Screens a stale profile's settings, then every value on offer.
    pub fn screen(&mut self, session: &mut Session<'h>) -> Known<()> {
        let plan = self.plan;
        let trials: Vec<(&str, &str)> = plan
            .offer
            .dimensions
            .iter()
            .flat_map(|d| d.values.iter().map(|v| (d.id.as_str(), v.id.as_str())))
            .collect();
        session.enter(Stage::Screening);
        self.screen_stale(session)?;
        for (i, &(dimension, value)) in trials.iter().enumerate() {
            session.expect(u32::try_from(trials.len() - i).unwrap_or(u32::MAX) + 2);
            if i > 0 && i == trials.len() / 2 {
                self.rerun_baseline(session)?;
            }
            if self.must_stop(session, trials.len() - i) {
                break;
            }
            self.screen_value(session, dimension, value)?;
        }
        session.expect(1);
        self.rerun_baseline(session)?;
        if let Some(drift) = self.baseline.drift_pct() {
            session.remark(
                true,
                "drift",
                format!(
                    "the baseline drifted by {} while screening; readings are corrected for it",
                    text::change(drift, 1)
                ),
            );
        }
        Ok(())
    }

    fn screen_stale(&mut self, session: &mut Session<'h>) -> Known<()> {
        let Some(settings) = self.plan.first_candidate.clone() else {
            return Ok(());
        };
        let missing = settings
            .0
            .iter()
            .find(|(d, v)| self.plan.offer.find(d, v).is_none());
        let (reproduced, text) = if let Some((d, v)) = missing {
            (
                false,
                format!("the old profile ({settings}) was not tried: {d}={v} is not on offer here"),
            )
        } else {
            let purpose = format!("old profile: {settings}");
            let tried = self.try_on_top(session, Stage::Screening, &settings, &purpose, 0.0)?;
            let candidate = &self.candidates[tried.index];
            let change = candidate.change_pct.map_or_else(
                || candidate.reason.clone().unwrap_or_default(),
                |c| format!("{} in screening", text::change(c, 1)),
            );
            let was = if tried.adopted { "was" } else { "was not" };
            (
                tried.adopted,
                format!("the old profile's gain {was} reproduced ({settings}: {change})"),
            )
        };
        session.remark(false, "stale-profile", text.clone());
        self.stale = Some(StaleCheck {
            settings,
            reproduced,
            text,
        });
        Ok(())
    }

    fn screen_value(
        &mut self,
        session: &mut Session<'h>,
        dimension: &str,
        value: &str,
    ) -> Known<()> {
        let (base, best) = (self.best(), self.best_settings());
        if best.0.get(dimension).is_some_and(|v| v == value) {
            return Ok(());
        }
        let settings = match self.plan.offer.compose(&best, dimension, value) {
            Ok(settings) => settings,
            Err(reason) => {
                self.refused.push(Refusal {
                    dimension: dimension.to_owned(),
                    value: Some(value.to_owned()),
                    reason,
                });
                return Ok(());
            }
        };
        let purpose = format!("{dimension}={value}");
        let tried = self.try_on_top(session, Stage::Screening, &settings, &purpose, 0.0)?;
        if !tried.adopted {
            self.tried_values.push(TriedValue {
                dimension: dimension.to_owned(),
                value: value.to_owned(),
                candidate: tried.index,
                base,
            });
        }
        Ok(())
    }

    /// No further candidate: out of time, or what is left is needed to confirm.
    fn must_stop(&self, session: &mut Session<'h>, untried: usize) -> bool {
        let candidates = || text::count(untried as u64, "candidate");
        if self.out_of_time(session) {
            session.remark(
                true,
                TIME_LIMIT,
                format!("the time limit was reached with {} untried: only what is known by now can be confirmed", candidates()),
            );
            return true;
        }
        // Two baseline runs may still come.
        let reserve = CONFIRMATION_RESERVE + DROP_ONE_RUNS + PAIR_RESERVE + 2;
        if session.left() <= reserve {
            session.remark(
                true,
                PROCESS_BUDGET,
                format!("{} left untried, for a session has {}; choose with --only, or allow more with --max-processes", candidates(), text::count(self.plan.max_processes.into(), "process")),
            );
            return true;
        }
        false
    }

    /// One more baseline run; that it failed is only told.
    pub fn rerun_baseline(&mut self, session: &mut Session<'h>) -> Known<()> {
        if let Err(failure) = self
            .baseline
            .rerun(session, self.plan.screening_repetitions)?
        {
            session.remark(
                true,
                "baseline-failed",
                format!("a re-run of the baseline failed ({failure}): drift is not known there"),
            );
            self.probe_if_lost(session, &failure)?;
        }
        Ok(())
    }
}
