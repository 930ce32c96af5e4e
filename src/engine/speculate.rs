//! `flux serve-check --speculate` (paper section 6): each kind of speculation against the same settings without it, on code
//! and on prose apart, interleaved in fresh servers, every request another one.

use crate::domain::search::{Ab, AbPlan, Driver};
use crate::domain::server::speculation::{
    Acceptance, DRAFT, NGRAM_KINDS, SETTING, SpeculationRow, TEXTS, advice,
};
use crate::domain::text;
use crate::domain::types::{RunOutcome, Settings, Side, TextKind, Verdict};
use crate::ports::{Notice, NoticeLevel};

use super::Ports;
use super::job::{Ended, JobContext};
use super::measure::Bench;
use super::message::{JobError, StageInfo, USAGE};
use super::report::Overhead;
use super::serve_check::{ARM_FAILED, Checked, ServeCheckRequest, document, session};
use super::tune::close;

/// Runs of one comparison unless told otherwise, for progress: two warm-ups, a pilot and the method's fewest.
const RUNS: u32 = 2 + 3 + 2 * 4;

/// The kinds asked for, as values of the setting.
///
/// # Errors
/// An unknown kind, a build that knows none, a model without a tokenizer.
fn values(request: &ServeCheckRequest, checked: &Checked) -> Result<Vec<String>, JobError> {
    let unknown = request
        .speculate
        .iter()
        .find(|k| !NGRAM_KINDS.contains(&k.as_str()));
    if let Some(kind) = unknown {
        let known = NGRAM_KINDS.join(", ");
        let headline = format!("there is no speculation {kind}");
        return Err(JobError::new(USAGE, headline).hint(format!(
            "it is one of {known}; a draft model goes with --draft FILE"
        )));
    }
    let runtime = &checked.place.runtime;
    if !runtime.server_flags.contains("--spec-type") {
        let headline = format!(
            "llama-server of {} has no --spec-type: it does not speculate",
            runtime.name
        );
        return Err(
            JobError::new("no-speculation", headline).hint("choose a newer build with --runtime")
        );
    }
    let mut values = request.speculate.clone();
    if let Some(file) = &request.draft {
        if !file.is_file() {
            let headline = format!("there is no draft model: {}", file.display());
            return Err(JobError::new(USAGE, headline));
        }
        values.push(format!("{DRAFT} {}", file.display()));
    }
    Ok(values)
}

/// Measures every kind on every text.
///
/// # Errors
/// As [`values`]; nothing could be compared; the store; cancelled.
pub(super) fn perform(
    request: &ServeCheckRequest,
    checked: &Checked,
    ports: &Ports,
    context: &mut JobContext,
) -> Result<serde_json::Value, Ended> {
    let values = values(request, checked)?;
    let plan = |value: &str| {
        let (a, b) = (
            checked.settings.clone(),
            checked.settings.clone().with(SETTING, value),
        );
        let plan = AbPlan::live(checked.goal, a, b, request.shape());
        let plan = plan.map_err(|e| JobError::new(USAGE, e.to_string()))?;
        Ok::<_, JobError>(AbPlan {
            repetitions: request.repetitions,
            processes: request.processes,
            ..plan
        })
    };
    let plans: Vec<AbPlan> = values
        .iter()
        .map(|value| plan(value))
        .collect::<Result<_, _>>()?;
    let (session, _measuring) = session(request, checked, &plans, ports)?;
    let begun = ports.clock.elapsed();
    let objective = plans[0].objective.clone();
    let mut bench = Bench::new(ports, &checked.place, &objective, session);
    let runs = request.processes.map_or(RUNS, |n| 2 + 2 * n);
    let stages = vec![StageInfo {
        name: SETTING.to_owned(),
        runs: runs * (plans.len() * TEXTS.len()) as u32,
    }];
    context.started(
        "serve-check",
        Some(session),
        stages,
        Some(objective.primary()),
    );
    let rows = every(&mut bench, &plans, checked, context);
    let overhead = Overhead::new(ports.clock.elapsed().saturating_sub(begun), bench.run_secs);
    let ended = rows.and_then(|rows| {
        let mut document = document(request, checked, session, overhead);
        document.primary = objective.primary();
        document.reason = advice(&rows);
        "speculation".clone_into(&mut document.b.arm);
        if let Some(live) = &mut document.live {
            live.speculation = rows;
        }
        Ok((super::install::to_json(&document)?, None::<Verdict>))
    });
    close(ports, session, ended)
}

fn every(
    bench: &mut Bench<'_>,
    plans: &[AbPlan],
    checked: &Checked,
    context: &mut JobContext,
) -> Result<Vec<SpeculationRow>, Ended> {
    bench.tell(&checked.notices, context)?;
    bench.tell_conditions(context)?;
    let mut rows = Vec::new();
    for plan in plans {
        for text in TEXTS {
            let row = one(bench, plan, text, context)?;
            let told = Notice {
                level: NoticeLevel::Info,
                code: SETTING.to_owned(),
                text: sentence(&row),
            };
            bench.tell(&[told], context)?;
            rows.push(row);
        }
    }
    if rows.iter().all(|row| row.verdict.is_none()) {
        let reason = rows.first().map(|row| row.reason.clone());
        return Err(JobError::new(ARM_FAILED, reason.unwrap_or_default()).into());
    }
    Ok(rows)
}

/// One comparison, and what its guesses were worth.
fn one(
    bench: &mut Bench<'_>,
    plan: &AbPlan,
    text: TextKind,
    context: &mut JobContext,
) -> Result<SpeculationRow, Ended> {
    let before = bench.run_ids.len();
    let mut driver: Ab = Driver::new(plan.clone()).after(u32::try_from(before).unwrap_or(u32::MAX));
    bench.text = text;
    let outcome = bench.drive(&mut driver, context)?;
    let runs = bench.ports.store.runs(bench.session)?;
    let guessed = runs
        .iter()
        .skip(before)
        .filter(|run| run.planned.side == Some(Side::B));
    let records = guessed.filter_map(|run| match &run.run.outcome {
        RunOutcome::Valid { tests } => tests.first().map(|test| &test.record),
        _ => None,
    });
    let comparison = outcome.confirmation.and_then(|c| {
        let metric = c.metrics.get(&c.primary)?;
        Some(metric.confirmed.clone())
    });
    Ok(SpeculationRow {
        kind: kind(&plan.b),
        text,
        verdict: outcome.verdict,
        comparison,
        acceptance: Acceptance::of(records),
        reason: outcome.reason,
    })
}

fn kind(settings: &Settings) -> String {
    let value = settings.0.get(SETTING).map_or("", String::as_str);
    value.split(' ').next().unwrap_or_default().to_owned()
}

/// `ngram-mod on code: +12.1 % (95 % CI …), 61 % of 1,234 drafted tokens accepted`.
fn sentence(row: &SpeculationRow) -> String {
    let subject = format!("{} on {}", row.kind, row.text.words());
    let judged = match &row.comparison {
        Some(comparison) => text::verdict_sentence(&subject, comparison),
        None => format!("{subject}: {}", row.reason),
    };
    format!("{judged}; {}", text::acceptance(row.acceptance))
}
