//! The words and tables of a report, section by section.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::chart::{Align, Table};
use crate::domain::machine::gpus;
use crate::domain::search::SearchSpace;
use crate::domain::stats::{GUARD_LOSS_PCT, MAX_CV_PCT, MIN_EFFECT_PCT, MIN_RUNS};
use crate::domain::text::{
    capitalised, change, clean, confirmed_words, count, fate, moment, parameters, rate,
    refusal_words, setting_title, settings_words, shell_command, span,
};
use crate::domain::types::{Machine, ModelInfo, RunOutcome, Runtime, Verdict};
use crate::engine::evidence::Evidence;
use crate::engine::report::{CandidateDocument, TuneDocument};
use crate::ports::{NoticeLevel, SessionKind, StoredRun};

use super::page::{lines, pairs, section, table, text};
use super::story::{Outcome, Story};

/// The result in one sentence.
pub(super) fn headline(story: &Story) -> String {
    let runs = story.evidence.runs.len() as u64;
    match &story.result {
        Outcome::Tuned(document) => document.sentence(),
        Outcome::Compared(document) => document.sentence(),
        Outcome::Failed(headline, _) => format!("Failed: {headline}"),
        Outcome::Cancelled => format!("Cancelled: no result, {} kept", count(runs, "run")),
        Outcome::Open => format!("Not finished: no result yet, {} so far", count(runs, "run")),
    }
}

/// The page's head.
pub(super) fn verdict(story: &Story) -> String {
    let session = &story.evidence.session;
    let begun = &session.begun;
    let under = match &story.result {
        Outcome::Tuned(document) => document.judgement(),
        Outcome::Compared(document) => document.judgement(),
        Outcome::Failed(_, hint) => hint.clone().unwrap_or_default(),
        Outcome::Cancelled | Outcome::Open if begun.kind == SessionKind::Tune => {
            format!("flux tune --resume {} goes on with it", session.id)
        }
        Outcome::Cancelled | Outcome::Open => String::new(),
    };
    let kind = match begun.kind {
        SessionKind::Tune => "tune",
        SessionKind::Ab => "ab",
    };
    let ended = session.end.as_ref().map_or_else(
        || "not ended".to_owned(),
        |end| format!("ended {}", moment(end.ended_at)),
    );
    let facts = [
        format!("Session {}: {kind} for {}", session.id, begun.goal),
        begun.model.name.clone(),
        begun.runtime.name.clone(),
        moment(begun.started_at),
        ended,
    ];
    let word = session.end.as_ref().and_then(|end| end.verdict);
    format!(
        "<header>\n<h1>{}</h1>\n<p>{}</p>\n<p class=\"caption\" style=\"margin-top:4px\">{}</p>\n{}{}</header>\n",
        text(&headline(story)),
        text(&under),
        text(&facts.join(" · ")),
        word.map_or_else(String::new, badge),
        if begun.simulated {
            "<span class=\"badge warning\">⚠ simulated: made on an exported machine, applies only there</span>\n"
        } else {
            ""
        }
    )
}

/// Colour, sign and word.
fn badge(verdict: Verdict) -> String {
    let sign = match verdict {
        Verdict::Improved => '▲',
        Verdict::Regressed => '▼',
        Verdict::Unchanged => '=',
        Verdict::Inconclusive => '?',
    };
    format!("<span class=\"badge verdict-{verdict}\">{sign} {verdict}</span>\n")
}

/// Why each setting is in the profile.
pub(super) fn settings(story: &Story) -> String {
    let Some(document) = story.tuned() else {
        return String::new();
    };
    let Some(profile) = &document.profile else {
        return String::new();
    };
    let mut rows = Table::new(&[
        ("Setting", Align::Left),
        ("Value", Align::Left),
        ("What it does", Align::Left),
        ("Introduced by", Align::Left),
    ]);
    for (dimension, value) in &profile.settings.0 {
        let run = profile.introduced_by.get(dimension).copied();
        rows.row([
            setting_title(dimension),
            value.clone(),
            SearchSpace::shipped().describe(dimension).to_owned(),
            run.map_or_else(String::new, |id| introduction(story, document, id)),
        ]);
    }
    let caption = format!("Profile {}, confirmed exactly as it is", profile.id);
    section("Why these settings", &caption, &table(&rows))
}

