//! What a session found out besides its figures: why each setting is there, what was checked, rejected, not tried.

use std::collections::BTreeMap;

use crate::domain::search::{
    ENERGY, FIRST_TOKEN, HARMFUL, REQUEST, Refusal, Rejection, SearchSpace,
};
use crate::domain::stats::{GUARD_LOSS_PCT, MIN_EFFECT_PCT};
use crate::domain::text::{
    Metric, both_arms, capitalised, change, change_with_interval, clean, clients_cells, count,
    decimals_for, rate, refusal_words, sensor_lines, setting_title, setting_value, settings_phrase,
    settings_words, signed, span, time_saved,
};
use crate::domain::types::{RawOutput, Run, RunOutcome, Settings, Verdict};
use crate::engine::report::{CandidateDocument, ConfirmationDocument, TuneDocument};
use crate::ports::StoredRun;

use super::figures::{added, is_more, metric_title};
use super::story::{Outcome, Story};

/// Why a setting is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// What people call it.
    pub title: String,
    /// Its value.
    pub value: String,
    /// What it does, in one line; empty where the search space knows it no more.
    pub describe: String,
    /// The run that introduced it: `Run 25, screening, +68.3 %`.
    pub introduced: Option<String>,
    /// What the search saw without it, where it looked.
    pub without: Option<String>,
}

/// Every setting of the winner.
pub fn settings(story: &Story) -> Vec<Setting> {
    let (Some(document), Some(winner)) = (story.tuned(), story.winner()) else {
        return Vec::new();
    };
    let each = winner.0.iter().map(|(dimension, value)| Setting {
        title: setting_title(dimension),
        value: setting_value(dimension, value),
        describe: SearchSpace::shipped().describe(dimension).to_owned(),
        introduced: introducing(story, document, dimension, value)
            .map(|run| introduction(document, run)),
        without: without(document, winner, dimension),
    });
    each.collect()
}

/// As saved; before that, by the rule that will save it: the first run of a best that had the value.
fn introducing<'a>(
    story: &'a Story,
    document: &TuneDocument,
    dimension: &str,
    value: &str,
) -> Option<&'a StoredRun> {
    let first = || {
        let has = |c: &&CandidateDocument| c.settings.0.get(dimension).is_some_and(|v| v == value);
        let mut having = document.candidates.iter().filter(has);
        let adopted = having.clone().find(|c| c.adopted);
        adopted.or_else(|| having.next())?.runs.first()
    };
    let saved = document.profile.as_ref();
    let id = saved
        .and_then(|profile| profile.introduced_by.get(dimension))
        .or_else(first)?;
    story.evidence.runs.iter().find(|run| run.id == *id)
}

fn introduction(document: &TuneDocument, run: &StoredRun) -> String {
    let candidate = document
        .candidates
        .iter()
        .find(|c| c.runs.contains(&run.id));
    let changed = candidate.and_then(|c| c.change_pct);
    let changed = changed.map_or_else(String::new, |pct| format!(", {}", change(pct, 1)));
    format!(
        "Run {}, {}{changed}",
        run.seq + 1,
        run.planned.stage.words()
    )
}

fn without(document: &TuneDocument, winner: &Settings, dimension: &str) -> Option<String> {
    let rest = winner.without(dimension);
    let measured = |settings: &Settings| {
        let found = document.candidates.iter();
        found
            .filter(|c| c.settings == *settings)
            .find_map(|c| c.change_pct)
    };
    let (with, rest) = (measured(winner)?, measured(&rest)?);
    Some(format!(
        "Drop-one check: {} with it, {} without",
        change(with, 1),
        change(rest, 1)
    ))
}

/// Something that was checked before saving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub title: String,
    /// What came out.
    pub result: String,
    /// Whether it passed.
    pub passed: bool,
}

