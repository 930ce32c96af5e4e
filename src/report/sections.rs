//! The words and tables of a report, section by section.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::chart::{Align, Table};
use crate::domain::stats::{GUARD_LOSS_PCT, MAX_CV_PCT, MIN_EFFECT_PCT, MIN_RUNS};
use crate::domain::text::{
    CLIENTS_TITLES, SPECULATION_TITLES, arm_words, change, clients_cells, confirmed_words, moment,
    rate, refusal_words, settings_words, shell_command, span,
};
use crate::domain::types::Verdict;
use crate::engine::evidence::Evidence;
use crate::engine::profiles::server_command;
use crate::engine::report::TuneDocument;
use crate::ports::{NoticeLevel, SessionKind, StoredRun};

use super::findings;
use super::page::{lines, pairs, section, table, text};
use super::place::place as places;
use super::placements;
use super::story::{Outcome, Story};

/// The page's head.
pub(super) fn verdict(story: &Story) -> String {
    let session = &story.evidence.session;
    let begun = &session.begun;
    let under = match &story.result {
        Outcome::Cancelled | Outcome::Open if begun.kind == SessionKind::Tune => {
            format!("flux tune --resume {} goes on with it", session.id)
        }
        _ => story.judgement(),
    };
    let kind = begun.kind.word();
    let ended = session.end.as_ref().map_or_else(
        || "not ended".to_owned(),
        |end| format!("ended {}", moment(end.ended_at)),
    );
    let facts = [
        match begun.kind {
            SessionKind::Lab => format!("Session {}: {kind}", session.id),
            _ => format!("Session {}: {kind} for {}", session.id, begun.goal),
        },
        begun.model.name.clone(),
        begun.runtime.name.clone(),
        moment(begun.started_at),
        ended,
    ];
    let word = session.end.as_ref().and_then(|end| end.verdict);
    format!(
        "<header>\n<h1>{}</h1>\n<p>{}</p>\n<p class=\"caption\" style=\"margin-top:4px\">{}</p>\n{}{}</header>\n",
        text(&story.headline()),
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
    let Some(profile) = story.tuned().and_then(|document| document.profile.as_ref()) else {
        return String::new();
    };
    let mut rows = Table::new(&[
        ("Setting", Align::Left),
        ("Value", Align::Left),
        ("What it does", Align::Left),
        ("Introduced by", Align::Left),
    ]);
    for setting in findings::settings(story) {
        rows.row([
            setting.title,
            setting.value,
            setting.describe,
            setting.introduced.unwrap_or_default(),
        ]);
    }
    let caption = format!("Profile {}, confirmed exactly as it is", profile.id);
    section("Why these settings", &caption, &table(&rows))
}

/// What placements were predicted to run at, and ran at.
pub(super) fn placements(story: &Story) -> String {
    let (arms, caption) = placements::rows(&story.evidence.placements);
    if arms.is_empty() {
        return String::new();
    }
    let mut rows = Table::new(&placements::TITLES.map(|(title, is_rate)| {
        let align = if is_rate { Align::Right } else { Align::Left };
        (title, align)
    }));
    for arm in arms {
        rows.row(arm);
    }
    section(placements::TITLE, &caption, &table(&rows))
}

/// What several clients got from one server.
pub(super) fn clients(story: &Story) -> String {
    let Outcome::Compared(document) = &story.result else {
        return String::new();
    };
    let Some(live) = document.live.as_ref().filter(|l| !l.clients.is_empty()) else {
        return String::new();
    };
    let mut rows = Table::new(&CLIENTS_TITLES.map(|title| (title, Align::Right)));
    for row in &live.clients {
        rows.row(clients_cells(row));
    }
    section("Several clients", &live.requests(), &table(&rows))
}

/// What speculation was worth.
pub(super) fn speculation(story: &Story) -> String {
    let Outcome::Compared(document) = &story.result else {
        return String::new();
    };
    let Some(live) = document.live.as_ref().filter(|l| !l.speculation.is_empty()) else {
        return String::new();
    };
    let mut rows = Table::new(&SPECULATION_TITLES.map(|title| (title, Align::Left)));
    for row in document.speculation_lines() {
        rows.row(row);
    }
    section("Speculation", &live.requests(), &table(&rows))
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
        html.push_str(&section("Confirmed and not saved", "", &finalists(story)));
    }
    let mut rows = Table::new(&[("Setting", Align::Left), ("Why", Align::Left)]);
    for refusal in story.refused() {
        rows.row([refusal_words(&refusal), refusal.reason.clone()]);
    }
    html.push_str(&section("Not tried", "", &table(&rows)));
    html
}