fn introduction(story: &Story, document: &TuneDocument, id: i64) -> String {
    let Some(run) = story.evidence.runs.iter().find(|run| run.id == id) else {
        return String::new();
    };
    let candidate = document.candidates.iter().find(|c| c.runs.contains(&id));
    let changed = candidate.and_then(|c| c.change_pct);
    let changed = changed.map_or_else(String::new, |pct| format!(", {}", change(pct, 1)));
    format!(
        "Run {}, {}{changed}",
        run.seq + 1,
        run.planned.stage.words()
    )
}

/// Everything screened, finalists that were not saved, and what was not tried.
pub(super) fn not_saved(story: &Story) -> String {
    let mut html = String::new();
    if let Some(document) = story.tuned() {
        html.push_str(&section(
            "Candidates, best first",
            "",
            &candidates(document),
        ));
        html.push_str(&section(
            "Confirmed and not saved",
            "",
            &finalists(document),
        ));
    }
    let mut rows = Table::new(&[("Setting", Align::Left), ("Why", Align::Left)]);
    for refusal in story.refused() {
        rows.row([refusal_words(&refusal), refusal.reason.clone()]);
    }
    html.push_str(&section("Not tried", "", &table(&rows)));
    html
}

fn candidates(document: &TuneDocument) -> String {
    let mut ranked: Vec<&CandidateDocument> = document.candidates.iter().collect();
    let key = |c: &CandidateDocument| c.change_pct.unwrap_or(f64::NEG_INFINITY);
    ranked.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let labels: BTreeSet<&String> = ranked.iter().flat_map(|c| c.metrics.keys()).collect();
    let mut rows = Table {
        columns: vec![
            ("#".to_owned(), Align::Right),
            ("Candidate".to_owned(), Align::Left),
        ],
        rows: Vec::new(),
    };
    rows.columns.push(("Change".to_owned(), Align::Right));
    let rates = labels
        .iter()
        .map(|label| (format!("{label}, t/s"), Align::Right));
    rows.columns.extend(rates);
    rows.columns.push(("Became".to_owned(), Align::Left));
    for candidate in ranked {
        let pct = candidate.change_pct;
        let mut cells = vec![
            candidate.id.to_string(),
            settings_words(&candidate.settings),
            pct.map_or_else(String::new, |pct| change(pct, 1)),
        ];
        let rates = labels.iter().map(|label| candidate.metrics.get(*label));
        cells.extend(rates.map(|r| r.map_or_else(|| "–".to_owned(), |r| rate(*r, None))));
        let reason = candidate.reason.as_deref();
        cells.push(fate(&candidate.status, candidate.adopted, reason));
        rows.rows.push(cells);
    }
    table(&rows)
}

fn finalists(document: &TuneDocument) -> String {
    let saved = document.profile.as_ref().map(|p| &p.settings);
    let mut rows = Table::new(&[("Candidate", Align::Left), ("Became", Align::Left)]);
    let lost = document
        .confirmations
        .iter()
        .filter(|c| Some(&c.settings) != saved);
    for confirmation in lost {
        rows.row([
            settings_words(&confirmation.settings),
            confirmed_words(
                confirmation.verdict,
                confirmation.rejected,
                &confirmation.reason,
            ),
        ]);
    }
    table(&rows)
}

/// Notices of the session.
pub(super) fn notices(evidence: &Evidence) -> String {
    let mut html = String::new();
    for notice in &evidence.notices {
        let (class, word) = match notice.level {
            NoticeLevel::Info => ("", "Note"),
            NoticeLevel::Warning => (" class=\"warning\"", "Warning"),
        };
        let _ = writeln!(
            html,
            "<li><span{class}>{word}</span> {}</li>",
            text(&notice.text)
        );
    }
    if !html.is_empty() {
        html = format!("<ul>\n{html}</ul>\n");
    }
    section("Notices", "", &html)
}

