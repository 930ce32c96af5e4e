//! The result of `flux tune` and `flux ab`: the verdict sentence first, then the evidence, the candidates with what
//! became of them, what the search cost, and what to do next.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cli::output::{Style, notice_line};
use crate::domain::search::{BaselineSummary, ClientsRow};
use crate::domain::text::{
    CLIENTS_TITLES, SPECULATION_TITLES, change, clean, clients_cells, confirmed_words, rate,
    settings_phrase, settings_words, shell_command,
};
use crate::engine::report::{
    AbDocument, CandidateDocument, ConfirmationDocument, Overhead, TuneDocument,
};
use crate::ports::Notice;
use crate::report::findings;

use super::comparison;
use super::refusals;
use super::table::{Align, Table, pairs};

/// What the text needs to know besides the document: what the user said, for the next command, and the style.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The model.
    pub model: &'a str,
    /// `--runtime`, where it was given.
    pub runtime: Option<&'a str>,
    /// `--data-dir`, where it was given.
    pub data_dir: Option<&'a str>,
    /// Bold headings or not.
    pub style: Style,
}

impl Context<'_> {
    /// `flux` with these words, and with what must be said again.
    fn command(&self, words: &[&str]) -> String {
        let flag = |name, value: Option<&str>| value.map(|v| [name, v].map(str::to_owned));
        let said = flag("--data-dir", self.data_dir).into_iter().flatten();
        let words = words.iter().map(|word| (*word).to_owned());
        let all: Vec<String> = ["flux".to_owned()]
            .into_iter()
            .chain(said)
            .chain(words)
            .collect();
        shell_command(&BTreeMap::new(), &all)
    }
}

/// The result of `flux tune` as text.
pub fn result(document: &TuneDocument, context: Context) -> String {
    let style = context.style;
    joined([
        verdict(
            &document.sentence(),
            &document.judgement(),
            document.simulated,
            &document.notices,
            style,
        ),
        evidence(document.confirmation.as_ref(), style),
        output_check(document, style),
        baseline(document.baseline.as_ref(), style),
        candidates(document, context.style),
        finalists(&document.confirmations, style),
        refusals::section(&document.refused, style),
        overhead(document.overhead.as_ref(), style),
        next(document, context),
    ])
}

/// What the winner says against what stock says.
fn output_check(document: &TuneDocument, style: Style) -> String {
    document.output.as_ref().map_or_else(String::new, |output| {
        format!(
            "{}\n  {}\n",
            style.heading("Output"),
            clean(&output.sentence())
        )
    })
}

/// The result of `flux ab` as text.
pub fn ab_result(document: &AbDocument, context: Context) -> String {
    let style = context.style;
    joined([
        verdict(
            &document.sentence(),
            &document.judgement(),
            false,
            &document.notices,
            style,
        ),
        evidence(document.confirmation.as_ref(), style),
        clients(document.clients(), style),
        speculation(document, style),
        overhead(document.overhead.as_ref(), style),
        every_sample(document.session, context),
    ])
}

/// What several clients got, as a table.
pub fn clients(rows: &[ClientsRow], style: Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&CLIENTS_TITLES.map(|title| (title, Align::Right)));
    for row in rows {
        table.row(clients_cells(row));
    }
    table.render(2, style)
}

/// What speculation was worth, as a table.
pub fn speculation(document: &AbDocument, style: Style) -> String {
    let rows = document.speculation_lines();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&SPECULATION_TITLES.map(|title| (title, Align::Left)));
    for row in rows {
        table.row(row);
    }
    table.render(2, style)
}

fn joined<const N: usize>(sections: [String; N]) -> String {
    let shown: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    shown.join("\n")
}

fn verdict(
    sentence: &str,
    judgement: &str,
    simulated: bool,
    notices: &[Notice],
    style: Style,
) -> String {
    let mut text = format!("{}\n{judgement}\n", style.heading(sentence));
    if simulated {
        text.push_str("Simulated: made on an exported machine, applies only there\n");
    }
    for notice in notices {
        let _ = writeln!(text, "{}", notice_line(notice));
    }
    text
}

fn evidence(confirmation: Option<&ConfirmationDocument>, style: Style) -> String {
    confirmation.map_or_else(String::new, |c| comparison::metrics(&c.judged(), style))
}

fn baseline(baseline: Option<&BaselineSummary>, style: Style) -> String {
    let Some(baseline) = baseline.filter(|b| !b.metrics.is_empty()) else {
        return String::new();
    };
    let rates = baseline.metrics.iter();
    let shown: Vec<String> = rates
        .map(|(label, mean)| format!("{} {} t/s", clean(label), rate(*mean, None)))
        .collect();
    let title = format!("Baseline ({})", settings_phrase(&baseline.settings));
    format!("{}: {}\n", style.heading(&title), shown.join(", "))
}

