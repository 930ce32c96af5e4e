//! The result of `flux tune` and `flux ab`: the verdict sentence first, then the evidence, the candidates with what
//! became of them, what the search cost, and what to do next. Reads the document the JSON contract describes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::output::Style;
use crate::cli::text::{capitalised, change, clean, rate, settings_words, span};
use crate::domain::types::{Settings, Verdict};
use crate::ports::Notice;

use super::comparison::{self, Metric};
use super::refusals::{self, Refusal};
use super::shell;
use super::table::{Align, Table, pairs};

/// What this page shows of a result document. Anything missing is left out of the text, never invented.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    session: Option<i64>,
    primary: Option<String>,
    simulated: bool,
    baseline: Value,
    candidates: Vec<Candidate>,
    confirmation: Value,
    confirmations: Vec<Confirmation>,
    refused: Vec<Refusal>,
    a: Option<Arm>,
    b: Option<Arm>,
    verdict: Option<Verdict>,
    reason: Option<String>,
    profile: Option<Profile>,
    overhead: Value,
    notices: Vec<Notice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Candidate {
    id: u32,
    settings: Settings,
    metrics: BTreeMap<String, Value>,
    status: String,
    reason: Option<String>,
    change_pct: Option<f64>,
    adopted: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Confirmation {
    settings: Settings,
    verdict: Option<Verdict>,
    rejected: Option<String>,
    reason: String,
}

/// An arm of `flux ab`, as the user named it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Arm {
    arm: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Profile {
    id: i64,
    settings: Settings,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

/// What the text needs to know besides the document.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The model as the user named it, for the next command.
    pub model: &'a str,
    /// Bold headings or not.
    pub style: Style,
}

/// The result as text.
///
/// # Errors
/// The document has not the contract's shape.
pub fn result(document: &Value, context: Context) -> Result<String, serde_json::Error> {
    let document = Document::deserialize(document)?;
    let metrics = comparison::metrics_of(&document.confirmation);
    let style = context.style;
    let sections = [
        verdict(&document, &metrics, style),
        evidence(&metrics, style),
        baseline(&document, style),
        candidates(&document, context),
        finalists(&document.confirmations, style),
        refusals::section(&document.refused, style),
        overhead(&document.overhead, style),
        next(&document, context),
    ];
    let shown: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    Ok(shown.join("\n"))
}

/// The metric the goal is about.
fn primary<'a>(document: &Document, metrics: &'a [Metric]) -> Option<&'a Metric> {
    let wanted = document.primary.as_deref();
    let named = metrics
        .iter()
        .find(|metric| Some(metric.label.as_str()) == wanted);
    named.or_else(|| metrics.first())
}

/// What was confirmed: the profile's settings, else those the confirmation names.
fn subject(document: &Document) -> String {
    let confirmed = document
        .confirmation
        .get("settings")
        .and_then(|s| Settings::deserialize(s).ok());
    if let (Some(a), Some(b)) = (&document.a, &document.b) {
        return format!("{} against {}", clean(&b.arm), clean(&a.arm));
    }
    match (&document.profile, confirmed) {
        (Some(profile), _) => settings_words(&profile.settings),
        (None, Some(settings)) => settings_words(&settings),
        (None, None) => "Candidate".to_owned(),
    }
}

fn verdict(document: &Document, metrics: &[Metric], style: Style) -> String {
    let mut text = match primary(document, metrics) {
        Some(metric) => {
            let effect = comparison::effect(&metric.comparison);
            let sentence = format!("{}: {effect}", subject(document));
            format!("{}\n", style.heading(&sentence))
        }
        None => format!("{}\n", style.heading(&nothing_beat(&document.baseline))),
    };
    let word = document.verdict.map(|v| capitalised(&v.to_string()));
    let reason = document.reason.as_deref().map(clean);
    let saved = match &document.profile {
        Some(profile) => Some(format!("saved as profile {}", profile.id)),
        // `ab` compares and never saves.
        None if document.a.is_some() => None,
        None => Some("no profile saved".to_owned()),
    };
    let parts: Vec<String> = [word, reason, saved].into_iter().flatten().collect();
    let _ = writeln!(text, "{}", parts.join(" · "));
    if document.simulated {
        text.push_str("Simulated: made on an exported machine, applies only there\n");
    }
    for notice in &document.notices {
        let _ = writeln!(text, "{}", crate::cli::output::notice_line(notice));
    }
    text
}

fn evidence(metrics: &[Metric], style: Style) -> String {
    comparison::metrics(metrics, style)
}

/// The sentence where nothing was worth confirming. Stock cannot stay where it does not run (case C15).
fn nothing_beat(baseline: &Value) -> String {
    if baseline["stock_failure"].is_null() {
        return "Nothing beat stock in screening: stock stays".to_owned();
    }
    let settings = Settings::deserialize(&baseline["settings"]).unwrap_or_default();
    let words = settings_words(&settings).to_lowercase();
    format!("Stock does not run here; {words} does, and nothing beat it in screening")
}

