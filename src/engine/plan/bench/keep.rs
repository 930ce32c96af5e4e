//! What stays of a benchmark: the profile, the fit, and what its predictions were worth.

use crate::domain::search::Tool;
use crate::domain::types::{Profile, Settings, Verdict};
use crate::engine::install::to_json;
use crate::engine::job::Ended;
use crate::engine::message::JobError;
use crate::engine::plan::{FitDocument, PlanBase, PredictionError};
use crate::engine::settings::PLACEMENT;
use crate::ports::{NewProfile, Notice, NoticeLevel};

use super::{ArmResult, BenchDocument, Session};

impl Session<'_, '_> {
    /// A profile of a placement that beat what it was confirmed against.
    pub(super) fn save(&mut self, document: &mut BenchDocument) -> Result<Option<i64>, Ended> {
        let (place, ports) = (self.bench.place, self.ports);
        let won = document.verdict == Some(Verdict::Improved) && !document.settings.is_stock();
        let verdicts = ports.store.verdicts(self.bench.session)?;
        let confirmed = verdicts
            .iter()
            .rev()
            .find(|v| v.settings == document.settings && v.verdict == Verdict::Improved);
        let Some(verdict) = confirmed.filter(|_| won) else {
            return Ok(None);
        };
        if let Some(better) = self.refined(&document.settings)? {
            let told = format!(
                "profile {better} has this placement with settings that a search found on it: it stays"
            );
            let told = Notice {
                level: NoticeLevel::Info,
                code: "profile-kept".to_owned(),
                text: told,
            };
            self.bench.tell(&[told], self.context)?;
            return Ok(None);
        }
        let output = self.bench.check_output(&document.settings, self.context)?;
        if !output.passes() {
            // What is saved nowhere is nothing to start from either.
            let stock = place.launch(&Settings::stock(), Tool::Server, ports)?;
            document.reason = format!(
                "{}, but it does not stay: {}",
                document.reason,
                output.sentence()
            );
            (document.settings, document.args) = (Settings::stock(), stock.args);
            document.output = Some(output);
            return Ok(None);
        }
        document.output = Some(output);
        let written = |tool| place.launch(&document.settings, tool, ports);
        let profile = Profile {
            id: 0,
            session: self.bench.session,
            fingerprint: place.fingerprint.hash.clone(),
            runtime_digest: place.runtime.digest.clone(),
            model_digest: place.model.digest.clone(),
            goal: self.request.goal,
            bench: written(Tool::Bench)?,
            server: written(Tool::Server)?,
            settings: document.settings.clone(),
            created_at: ports.clock.now(),
            simulated: place.machine.simulated,
        };
        let runs = ports.store.run_heads(self.bench.session)?;
        let introduced = runs
            .iter()
            .find(|r| r.planned.settings == document.settings);
        let introduced = introduced.map(|r| (PLACEMENT.to_owned(), r.id));
        Ok(Some(ports.store.save_profile(&NewProfile {
            profile,
            introduced_by: introduced.into_iter().collect(),
            verdict_id: verdict.id,
        })?))
    }

    /// The profile in use for this goal, where it is these settings and more.
    fn refined(&self, settings: &Settings) -> Result<Option<i64>, JobError> {
        let place = self.bench.place;
        let current = self.ports.store.profiles()?.into_iter().find(|p| {
            p.fingerprint == place.fingerprint.hash
                && p.model_digest == place.model.digest
                && p.goal == self.request.goal
                && p.simulated == place.machine.simulated
        });
        let has = |p: &Profile| {
            settings
                .0
                .iter()
                .all(|(k, v)| p.settings.0.get(k) == Some(v))
        };
        Ok(current
            .filter(|p| has(p) && p.settings != *settings)
            .map(|p| p.id))
    }

    /// The fit after everything, with what the predictions before it were worth.
    pub(super) fn keep_fit(&self, after: &mut PlanBase, arms: &[ArmResult]) -> Result<(), Ended> {
        let now = self.ports.clock.now();
        let error = PredictionError::of(arms, &after.layout.info.name, now);
        let document = FitDocument {
            history: Vec::new(),
            ..FitDocument::of(after)
        };
        let document = PredictionError::kept_in(error.as_ref(), to_json(&document)?);
        after.errors.extend(error);
        self.ports
            .store
            .append_fit(&self.bench.place.fingerprint, now, &document)?;
        Ok(())
    }
}
