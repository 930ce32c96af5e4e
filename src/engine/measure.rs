//! Walks a method run by run: measure, store, announce, record — always in this order, so that nothing announced is lost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::search::{Driver, Method, Objective, Step, Tool, TuneNote};
use crate::domain::server::seed_of;
use crate::domain::telemetry::around::{BEFORE_SECS, Begun, Course, around};
use crate::domain::time_limit::time_limit_secs;
use crate::domain::types::{
    Backend, Failure, FailureClass, LiveAsk, PlannedRun, Run, RunOutcome, RunRequest, Runtime,
    Side, TestSpec, TextKind,
};
use crate::ports::{Notice, NoticeLevel};

use super::Ports;
use super::announce::{event_of, notice_of};
use super::job::{Ended, JobContext};
use super::message::{EventKind, JobError};
use super::settings;
use super::telemetry::LONGEST_INTERVAL;
use super::watch::Watch;
use super::workplace::Workplace;

/// A method's runs on one or two builds.
pub(super) struct Bench<'a> {
    pub ports: &'a Ports,
    pub place: &'a Workplace,
    /// Build of arm B, where it is another one.
    pub other: Option<&'a Runtime>,
    pub objective: &'a Objective,
    pub session: i64,
    /// What prompts to live servers are made of.
    pub text: TextKind,
    /// The session was begun before.
    pub goes_on: bool,
    /// Row ids of the session's runs, by their place.
    pub run_ids: Vec<i64>,
    /// Seconds inside llama.cpp's processes.
    pub run_secs: f64,
    /// The longest valid run of the session: what the next may be compared with.
    longest_secs: Option<f64>,
    /// When the process before had ended.
    ended: Cell<Option<Duration>>,
    /// Kinds of doubts that were told.
    pub doubted: BTreeSet<String>,
}

impl<'a> Bench<'a> {
    pub fn new(
        ports: &'a Ports,
        place: &'a Workplace,
        objective: &'a Objective,
        session: i64,
    ) -> Self {
        Self {
            ports,
            place,
            other: None,
            objective,
            session,
            text: TextKind::default(),
            goes_on: false,
            run_ids: Vec::new(),
            run_secs: 0.0,
            longest_secs: None,
            ended: Cell::new(None),
            doubted: BTreeSet::new(),
        }
    }

    /// A driver brought to where the stored runs end; what was judged but not stored by a killed Flux is stored now.
    pub fn resume<M: Method>(&mut self, plan: M) -> Result<Driver<M>, Ended> {
        let (store, now) = (&self.ports.store, self.ports.clock.now());
        // One that is killed from here on must not read as it ended before.
        let had_ended = store.resume_session(self.session, now)?;
        let stored = store.runs(self.session)?;
        self.goes_on = had_ended || !stored.is_empty();
        let runs = stored.iter().map(|s| (&s.planned, &s.run));
        let driver =
            Driver::resume(plan, runs).map_err(|e| JobError::new("resume", e.to_string()))?;
        self.run_ids = stored.iter().map(|s| s.id).collect();
        for stored in &stored {
            self.count(&stored.run);
            self.new_doubts(&stored.run);
        }
        let notices = self.ports.store.notices(self.session)?;
        let mut judged = self.ports.store.verdicts(self.session)?.len();
        for note in driver.notes() {
            match note {
                TuneNote::Judged { .. } if judged > 0 => judged -= 1,
                TuneNote::Notice(remark) if notices.contains(&notice_of(remark)) => {}
                note => self.keep(note)?,
            }
        }
        Ok(driver)
    }