fn candidates(document: &TuneDocument) -> String {
    let ranked = findings::ranked(document);
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
        cells.push(findings::became(document, candidate));
        rows.rows.push(cells);
    }
    table(&rows)
}

fn finalists(story: &Story) -> String {
    let mut rows = Table::new(&[("Candidate", Align::Left), ("Became", Align::Left)]);
    for confirmation in story.lost() {
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

/// Machine, build, model, fingerprint.
pub(super) fn place(evidence: &Evidence) -> String {
    let begun = &evidence.session.begun;
    let mut html: String = places(begun)
        .iter()
        .map(|(title, rows)| section(title, "", &pairs(rows)))
        .collect();
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

/// The command to use, and the first command of each set of settings.
pub(super) fn commands(story: &Story) -> String {
    let begun = &story.evidence.session.begun;
    let mut html = String::new();
    for profile in &story.evidence.profiles {
        let title = format!("Profile {}, llama-server", profile.id);
        html.push_str(&command(&title, &server_command(begun, profile)));
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
            measured.push_str(&command(&title, &pasted(&raw.env, &raw.argv)));
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

/// A command as a shell reads it; a shortened home stays outside of the quotes, where the shell expands it.
fn pasted(env: &BTreeMap<String, String>, words: &[String]) -> String {
    let line = format!(" {}", shell_command(env, words));
    line.replace(" '~/", " ~/'").trim_start().to_owned()
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
    let lines = findings::run_lines(&run.run);
    let lines: Vec<String> = lines.iter().map(|line| text(line)).collect();
    let result = format!("<div>{}</div>", lines.join("</div><div>"));
    format!(
        "<tr><td class=\"number\">{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td>{result}{}</td></tr>\n",
        run.seq + 1,
        text(&format!("{}{side}", run.planned.stage.words())),
        text(&arm_words(&run.planned)),
        text(&span(run.run.wall_secs)),
        raw(run)
    )
}

fn raw(run: &StoredRun) -> String {
    let raw = &run.run.raw;
    if raw.argv.is_empty() && raw.stdout.is_empty() && raw.stderr.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<pre>$ {}\n{}</pre>",
        text(&shell_command(&raw.env, &raw.argv)),
        findings::ended(raw)
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
    let of_lab = "<p>Every kernel’s result is checked against the processor’s, on random data, before it is timed; the median of \
                  its repetitions counts.</p>\n\
                  <p>Queue families take turns (A-B-B-A). Least squares give the cost of a submission and of a dispatch in \
                  each round; intervals are 95 %, from round to round.</p>\n";
    let of_runs = format!(
        "<p>Each sample is the mean of one fresh process; baseline and candidate take turns (A-B-B-A), and their number \
         is fixed before the first one runs.</p>\n\
         <p>The change is the ratio of the means with its 95 % interval, a steady drift of the machine over the session \
         taken out.</p>\n\
         <p>Improved means that the whole interval is above +{MIN_EFFECT_PCT} % and that no other metric is shown to lose or \
         may have lost more than {GUARD_LOSS_PCT} %; fewer than {MIN_RUNS} runs an arm, runs that vary by more than \
         {MAX_CV_PCT} %, or an interval that reaches across zero are inconclusive, and nothing is saved.</p>\n"
    );
    let words = if story.evidence.session.begun.kind == SessionKind::Lab {
        of_lab
    } else {
        &of_runs
    };
    let version = &story.evidence.session.begun.flux_version;
    format!(
        "{}<footer>Flux {} measured and judged this session</footer>\n",
        section("How the verdict is reached", "", words),
        text(version)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_home_is_still_expanded_when_pasted() {
        let words = ["~/bin/llama-server", "-m", "~/my model.gguf", "a~b"].map(str::to_owned);
        assert_eq!(
            pasted(&BTreeMap::new(), &words),
            "~/'bin/llama-server' -m ~/'my model.gguf' 'a~b'"
        );
    }
}