fn baseline(document: &Document, style: Style) -> String {
    let Some(fields) = document.baseline.as_object() else {
        return String::new();
    };
    let rates = fields
        .get("metrics")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let shown: Vec<String> = rates
        .iter()
        .filter_map(|(label, value)| Some(format!("{} {} t/s", clean(label), rate_of(value)?)))
        .collect();
    if shown.is_empty() {
        return String::new();
    }
    let settings = fields
        .get("settings")
        .and_then(|s| Settings::deserialize(s).ok())
        .unwrap_or_default();
    format!(
        "{}: {}\n",
        style.heading(&format!(
            "Baseline ({})",
            settings_words(&settings).to_lowercase()
        )),
        shown.join(", ")
    )
}

/// A rate given as a number, or as a summary with its mean and spread.
fn rate_of(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(rate(number.as_f64()?, None)),
        Value::Object(summary) => {
            let cv = summary.get("cv_pct").and_then(Value::as_f64);
            Some(rate(summary.get("mean")?.as_f64()?, cv))
        }
        _ => None,
    }
}

fn candidates(document: &Document, context: Context) -> String {
    if document.candidates.is_empty() {
        return String::new();
    }
    let mut ranked: Vec<&Candidate> = document.candidates.iter().collect();
    let key = |c: &Candidate| c.change_pct.unwrap_or(f64::NEG_INFINITY);
    ranked.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let labels = labels(&ranked);
    let mut table = Table::new(&[
        ("#", Align::Right),
        ("Candidate", Align::Left),
        ("Change", Align::Right),
        ("t/s", Align::Right),
        ("Became", Align::Left),
    ]);
    for candidate in ranked {
        table.row([
            candidate.id.to_string(),
            settings_words(&candidate.settings),
            candidate
                .change_pct
                .map_or_else(String::new, |pct| change(pct, 1)),
            rates(candidate, &labels),
            became(candidate),
        ]);
    }
    let title = format!("Screened, best first ({})", labels.join(" / "));
    format!(
        "{}\n{}",
        context.style.heading(&clean(&title)),
        table.render(2, context.style)
    )
}

/// Finalists that were confirmed and not saved; the last one is the result above.
fn finalists(confirmations: &[Confirmation], style: Style) -> String {
    let Some((_, earlier)) = confirmations.split_last() else {
        return String::new();
    };
    if earlier.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("", Align::Left); 2]);
    for confirmation in earlier {
        let words = [
            confirmation.verdict.map(|v| v.to_string()),
            confirmation
                .rejected
                .as_deref()
                .map(|r| format!("rejected ({})", clean(&r.replace('-', " ")))),
            Some(clean(&confirmation.reason)),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        table.row([settings_words(&confirmation.settings), words.join(": ")]);
    }
    format!(
        "{}\n{}",
        style.heading("Confirmed before, not saved"),
        table.render(2, style)
    )
}