/// What the last confirmation checked besides the goal; nothing that was not.
pub fn checks(story: &Story) -> Vec<Check> {
    let Some(confirmation) = story.confirmations.last() else {
        return Vec::new();
    };
    let guarded = confirmation.metrics.iter();
    let guarded = guarded.filter(|(label, _)| **label != confirmation.primary);
    let mut checks: Vec<Check> = guarded
        .map(|(label, metric)| Check {
            title: format!("{} {}", metric_title(label), clean(label)),
            result: bracketed(metric.change_pct, metric.ci95_pct),
            passed: metric.change_pct >= -GUARD_LOSS_PCT,
        })
        .collect();
    let output = story.tuned().and_then(|document| document.output.as_ref());
    checks.extend(output.map(|output| Check {
        title: "Output against stock’s".to_owned(),
        result: output.brief(),
        passed: output.passes(),
    }));
    checks.extend(confirmation.memory.iter().map(|memory| Check {
        title: format!("Memory of {}", clean(&memory.device)),
        result: format!("{} of {}", memory.used, memory.limit),
        passed: memory.used <= memory.limit,
    }));
    if !confirmation.runs.is_empty() {
        let failed = confirmation.failures.len() as u64;
        let runs = count(confirmation.runs.len() as u64, "run");
        checks.push(Check {
            title: "Runs that failed".to_owned(),
            result: match failed {
                0 => format!("none of {runs}"),
                n => format!("{n} of {runs}"),
            },
            passed: confirmation.rejected != Some(Rejection::Failed) && failed == 0,
        });
    }
    checks
}

/// `+68.3 % [+67.9, +68.8]`.
fn bracketed(change_pct: f64, ci95_pct: Option<[f64; 2]>) -> String {
    let Some([lo, hi]) = ci95_pct else {
        return change_with_interval(change_pct, None);
    };
    let decimals = decimals_for((hi - lo) / 2.0);
    let (lo, hi) = (signed(lo, decimals), signed(hi, decimals));
    format!("{} [{lo}, {hi}]", change(change_pct, decimals))
}

/// A metric of a check through live servers.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLine {
    /// What it is.
    pub title: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Both arms: `9547 → 8852 ms`.
    pub values: String,
    /// The change of the rate; of a time, how much of it is saved.
    pub change: String,
}

/// Every metric of a check through live servers, the goal's first; nothing of another session.
pub fn live(story: &Story) -> Vec<LiveLine> {
    let Outcome::Compared(document) = &story.result else {
        return Vec::new();
    };
    let judged = document
        .confirmation
        .as_ref()
        .filter(|_| document.live.is_some());
    let mut metrics = judged.map_or_else(Vec::new, ConfirmationDocument::judged);
    metrics.sort_by_key(|m| m.label != document.primary);
    let line = |metric: &Metric| {
        let Metric {
            label, comparison, ..
        } = metric;
        LiveLine {
            title: match label.as_str() {
                FIRST_TOKEN => "Time to first token".to_owned(),
                REQUEST => "Time of a whole request".to_owned(),
                ENERGY => "Tokens per joule".to_owned(),
                label => metric_title(label),
            },
            verdict: comparison.verdict,
            values: both_arms(label, comparison),
            change: time_saved(label, comparison).map_or_else(
                || bracketed(comparison.change_pct, comparison.ci95_pct),
                |(change, interval)| bracketed(change, interval),
            ),
        }
    };
    metrics.iter().map(line).collect()
}

/// What several clients got, where that was measured.
pub fn clients(story: &Story) -> Vec<[String; 6]> {
    match &story.result {
        Outcome::Compared(document) => document.clients().iter().map(clients_cells).collect(),
        _ => Vec::new(),
    }
}

/// What speculation was worth, where that was measured: each row's verdict, and its words.
pub fn speculation(story: &Story) -> Vec<(Option<Verdict>, [String; 6])> {
    let Outcome::Compared(document) = &story.result else {
        return Vec::new();
    };
    let verdicts = document.speculation().iter().map(|row| row.verdict);
    verdicts.zip(document.speculation_lines()).collect()
}