    /// Makes runs until the method is done or the job is cancelled.
    pub fn drive<M: Method>(
        &mut self,
        driver: &mut Driver<M>,
        context: &mut JobContext,
    ) -> Result<M::Outcome, Ended> {
        let mut stage = None;
        loop {
            // Before the end is looked at: a job cancelled during its last run saves no profile either.
            if context.cancel.is_cancelled() {
                return Err(self.cancelled());
            }
            let planned = match driver.next() {
                Step::Done(outcome) => return Ok(*outcome),
                Step::Run(planned) => planned,
            };
            if stage != Some(planned.stage) {
                stage = Some(planned.stage);
                context.emit(EventKind::Stage {
                    name: planned.stage.words().to_owned(),
                });
            }
            let at = driver.progress();
            let run = self.measure(&planned, (at.done, at.total, at.eta_secs), context)?;
            if run.outcome == RunOutcome::Cancelled {
                return Err(self.cancelled());
            }
            self.store_run(&planned, &run, context)?;
            for note in driver.record(&run) {
                self.keep(&note)?;
                if let Some(kind) = event_of(note) {
                    context.emit(kind);
                }
            }
        }
    }

    pub(super) fn cancelled(&self) -> Ended {
        Ended::Cancelled {
            kept_runs: u32::try_from(self.run_ids.len()).unwrap_or(u32::MAX),
            session: Some(self.session),
        }
    }

    /// Makes one run that no method asked for: measured, stored, announced. `(done, expected)` is where the job is.
    pub fn one(
        &mut self,
        planned: &PlannedRun,
        (done, total): (u32, u32),
        context: &mut JobContext,
    ) -> Result<Run, Ended> {
        if context.cancel.is_cancelled() {
            return Err(self.cancelled());
        }
        let run = self.measure(planned, (done, total, None), context)?;
        if run.outcome == RunOutcome::Cancelled {
            return Err(self.cancelled());
        }
        self.store_run(planned, &run, context)?;
        Ok(run)
    }

    fn measure(
        &self,
        planned: &PlannedRun,
        (done, total, eta_secs): (u32, u32, Option<f64>),
        context: &mut JobContext,
    ) -> Result<Run, Ended> {
        let request = self.request(planned)?;
        let (done, total) = (u64::from(done), u64::from(total));
        let (cancel, watch) = (context.cancel.clone(), context.watch.clone());
        let mut show = |doing: &str| context.progress(done, total, eta_secs, doing);
        show(&planned.purpose);
        let clock = &self.ports.clock;
        let started = clock.elapsed();
        let mut begun = Vec::new();
        watch.boundary();
        let processor = self.ports.telemetry.processor_time();
        let runner = match self.tool(&request.runtime) {
            Tool::Bench => &self.ports.runner,
            Tool::Server => &self.ports.live,
        };
        let mut run = runner.run(&request, &cancel, &mut |at| {
            begun.push((at.test.clone(), at.repetition, clock.elapsed()));
            watch.boundary();
            show(&format!(
                "{}: {} {} of {}",
                planned.purpose, at.test, at.repetition, at.repetitions
            ));
        });
        let now = self.ports.telemetry.processor_time();
        let others = now.zip(processor).and_then(|(n, p)| n.others_since(p));
        self.sense(&mut run, started, &begun, others, &watch);
        self.ended.set(Some(clock.elapsed()));
        Ok(run)
    }

    /// Attaches what the sensors said around a valid run.
    fn sense(
        &self,
        run: &mut Run,
        started: Duration,
        begun: &[(String, u32, Duration)],
        other_load_pct: Option<f64>,
        watch: &Watch,
    ) {
        let RunOutcome::Valid { tests } = &mut run.outcome else {
            return;
        };
        watch.last_boundary();
        let before = started.saturating_sub(Duration::from_secs_f64(BEFORE_SECS));
        // A reading before each window belongs to it.
        let readings = watch.since(before.saturating_sub(LONGEST_INTERVAL));
        if !readings.is_empty() {
            let begun: Vec<Begun> = begun
                .iter()
                .filter_map(|(label, repetition, at)| {
                    let of_label = |t: &&TestSpec| t.to_string() == *label;
                    Some(Begun {
                        test: *self.objective.tests().iter().find(of_label)?,
                        repetition: repetition.checked_sub(1)? as usize,
                        at: at.as_secs_f64(),
                    })
                })
                .collect();
            let device = self.place.sensors();
            let course = Course {
                ended_before: self.ended.get().map(|end| end.as_secs_f64()),
                started: started.as_secs_f64(),
                begun: &begun,
                device: device.as_deref(),
                interval_secs: watch.interval().as_secs_f64(),
                other_load_pct,
            };
            run.telemetry = Some(Box::new(around(&readings, &course, tests)));
            if self.place.target.is_shared(&self.place.runtime) {
                // One GPU's energy is not what the tokens cost.
                for test in tests.iter_mut() {
                    test.energy = None;
                }
            }
        }
        if self.objective.needs_energy() && !self.objective.has_energy(tests) {
            let detail = "the sensors told no energy of its repetitions";
            run.outcome = RunOutcome::Failed {
                failure: Failure::new(FailureClass::NoEnergy, detail),
                salvaged: tests.drain(..).map(|t| t.record).collect(),
            };
        }
    }