/// Machine, build, model, fingerprint, cost.
pub(super) fn place(evidence: &Evidence) -> String {
    let begun = &evidence.session.begun;
    let mut html = section("Machine", "", &machine(&begun.machine));
    html.push_str(&section("llama.cpp", "", &runtime(&begun.runtime)));
    html.push_str(&section("Model", "", &model(&begun.model)));
    let mut fields = Table::new(&[("Field", Align::Left), ("Value", Align::Left)]);
    for (field, value) in &begun.fingerprint.fields {
        fields.row([field.clone(), value.clone()]);
    }
    let fingerprint = format!(
        "{}<details><summary>Show fields</summary>\n{}</details>\n",
        pairs(&[("SHA-256", begun.fingerprint.hash.clone())]),
        table(&fields)
    );
    html.push_str(&section(
        "Fingerprint",
        "Results apply where every field is the same",
        &fingerprint,
    ));
    html
}

fn machine(machine: &Machine) -> String {
    let host = &machine.host;
    let mut rows: Vec<(&str, String)> = Vec::new();
    for gpu in gpus(machine) {
        let driver = gpu.preferred.as_ref().map(|entry| &entry.driver);
        let driver = driver.map_or_else(String::new, |d| format!(", {} {}", d.name, d.info));
        rows.push((
            "GPU",
            format!("{}{driver}", gpu.product.as_ref().unwrap_or(&gpu.name)),
        ));
    }
    let cores = host.physical_cores.map_or_else(
        || count(u64::from(host.logical_cores), "thread"),
        |n| count(u64::from(n), "core"),
    );
    let memory = if host.ram_total.0 == 0 {
        String::new()
    } else {
        host.ram_total.to_string()
    };
    let cpu = if host.cpu.is_empty() {
        String::new()
    } else {
        format!("{}, {cores}", host.cpu)
    };
    rows.extend([
        ("CPU", cpu),
        ("RAM", memory),
        (
            "System",
            format!("{} {} {}", host.os, host.kernel, host.arch)
                .trim()
                .to_owned(),
        ),
        ("Power plan", host.power_plan.clone().unwrap_or_default()),
    ]);
    pairs(&rows)
}

fn runtime(runtime: &Runtime) -> String {
    let build = match runtime.build_number {
        0 => "unknown".to_owned(),
        n => n.to_string(),
    };
    let backends: Vec<&str> = runtime.backends.iter().map(|b| b.name()).collect();
    pairs(&[
        ("Name", runtime.name.clone()),
        ("Build", build),
        ("Commit", runtime.build_commit.clone()),
        ("Version", runtime.version_text.clone()),
        ("Backends", backends.join(", ")),
        ("Folder", runtime.dir.display().to_string()),
        ("SHA-256", runtime.digest.clone()),
    ])
}

fn model(model: &ModelInfo) -> String {
    let quants: Vec<&str> = model
        .quant_mix
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    pairs(&[
        ("Name", model.name.clone()),
        ("Architecture", model.architecture.clone()),
        ("Parameters", parameters(model.parameters)),
        ("Tensor types", quants.join(", ")),
        ("Size", model.file_bytes.to_string()),
        ("File", model.path.display().to_string()),
        ("SHA-256 of header", model.digest.clone()),
    ])
}