/// What became of something that was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Screened: slower than the baseline.
    Slower,
    /// Screened: no gain worth a confirmation.
    NoGain,
    /// Screened: faster, and less so than the winner.
    SmallerGain,
    /// Screened: the winner and more, which gained nothing further.
    NoFurtherGain,
    /// It failed.
    Failed,
    /// Given up after one repetition.
    StoppedEarly,
    /// Screened: a guarded metric lost too much.
    Harmful,
    /// Screened: faster, and nothing was confirmed.
    NotConfirmed,
    /// Screened: the baseline varies too much to say.
    NotJudged,
    /// Confirmed with this verdict.
    Confirmed(Verdict),
    /// Confirmed as faster and rejected for what else it costs.
    Rejected(Rejection),
}

impl Fate {
    /// In a word or two.
    pub fn words(self) -> String {
        match self {
            Self::Slower => "slower".to_owned(),
            Self::NoGain => "no gain".to_owned(),
            Self::SmallerGain => "smaller gain".to_owned(),
            Self::NoFurtherGain => "no further gain".to_owned(),
            Self::Failed => "failed".to_owned(),
            Self::StoppedEarly => "stopped early".to_owned(),
            Self::Harmful => "harmful".to_owned(),
            Self::NotConfirmed => "not confirmed".to_owned(),
            Self::NotJudged => "not judged".to_owned(),
            Self::Confirmed(verdict) => verdict.to_string(),
            Self::Rejected(why) => why.words().to_owned(),
        }
    }
}

/// Something that was tried and not saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// Its settings in words, after a `+` where it is the winner and more.
    pub words: String,
    /// Change of the goal's metric, percent; `None` without samples.
    pub change_pct: Option<f64>,
    /// What became of it.
    pub fate: Fate,
    /// Why, in one sentence; empty where nothing is to be said.
    pub reason: String,
}

/// Finalists that lost, then every candidate that did not get so far, best first.
pub fn rejected(story: &Story) -> Vec<Rejected> {
    let Some(document) = story.tuned() else {
        return Vec::new();
    };
    let finalists = story.lost().map(|c| Rejected {
        words: settings_words(&c.settings),
        change_pct: c.metrics.get(&c.primary).map(|m| m.change_pct),
        fate: confirmed_fate(c),
        reason: c.reason.clone(),
    });
    let confirmed = |c: &CandidateDocument| {
        Some(&c.settings) == story.winner()
            || story.confirmations.iter().any(|f| f.settings == c.settings)
    };
    let screened = ranked(document);
    let screened = screened.into_iter().filter(|c| !confirmed(c));
    let screened = screened.map(|c| Rejected {
        words: added(story, &c.settings).unwrap_or_else(|| settings_words(&c.settings)),
        change_pct: c.change_pct,
        fate: screened_fate(document, c),
        reason: c.reason.clone().unwrap_or_default(),
    });
    finalists.chain(screened).collect()
}

fn confirmed_fate(confirmation: &ConfirmationDocument) -> Fate {
    match (confirmation.rejected, confirmation.verdict) {
        (Some(why), _) => Fate::Rejected(why),
        (None, Some(verdict)) => Fate::Confirmed(verdict),
        (None, None) => Fate::Failed,
    }
}

fn screened_fate(document: &TuneDocument, candidate: &CandidateDocument) -> Fate {
    let is_more = document
        .winner()
        .is_some_and(|w| is_more(&candidate.settings, w));
    let reason = candidate.reason.as_deref().unwrap_or_default();
    let is_harmful = reason.starts_with(HARMFUL);
    match (candidate.status.as_str(), candidate.change_pct) {
        ("ok", Some(_)) if document.is_too_noisy() => Fate::NotJudged,
        ("ok", Some(pct)) if pct < -MIN_EFFECT_PCT => Fate::Slower,
        ("ok", Some(_)) if is_harmful => Fate::Harmful,
        ("ok", Some(_)) if is_more => Fate::NoFurtherGain,
        ("ok", Some(pct)) if pct > MIN_EFFECT_PCT && document.confirmations.is_empty() => {
            Fate::NotConfirmed
        }
        ("ok", Some(pct)) if pct > MIN_EFFECT_PCT => Fate::SmallerGain,
        ("ok", _) => Fate::NoGain,
        ("stopped-early", _) => Fate::StoppedEarly,
        _ => Fate::Failed,
    }
}