    fn request(&self, planned: &PlannedRun) -> Result<RunRequest, JobError> {
        let runtime = match planned.side {
            Some(Side::B) => self.other.unwrap_or(&self.place.runtime),
            _ => &self.place.runtime,
        };
        let (model, ports) = (&self.place.model, self.ports);
        let layout = || Ok(ports.models.layout(&model.path)?);
        let space = &self.place.space;
        let tool = self.tool(runtime);
        let own = settings::launch(&planned.settings, space, tool, runtime, layout)?;
        let number = self.run_ids.len() as u64;
        Ok(RunRequest {
            runtime: runtime.clone(),
            model: self.place.model.path.clone(),
            tests: self.objective.tests().to_vec(),
            repetitions: planned.repetitions,
            launch: self.place.target.joined(own, tool),
            expect: settings::expectations(&planned.settings, space)?,
            gpu_required: self.place.target.backend != Backend::Cpu
                && settings::offloads(&planned.settings),
            time_limit_secs: time_limit_secs(
                self.place.model.file_bytes.0,
                self.objective.tests(),
                planned.repetitions,
                self.longest_secs,
            ),
            early_stop: planned.early_stop.clone(),
            log_buffers: planned.log_buffers,
            live: LiveAsk {
                seed: seed_of(&[self.session.unsigned_abs(), number]),
                text: self.text,
                clients: planned.clients,
                model_bytes: self.place.model.file_bytes,
            },
        })
    }

    /// What a build is measured with: llama-bench, unless requests are what is measured or there is no llama-bench.
    fn tool(&self, runtime: &Runtime) -> Tool {
        if self.objective.is_live() || runtime.bench.is_none() {
            Tool::Server
        } else {
            Tool::Bench
        }
    }

    fn count(&mut self, run: &Run) {
        self.run_secs += run.wall_secs;
        if matches!(run.outcome, RunOutcome::Valid { .. }) {
            self.longest_secs = Some(
                self.longest_secs
                    .map_or(run.wall_secs, |l| l.max(run.wall_secs)),
            );
        }
    }

    fn store_run(
        &mut self,
        planned: &PlannedRun,
        run: &Run,
        context: &mut JobContext,
    ) -> Result<(), Ended> {
        let seq = u32::try_from(self.run_ids.len()).unwrap_or(u32::MAX);
        let id = self
            .ports
            .store
            .append_run(self.session, seq, planned, run)?;
        self.run_ids.push(id);
        self.count(run);
        context.emit(self.stored(id, seq, planned, run));
        let told = self.new_doubts(run).into_iter().map(|doubt| Notice {
            level: NoticeLevel::Warning,
            code: "doubtful-run".to_owned(),
            text: format!("run {}: {doubt}", seq + 1),
        });
        self.tell(&told.collect::<Vec<_>>(), context)
    }

    /// Stores what is evidence among the notes.
    fn keep(&self, note: &TuneNote) -> Result<(), Ended> {
        match note {
            TuneNote::Judged { confirmation } => {
                let detail = super::install::to_json(confirmation)?;
                self.ports.store.append_verdict(
                    self.session,
                    &confirmation.settings,
                    confirmation.verdict,
                    &detail,
                )?;
            }
            TuneNote::Notice(remark) => {
                self.ports
                    .store
                    .append_notice(self.session, &notice_of(remark))?;
            }
            _ => {}
        }
        Ok(())
    }
}
