//! What several clients get from one server at the same time (issue: a household, a team): fresh servers with as many slots
//! as clients, few and many clients in turn there and back, so that drift falls evenly on all.

use serde::{Deserialize, Serialize};

use crate::domain::stats::Summary;
use crate::domain::text::count;
use crate::domain::types::{
    ArmSummary, Failure, Goal, PlannedRun, RequestShape, Settings, Stage, TestSamples, TestSpec,
};

use super::ab::check_live;
use super::goal::{Objective, mean_rate};
use super::plan::{PlanError, SCREENING_REPETITIONS};
use super::session::{Halt, Known, Remark, Session, plain_run, warm_up};
use super::tuner::{Method, Walk, Walked};

/// Servers for each number of clients: the fewest whose spread says anything.
const PROCESSES: u32 = 3;
/// Most clients: beyond them a server of this kind is no answer.
pub const MAX_CLIENTS: u32 = 64;

/// A measurement of several clients as it is planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientsPlan {
    /// What every request is.
    pub objective: Objective,
    /// Its shape.
    pub request: RequestShape,
    /// What the server is started with.
    pub settings: Settings,
    /// Numbers of clients, in rising order.
    pub clients: Vec<u32>,
    /// Requests of each client in a server.
    pub repetitions: u32,
    /// Servers for each number of clients.
    pub processes: u32,
}

/// What so many clients got.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientsRow {
    /// Clients, and slots of the server.
    pub clients: u32,
    /// Tokens generated for all together, per second of wall time, prompts included.
    pub total: ArmSummary,
    /// Tokens generated for each client, per second of its own answer.
    pub each: ArmSummary,
    /// Milliseconds to the first token of a client.
    pub first_token_ms: ArmSummary,
    /// Seconds of a client's whole request.
    pub request_secs: ArmSummary,
    /// Runs that failed, and why.
    pub failures: Vec<Failure>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientsOutcome {
    /// One row per number of clients.
    pub rows: Vec<ClientsRow>,
    /// Why nothing could be measured.
    pub failure: Option<(Failure, String)>,
    /// Notices.
    pub notices: Vec<Remark>,
}

impl ClientsPlan {
    /// A measurement of `clients` by requests of this shape.
    ///
    /// # Errors
    /// A zero, too few generated tokens, or no clients.
    pub fn new(
        settings: Settings,
        request: RequestShape,
        mut clients: Vec<u32>,
        repetitions: Option<u32>,
        processes: Option<u32>,
    ) -> Result<Self, PlanError> {
        check_live(request)?;
        clients.sort_unstable();
        clients.dedup();
        if clients.is_empty() || clients.contains(&0) {
            return Err(PlanError::Zero("the number of clients"));
        }
        Ok(Self {
            objective: Objective::live(Goal::Generation, request),
            request,
            settings,
            clients,
            repetitions: repetitions.unwrap_or(SCREENING_REPETITIONS),
            processes: processes.unwrap_or(PROCESSES),
        })
    }

    /// Numbers of clients in the order of their servers: 1 2 4, 4 2 1, 1 2 4.
    fn order(&self) -> Vec<u32> {
        (0..self.processes)
            .flat_map(|round| {
                let mut turn = self.clients.clone();
                if round % 2 == 1 {
                    turn.reverse();
                }
                turn
            })
            .collect()
    }

    fn measure(&self, session: &mut Session<'_>) -> Known<Vec<ClientsRow>> {
        session.enter(Stage::Baseline);
        let planned = warm_up(&self.settings);
        session.run(planned)?.samples().map_err(|failure| {
            let reason = format!("{} does not run here ({failure})", self.settings);
            Halt::Stops(failure, reason)
        })?;
        session.enter(Stage::Clients);
        let mut found: Vec<(u32, Result<Vec<TestSamples>, Failure>)> = Vec::new();
        for (i, clients) in self.order().into_iter().enumerate() {
            let round = i / self.clients.len() + 1;
            let purpose = format!(
                "{}, {round} of {}",
                count(clients.into(), "client"),
                self.processes
            );
            let planned = PlannedRun {
                clients,
                ..plain_run(Stage::Clients, &self.settings, self.repetitions, purpose)
            };
            let samples = session.run(planned)?.samples();
            found.push((clients, samples.map(<[TestSamples]>::to_vec)));
        }
        let row = |clients: &u32| self.row(*clients, &found);
        Ok(self.clients.iter().map(row).collect())
    }

    fn row(&self, clients: u32, found: &[(u32, Result<Vec<TestSamples>, Failure>)]) -> ClientsRow {
        let of = || found.iter().filter(|(n, _)| *n == clients).map(|(_, r)| r);
        let each = |value: &dyn Fn(&[TestSamples]) -> f64| {
            let valid = of().filter_map(|r| r.as_ref().ok());
            summary(valid.map(|samples| value(samples)).collect())
        };
        let RequestShape {
            prompt_tokens,
            generated_tokens,
        } = self.request;
        let mixed = |n_prompt, n_gen| TestSpec {
            n_prompt,
            n_gen,
            n_depth: 0,
        };
        let secs = |samples: &[TestSamples], test: TestSpec| {
            f64::from(test.tokens()) / mean_rate(samples, test)
        };
        let batch = mixed(prompt_tokens * clients, generated_tokens * clients);
        let decode = TestSpec::generation(generated_tokens).at_depth(prompt_tokens);
        ClientsRow {
            clients,
            total: each(&|s| f64::from(batch.n_gen) / secs(s, batch)),
            each: each(&|s| mean_rate(s, decode)),
            first_token_ms: each(&|s| 1e3 * secs(s, mixed(prompt_tokens, 1))),
            request_secs: each(&|s| secs(s, mixed(prompt_tokens, generated_tokens))),
            failures: of().filter_map(|r| r.as_ref().err().cloned()).collect(),
        }
    }
}

fn summary(runs: Vec<f64>) -> ArmSummary {
    let of = Summary::of(&runs);
    ArmSummary {
        mean: of.mean,
        cv_pct: of.cv_pct,
        n: runs.len(),
        runs,
    }
}

impl Method for ClientsPlan {
    type Outcome = ClientsOutcome;

    fn stages(&self) -> Vec<(Stage, u32)> {
        let runs = u32::try_from(self.order().len()).unwrap_or(u32::MAX);
        vec![(Stage::Baseline, 1), (Stage::Clients, runs)]
    }

    fn max_processes(&self) -> u32 {
        self.stages().iter().map(|s| s.1).sum()
    }

    fn walk(&self, Walk(session): Walk<'_, '_>) -> Walked<ClientsOutcome> {
        let measured = self.measure(session);
        let end = |rows, failure| ClientsOutcome {
            rows,
            failure,
            notices: session.remarks.clone(),
        };
        Walked(match measured {
            Ok(rows) => Ok(end(rows, None)),
            Err(Halt::Stops(failure, reason)) => Ok(end(Vec::new(), Some((failure, reason)))),
            Err(needs) => Err(needs),
        })
    }
}