/// What became of a candidate, in words: `confirmation: improved`, `smaller gain`, `failed: out of memory`. One that was cut down
/// before its confirmation says to what.
pub fn became(document: &TuneDocument, candidate: &CandidateDocument) -> String {
    let mut confirmations = document.confirmations.iter().rev();
    if let Some(c) = confirmations.find(|c| c.settings == candidate.settings) {
        return format!("confirmation: {}", confirmed_fate(c).words());
    }
    let cut = || {
        let to = |c: &&ConfirmationDocument| is_more(&candidate.settings, &c.settings);
        let mut confirmations = document.confirmations.iter();
        let to = confirmations.find(to).filter(|_| candidate.adopted)?;
        let left = candidate.settings.beyond(&to.settings);
        Some(format!("confirmed without {}", settings_phrase(&left)))
    };
    let word = screened_fate(document, candidate).words();
    match candidate.reason.as_deref().map(clean).or_else(cut) {
        Some(reason) => format!("{word}: {reason}"),
        None => word,
    }
}

/// Candidates, best first; those without samples last.
pub fn ranked(document: &TuneDocument) -> Vec<&CandidateDocument> {
    let mut ranked: Vec<&CandidateDocument> = document.candidates.iter().collect();
    let key = |c: &CandidateDocument| c.change_pct.unwrap_or(f64::NEG_INFINITY);
    ranked.sort_by(|a, b| key(b).total_cmp(&key(a)));
    ranked
}

/// What the refusal of a setting for another backend begins with; there are many, and none is a surprise.
const OTHER_BACKEND: &str = "only for the";

/// What was not tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotTried {
    /// Reasons in words, each with the settings it holds for.
    pub reasons: Vec<(String, String)>,
    /// Settings of other backends: so many, and which.
    pub other_backends: Option<(String, String)>,
}

/// Refusals with the same reason stand together; those of other backends are counted.
pub fn not_tried(refused: &[Refusal]) -> NotTried {
    let (others, own): (Vec<_>, Vec<_>) = refused
        .iter()
        .partition(|refusal| refusal.reason.starts_with(OTHER_BACKEND));
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for refusal in own {
        let settings = reasons.entry(refusal.reason.as_str()).or_default();
        settings.push(refusal_words(refusal));
    }
    let names: Vec<String> = others
        .iter()
        .map(|refusal| refusal_words(refusal))
        .collect();
    NotTried {
        reasons: reasons
            .into_iter()
            .map(|(reason, settings)| (capitalised(&clean(reason)), settings.join(", ")))
            .collect(),
        other_backends: (!names.is_empty()).then(|| {
            let counted = count(names.len() as u64, "setting");
            (format!("{counted} for other backends"), names.join(", "))
        }),
    }
}

/// A run's outcome, its mean and every repetition, test by test, or why there are none and what to do; then what the
/// sensors said.
pub fn run_lines(run: &Run) -> Vec<String> {
    let mut lines = outcome_lines(&run.outcome);
    lines.extend(sensor_lines(run));
    lines
}

fn outcome_lines(outcome: &RunOutcome) -> Vec<String> {
    match outcome {
        RunOutcome::Valid { tests } => tests
            .iter()
            .map(|test| {
                let all: Vec<String> = test.rates().iter().map(|r| format!("{r:.2}")).collect();
                let mean = rate(test.mean_rate(), None);
                format!("{} {mean} ({})", test.test, all.join(" "))
            })
            .collect(),
        RunOutcome::StoppedEarly {
            test,
            repetition_secs,
            limit_secs,
        } => {
            let (took, limit) = (span(*repetition_secs), span(*limit_secs));
            vec![format!(
                "Stopped early: a repetition of {test} took {took}, more than {limit}"
            )]
        }
        RunOutcome::Failed { failure, .. } => vec![
            capitalised(&clean(&failure.to_string())),
            failure.class.advice().to_owned(),
        ],
        RunOutcome::Cancelled => vec!["Cancelled".to_owned()],
    }
}

/// How a run's process ended.
pub fn ended(raw: &RawOutput) -> String {
    match (raw.exit_code, raw.signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "no exit status".to_owned(),
    }
}