/// Characters to a line of a candidate's settings, and of what became of it: combinations can set a dozen.
const CANDIDATE_WIDTH: usize = 48;

/// Every candidate, best first, and what became of it.
pub(super) fn candidates(document: &TuneDocument, style: Style) -> String {
    if document.candidates.is_empty() {
        return String::new();
    }
    let ranked = findings::ranked(document);
    let start = document
        .baseline
        .as_ref()
        .map(|b| b.settings.clone())
        .unwrap_or_default();
    let labels = labels(&ranked, &document.primary);
    let mut table = Table::new(&[
        ("#", Align::Right),
        ("Candidate", Align::Left),
        ("Change", Align::Right),
        ("t/s", Align::Right),
        ("Became", Align::Left),
    ])
    .wrapped(CANDIDATE_WIDTH);
    for candidate in ranked {
        table.row([
            candidate.id.to_string(),
            settings_words(&candidate.settings.beyond(&start)),
            candidate
                .change_pct
                .map_or_else(String::new, |pct| change(pct, 1)),
            rates(candidate, &labels),
            findings::became(document, candidate),
        ]);
    }
    let drift = document.baseline.as_ref().and_then(|b| b.drift_pct);
    let against = drift.map_or_else(String::new, |pct| {
        format!(
            "; changes are against a baseline that drifted by {}",
            change(pct, 1)
        )
    });
    let title = format!("Screened, best first ({}){against}", labels.join(" / "));
    format!(
        "{}\n{}",
        style.heading(&clean(&title)),
        table.render(2, style)
    )
}

/// Finalists that were confirmed and not saved; the last one is the result above.
fn finalists(confirmations: &[ConfirmationDocument], style: Style) -> String {
    let Some((_, earlier)) = confirmations.split_last() else {
        return String::new();
    };
    if earlier.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("", Align::Left); 2]);
    for c in earlier {
        let words = confirmed_words(c.verdict, c.rejected, &c.reason);
        table.row([settings_words(&c.settings), words]);
    }
    format!(
        "{}\n{}",
        style.heading("Confirmed before, not saved"),
        table.render(2, style)
    )
}

/// Of their tests, the goal's first.
fn labels(candidates: &[&CandidateDocument], primary: &str) -> Vec<String> {
    let mut labels: Vec<String> = candidates
        .iter()
        .flat_map(|c| c.metrics.keys().cloned())
        .collect();
    labels.sort_unstable();
    labels.dedup();
    labels.sort_by_key(|label| label != primary);
    labels
}

fn rates(candidate: &CandidateDocument, labels: &[String]) -> String {
    let shown: Vec<String> = labels
        .iter()
        .map(|label| {
            let mean = candidate.metrics.get(label);
            mean.map_or_else(|| "–".to_owned(), |mean| rate(*mean, None))
        })
        .collect();
    shown.join(" / ")
}

/// Where the time went.
pub(super) fn overhead(overhead: Option<&Overhead>, style: Style) -> String {
    overhead.map_or_else(String::new, |overhead| {
        let rows = pairs(&overhead.rows(), 2);
        format!("{}\n{rows}", style.heading("What it cost"))
    })
}

fn next(document: &TuneDocument, context: Context) -> String {
    let mut text = String::new();
    if let Some(profile) = &document.profile {
        if !profile.args.is_empty() || !profile.env.is_empty() {
            let settings = shell_command(&profile.env, &profile.args);
            let _ = writeln!(text, "Settings for llama.cpp: {settings}");
        }
        let mut words = vec!["run", "-m", context.model];
        words.extend(context.runtime.iter().flat_map(|name| ["--runtime", *name]));
        let command = context.command(&words);
        let _ = writeln!(text, "Next: {command}");
        let _ = writeln!(text, "Why:  {command} --explain");
    }
    text.push_str(&every_sample(document.session, context));
    text
}