/// The command to use, and the first command of each set of settings.
pub(super) fn commands(story: &Story) -> String {
    let begun = &story.evidence.session.begun;
    let mut html = String::new();
    for profile in &story.evidence.profiles {
        let server = begun.runtime.server.as_ref();
        let mut words = vec![
            server.map_or_else(
                || "llama-server".to_owned(),
                |path| path.display().to_string(),
            ),
            "-m".to_owned(),
            begun.model.path.display().to_string(),
        ];
        words.extend(profile.server.args.iter().cloned());
        let title = format!("Profile {}, llama-server", profile.id);
        html.push_str(&command(
            &title,
            &shell_command(&profile.server.env, &words),
        ));
    }
    let mut seen = BTreeSet::new();
    let mut measured = String::new();
    for run in &story.evidence.runs {
        let raw = &run.run.raw;
        if !raw.argv.is_empty() && seen.insert(&run.planned.settings) {
            let title = format!(
                "{}, run {}",
                settings_words(&run.planned.settings),
                run.seq + 1
            );
            measured.push_str(&command(&title, &shell_command(&raw.env, &raw.argv)));
        }
    }
    if !measured.is_empty() {
        let _ = write!(
            html,
            "<details><summary>Show commands measured</summary>\n{measured}</details>\n"
        );
    }
    section("Commands", "", &html)
}

fn command(title: &str, line: &str) -> String {
    format!("<h3>{}</h3>\n<pre>{}</pre>\n", text(title), text(line))
}

/// Every run, with what its process left behind.
pub(super) fn runs(evidence: &Evidence) -> String {
    if evidence.runs.is_empty() {
        return String::new();
    }
    let rows: String = evidence.runs.iter().map(run).collect();
    let html = format!(
        "<div class=\"wide\"><table>\n<thead><tr><th class=\"number\">Run</th><th>Stage</th><th>Settings</th>\
         <th class=\"number\">Took</th><th>Samples, t/s</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    );
    section(
        "Every run",
        "Mean of the run first, then every repetition",
        &html,
    )
    .replacen("<section>", "<section class=\"long\">", 1)
}

fn run(run: &StoredRun) -> String {
    let side = run.planned.side;
    let side = side.map_or_else(String::new, |side| format!(", arm {side:?}"));
    let lines = outcome(&run.run.outcome);
    let lines: Vec<String> = lines.iter().map(|line| text(line)).collect();
    let result = format!("<div>{}</div>", lines.join("</div><div>"));
    format!(
        "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td>{result}{}</td></tr>\n",
        run.seq + 1,
        text(&format!("{}{side}", run.planned.stage.words())),
        text(&settings_words(&run.planned.settings)),
        text(&span(run.run.wall_secs)),
        raw(run)
    )
}

fn outcome(outcome: &RunOutcome) -> Vec<String> {
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

fn raw(run: &StoredRun) -> String {
    let raw = &run.run.raw;
    if raw.argv.is_empty() && raw.stdout.is_empty() && raw.stderr.is_empty() {
        return String::new();
    }
    let ended = match (raw.exit_code, raw.signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "no exit status".to_owned(),
    };
    let mut html = format!(
        "<pre>$ {}\n{ended}</pre>",
        text(&shell_command(&raw.env, &raw.argv))
    );
    for output in [&raw.stdout, &raw.stderr] {
        if !output.is_empty() {
            let _ = write!(html, "<pre>{}</pre>", lines(output));
        }
    }
    format!("<details><summary>Raw output</summary>{html}</details>")
}

/// How it is decided, and by which Flux.
pub(super) fn method(story: &Story) -> String {
    let words = format!(
        "<p>Each sample is the mean of one fresh process; baseline and candidate take turns (A-B-B-A), and their number \
         is fixed before the first one runs.</p>\n\
         <p>The change is the ratio of the means with its 95 % interval, a steady drift of the machine over the session \
         taken out.</p>\n\
         <p>Improved means that the whole interval is above +{MIN_EFFECT_PCT} % and that no other metric is shown to lose or \
         may have lost more than {GUARD_LOSS_PCT} %; fewer than {MIN_RUNS} runs an arm, runs that vary by more than \
         {MAX_CV_PCT} %, or an interval that reaches across zero are inconclusive, and nothing is saved.</p>\n"
    );
    let version = &story.evidence.session.begun.flux_version;
    format!(
        "{}<footer>Flux {} measured and judged this session</footer>\n",
        section("How the verdict is reached", "", &words),
        text(version)
    )
}