fn labels(candidates: &[&Candidate]) -> Vec<String> {
    let mut labels: Vec<String> = candidates
        .iter()
        .flat_map(|c| c.metrics.keys().cloned())
        .collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

fn rates(candidate: &Candidate, labels: &[String]) -> String {
    let shown: Vec<String> = labels
        .iter()
        .map(|label| {
            candidate
                .metrics
                .get(label)
                .and_then(rate_of)
                .unwrap_or_else(|| "–".to_owned())
        })
        .collect();
    shown.join(" / ")
}

fn became(candidate: &Candidate) -> String {
    let status = match candidate.status.as_str() {
        "ok" if candidate.adopted => "best so far".to_owned(),
        "ok" => "measured".to_owned(),
        other => clean(&other.replace('-', " ")),
    };
    match &candidate.reason {
        Some(reason) => format!("{status}: {}", clean(reason)),
        None => status,
    }
}

/// Whatever the engine counted, in words: keys that end in `_secs` are times, in `_pct` shares.
fn overhead(overhead: &Value, style: Style) -> String {
    let Some(fields) = overhead.as_object() else {
        return String::new();
    };
    let rows: Vec<(String, String)> = fields
        .iter()
        .filter_map(|(key, value)| {
            let number = value.as_f64()?;
            Some(if let Some(name) = key.strip_suffix("_secs") {
                (words(name), span(number))
            } else if let Some(name) = key.strip_suffix("_pct") {
                (format!("{}, share", words(name)), format!("{number:.2} %"))
            } else {
                (words(key), format!("{number}"))
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<(&str, String)> = rows
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    format!("{}\n{}", style.heading("What it cost"), pairs(&rows, 2))
}

fn words(key: &str) -> String {
    match key {
        "wall" => "In all".to_owned(),
        "run" => "In llama.cpp".to_owned(),
        "flux" => "Flux itself".to_owned(),
        other => capitalised(&clean(&other.replace('_', " "))),
    }
}

fn next(document: &Document, context: Context) -> String {
    let mut text = String::new();
    if let Some(profile) = &document.profile {
        if !profile.args.is_empty() || !profile.env.is_empty() {
            let settings = shell::command(&profile.env, &profile.args);
            let _ = writeln!(text, "Settings for llama.cpp: {settings}");
        }
        let words = ["flux", "run", "-m", context.model].map(str::to_owned);
        let command = shell::command(&BTreeMap::new(), &words);
        let _ = writeln!(text, "Next: {command}");
        let _ = writeln!(text, "Why:  {command} --explain");
    }
    if let Some(session) = document.session {
        let _ = writeln!(text, "Every sample: flux show {session}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::comparison::tests::graphics_queue;
    use super::*;
    use serde_json::json;

    const CONTEXT: Context = Context {
        model: "my model.gguf",
        style: Style::PLAIN,
    };

    fn winner() -> Value {
        json!({
            "schema": 1, "session": 5, "fingerprint": "abc", "goal": "generation", "primary": "tg128",
            "baseline": {"settings": {}, "metrics": {"tg128": {"mean": 22.7, "cv_pct": 0.4, "n": 3}, "pp512": 187.0}},
            "candidates": [
                {"id": 1, "settings": {"flash-attn": "off"}, "metrics": {"tg128": 20.24, "pp512": 192.9}, "status": "rejected", "reason": "slower", "change_pct": -11.3},
                {"id": 2, "settings": {"graphics-queue": "on"}, "metrics": {"tg128": 38.2, "pp512": 197.9}, "status": "confirmed", "reason": null, "change_pct": 67.5},
                {"id": 3, "settings": {"ubatch": "4096"}, "metrics": {}, "status": "failed", "reason": "out of memory"}
            ],
            "confirmation": {"schema": 1, "metrics": {"tg128": graphics_queue()}},
            "verdict": "improved",
            "profile": {"id": 4, "settings": {"graphics-queue": "on"}, "args": ["--ubatch-size", "512"], "env": {"GGML_VK_ALLOW_GRAPHICS_QUEUE": "1"}},
            "overhead": {"wall_secs": 1260.0, "flux_pct": 0.21, "processes": 34}
        })
    }

    #[test]
    fn the_first_line_is_the_verdict_sentence() {
        let text = result(&winner(), CONTEXT).unwrap();
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("Graphics queue on: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs")
        );
        assert_eq!(lines.next(), Some("Improved · saved as profile 4"));
    }

    #[test]
    fn rejected_candidates_keep_their_place_and_their_reason() {
        let text = result(&winner(), CONTEXT).unwrap();
        let table: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("Screened"))
            .take(5)
            .collect();
        assert_eq!(
            table,
            [
                "Screened, best first (pp512 / tg128)",
                "  #  Candidate             Change         t/s  Became",
                "  2  Graphics queue on    +67.5 %  198 / 38.2  confirmed",
                "  1  Flash attention off  −11.3 %  193 / 20.2  rejected: slower",
                "  3  Micro-batch 4096                   – / –  failed: out of memory",
            ]
        );
    }

    #[test]
    fn baseline_cost_and_next_step_are_said() {
        let text = result(&winner(), CONTEXT).unwrap();
        assert!(
            text.contains("Baseline (stock): tg128 22.70 t/s, pp512 187 t/s\n"),
            "{text}"
        );
        assert!(
            text.contains("  In all              21 min\n  Flux itself, share  0.21 %\n  Processes           34\n"),
            "{text}"
        );
        assert!(
            text.contains("GGML_VK_ALLOW_GRAPHICS_QUEUE=1 --ubatch-size 512\n"),
            "{text}"
        );
        assert!(
            text.contains("Next: flux run -m 'my model.gguf'\n"),
            "{text}"
        );
        assert!(text.contains("Every sample: flux show 5\n"), "{text}");
    }

    #[test]
    fn no_winner_is_a_result_too() {
        let text = result(
            &json!({"schema": 1, "session": 6, "verdict": null, "profile": null, "confirmation": null, "candidates": []}),
            CONTEXT,
        )
        .unwrap();
        assert_eq!(
            text,
            "Nothing beat stock in screening: stock stays\nno profile saved\n\nEvery sample: flux show 6\n"
        );
    }

    #[test]
    fn stock_does_not_stay_where_it_does_not_run() {
        let mut document = json!({"schema": 1, "baseline": {"settings": {"graphics-queue": "on"}}});
        let said = |document: &Value| result(document, CONTEXT).unwrap();
        assert!(said(&document).starts_with("Nothing beat stock in screening: stock stays\n"));
        document["baseline"]["stock_failure"] = json!({"class": "device-creation", "detail": ""});
        assert!(said(&document).starts_with(
            "Stock does not run here; graphics queue on does, and nothing beat it in screening\n"
        ));
    }

    #[test]
    fn a_name_with_an_escape_cannot_reach_the_terminal() {
        let mut document = winner();
        document["candidates"][0]["reason"] = json!("\u{1b}]0;pwned\u{7}");
        let text = result(
            &document,
            Context {
                model: "\u{1b}[2J.gguf",
                ..CONTEXT
            },
        )
        .unwrap();
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text}"
        );
    }
}