fn every_sample(session: Option<i64>, context: Context) -> String {
    session.map_or_else(String::new, |id| {
        let command = context.command(&["show", &id.to_string()]);
        format!("Every sample: {command}\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::text::graphics_queue;
    use serde_json::{Value, json};

    const CONTEXT: Context = Context {
        model: "my model.gguf",
        runtime: None,
        data_dir: None,
        style: Style::PLAIN,
    };

    fn shown(document: &Value, context: Context) -> String {
        let document: TuneDocument = serde_json::from_value(document.clone()).unwrap();
        result(&document, context)
    }

    fn winner() -> Value {
        json!({
            "schema": 1, "session": 5, "fingerprint": "abc", "goal": "generation", "primary": "tg128",
            "baseline": {"settings": {}, "metrics": {"tg128": 22.7, "pp512": 187.0}, "runs": 3, "noise_pct": 0.5, "drift_pct": null, "stock_failure": null},
            "candidates": [
                {"id": 1, "settings": {"flash-attn": "off"}, "metrics": {"tg128": 20.24, "pp512": 192.9}, "status": "ok", "reason": null, "change_pct": -11.3},
                {"id": 2, "settings": {"graphics-queue": "on"}, "metrics": {"tg128": 38.2, "pp512": 197.9}, "status": "ok", "reason": null, "change_pct": 67.5},
                {"id": 3, "settings": {"ubatch": "4096"}, "metrics": {}, "status": "failed", "reason": "out of memory"}
            ],
            "confirmation": {"schema": 1, "metrics": {"tg128": graphics_queue()}},
            "confirmations": [{"schema": 1, "settings": {"graphics-queue": "on"}, "metrics": {"tg128": graphics_queue()}, "verdict": "improved"}],
            "verdict": "improved",
            "profile": {"id": 4, "settings": {"graphics-queue": "on"}, "args": ["--ubatch-size", "512"], "env": {"GGML_VK_ALLOW_GRAPHICS_QUEUE": "1"}},
            "overhead": {"wall_secs": 1260.0, "run_secs": 1257.354, "flux_secs": 2.646, "flux_pct": 0.21}
        })
    }

    #[test]
    fn the_first_line_is_the_verdict_sentence() {
        let text = shown(&winner(), CONTEXT);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("Graphics queue on: +68.3 % (95 % CI +67.9 to +68.8), 8 + 8 runs")
        );
        assert_eq!(lines.next(), Some("Improved · saved as profile 4"));
    }

    #[test]
    fn rejected_candidates_keep_their_place_and_their_reason() {
        let text = shown(&winner(), CONTEXT);
        let table: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("Screened"))
            .take(5)
            .collect();
        assert_eq!(
            table,
            [
                "Screened, best first (tg128 / pp512)",
                "  #  Candidate             Change         t/s  Became",
                "  2  Graphics queue on    +67.5 %  38.2 / 198  confirmation: improved",
                "  1  Flash attention off  −11.3 %  20.2 / 193  slower",
                "  3  Micro-batch 4096                   – / –  failed: out of memory",
            ]
        );
    }

    #[test]
    fn baseline_cost_and_next_step_are_said() {
        let text = shown(&winner(), CONTEXT);
        assert!(
            text.contains("Baseline (stock): pp512 187 t/s, tg128 22.7 t/s\n"),
            "{text}"
        );
        assert!(
            text.contains("  In all              21 min 00 s\n  In llama.cpp        20 min 57 s\n  Flux itself         3 s\n  Flux itself, share  0.21 %\n"),
            "{text}"
        );
        let mut gone_on = winner();
        gone_on["overhead"]["earlier_run_secs"] = json!(3000.0);
        let text = shown(&gone_on, CONTEXT);
        assert!(
            text.contains("  Runs until it broke off  50 min 00 s\n  Since it went on         21 min 00 s\n  In llama.cpp             20 min 57 s\n"),
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
    fn the_next_command_repeats_where_the_profile_and_the_build_are() {
        let context = Context {
            runtime: Some("b11149"),
            data_dir: Some("my data"),
            ..CONTEXT
        };
        let text = shown(&winner(), context);
        for line in [
            "Next: flux --data-dir 'my data' run -m 'my model.gguf' --runtime b11149\n",
            "Why:  flux --data-dir 'my data' run -m 'my model.gguf' --runtime b11149 --explain\n",
            "Every sample: flux --data-dir 'my data' show 5\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn no_winner_is_a_result_too() {
        let text = shown(
            &json!({"schema": 1, "session": 6, "verdict": null, "profile": null, "confirmation": null, "candidates": []}),
            CONTEXT,
        );
        assert_eq!(
            text,
            "Nothing beat stock in screening: stock stays\nno profile saved\n\nEvery sample: flux show 6\n"
        );
    }

    #[test]
    fn stock_does_not_stay_where_it_does_not_run() {
        let mut document = winner();
        for key in ["profile", "confirmation"] {
            document[key] = Value::Null;
        }
        let said = |document: &Value| shown(document, CONTEXT);
        assert!(said(&document).starts_with("Nothing beat stock in screening: stock stays\n"));
        document["baseline"]["settings"] = json!({"graphics-queue": "on"});
        document["baseline"]["stock_failure"] = json!({"class": "device-creation", "detail": ""});
        assert!(said(&document).starts_with(
            "Stock does not run here; graphics queue on does, and nothing beat it in screening\n"
        ));
    }

    #[test]
    fn a_name_with_an_escape_cannot_reach_the_terminal() {
        let mut document = winner();
        document["candidates"][0]["reason"] = json!("\u{1b}]0;pwned\u{7}");
        let text = shown(
            &document,
            Context {
                model: "\u{1b}[2J.gguf",
                ..CONTEXT
            },
        );
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{7}'),
            "{text}"
        );
    }
}
