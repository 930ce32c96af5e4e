//! `flux plan`: the plan first, then the best of each tier, what each memory takes, and what the prediction rests on.

use std::fmt::Write as _;

use crate::cli::output::Style;
use crate::domain::placement::speed::Status;
use crate::domain::text::{capitalised, clean, count, settings_words, shell_command};
use crate::domain::types::Bytes;
use crate::engine::plan::{
    ArmResult, BenchDocument, CandidateDocument, ConstantDocument, FitDocument, MORE_ROOM,
    ModelRuns, PlanDocument, told,
};
use crate::report::placements;

use super::table::{Align, Table};

/// The plan as text.
pub fn plan(document: &PlanDocument, style: Style) -> String {
    let mut text = String::new();
    if let Some(bench) = &document.bench {
        text.push_str(&measured(bench, style));
        let ours = document
            .chosen
            .as_ref()
            .is_some_and(|c| c.args.server == bench.args);
        let what = if ours {
            "Predicted of it, with these runs learned:"
        } else {
            "Predicted best of Flux's own, with these runs learned:"
        };
        let _ = writeln!(text, "\n{what}");
    }
    if let Some(chosen) = &document.chosen {
        text.push_str(&headline(chosen, document, style));
    } else {
        let head = "No placement of this model fits the memory that may be used";
        let _ = writeln!(text, "{}", style.heading(head));
        for why in &document.nothing_fits {
            let _ = writeln!(text, "  With everything in RAM: {}", clean(why));
        }
        let _ = writeln!(text, "  {}", capitalised(MORE_ROOM));
    }
    if !document.candidates.is_empty() {
        let _ = write!(text, "\n{}", candidates(&document.candidates, style));
    }
    if let Some(chosen) = &document.chosen {
        let _ = write!(text, "\n{}", memory(chosen, style));
    }
    for prediction in &document.predictions {
        let _ = write!(text, "\n{}", predicted(prediction, style));
    }
    let _ = write!(text, "\n{}", fit(&document.fit, style));
    if let Some(chosen) = &document.chosen {
        let mut args = vec![
            "llama-server".to_owned(),
            "-m".to_owned(),
            document.model.path.display().to_string(),
        ];
        let measured = document.bench.as_ref().map(|b| &b.args);
        args.extend(measured.unwrap_or(&chosen.args.server).iter().cloned());
        let command = shell_command(&document.machine.env, &args);
        let _ = writeln!(text, "\n{}\n  {command}", style.heading("Command"));
    }
    text
}

fn headline(chosen: &CandidateDocument, document: &PlanDocument, style: Style) -> String {
    let speed = rate(chosen.predicted.tg);
    let head = format!(
        "{}: {}, {speed} tok/s predicted",
        clean(&document.model.name),
        placed(chosen),
    );
    let mut text = format!("{}\n", style.heading(&head));
    let cache = if chosen.placement.type_k == "f16" && chosen.placement.type_v == "f16" {
        "f16 KV".to_owned()
    } else {
        format!(
            "{} / {} KV",
            chosen.placement.type_k, chosen.placement.type_v
        )
    };
    let measured = |c: &ConstantDocument| c.status == Status::Measured;
    let basis = match document.fit.mean_abs_error_pct {
        Some(error) => format!(
            "from a fit over {} (error {error:.1} %)",
            runs_of(&document.fit)
        ),
        None if document.fit.runs > 0 => format!(
            "from a fit over {}, none of them of this model",
            runs_of(&document.fit)
        ),
        None if document.fit.constants.iter().any(measured) => {
            "from measured and assumed bandwidths, no benchmark yet".to_owned()
        }
        None => "from assumed bandwidths, no benchmark yet".to_owned(),
    };
    let _ = writeln!(
        text,
        "Exact weights, {cache}, {} tokens of context; predicted {basis}",
        chosen.placement.context
    );
    if chosen.streams {
        let _ = writeln!(text, "{}", streams(document));
    }
    text
}

/// Weights that RAM does not hold, before anything is run: from where they come instead, and how fast.
fn streams(document: &PlanDocument) -> String {
    let disk = document
        .fit
        .constants
        .iter()
        .find(|c| c.name == "disk_bandwidth");
    let chosen = document.chosen.as_ref();
    let kept = match chosen {
        Some(c) if c.args.server.iter().any(|a| a == "--no-repack") => {
            "; --no-repack, or llama.cpp would copy them into memory that it does not have"
        }
        _ => "",
    };
    let rate = disk.and_then(|c| Some((c.value?, status(c.status))));
    let rate = rate.map_or_else(String::new, |(value, status)| {
        format!(", at {} GB/s ({status})", self::rate(value))
    });
    format!("Weights do not fit in RAM: they are read from the disk for every token{rate}{kept}")
}

/// `16 benchmarks: 10 of Qwen3 30B A3B, 6 of Qwen3 4B`; of one model the number alone.
fn runs_of(fit: &FitDocument) -> String {
    let all = count(fit.runs as u64, "benchmark");
    if fit.models.len() < 2 && fit.mean_abs_error_pct.is_some() {
        return all;
    }
    let of = |m: &ModelRuns| format!("{} of {}", m.runs, clean(&m.model));
    let models: Vec<String> = fit.models.iter().map(of).collect();
    format!("{all}: {}", models.join(", "))
}

/// What is placed where, in words.
fn placed(candidate: &CandidateDocument) -> String {
    let p = &candidate.placement;
    let mut words = format!(
        "{}, {} offloaded",
        candidate.tier.words(),
        count(p.n_gpu_layers.into(), "layer")
    );
    if p.n_cpu_moe > 0 {
        let _ = write!(words, ", experts of {} in RAM", p.n_cpu_moe);
    }
    for kept in &p.host_tensors {
        let _ = write!(
            words,
            ", feed-forward weights of {} in RAM",
            count(kept.layers.len() as u64, "layer")
        );
    }
    if p.kv_on_host {
        words.push_str(", KV cache in RAM");
    }
    words
}

fn candidates(candidates: &[CandidateDocument], style: Style) -> String {
    let mut table = Table::new(&[
        ("Tier", Align::Left),
        ("Offloaded", Align::Right),
        ("In RAM", Align::Right),
        ("Micro-batch", Align::Right),
        ("tg tok/s", Align::Right),
        ("pp tok/s", Align::Right),
        ("measured tg", Align::Right),
    ]);
    for candidate in candidates {
        let p = &candidate.placement;
        let kept: usize = p.host_tensors.iter().map(|k| k.layers.len()).sum();
        let kept = kept + p.n_cpu_moe as usize;
        let measured = candidate.measured.as_ref().and_then(|m| m.tg);
        table.row([
            candidate.tier.words().to_owned(),
            p.n_gpu_layers.to_string(),
            if kept == 0 {
                "–".to_owned()
            } else {
                format!("{kept} FFN")
            },
            p.micro_batch.to_string(),
            rate(candidate.predicted.tg),
            rate(candidate.predicted.pp),
            measured.map_or_else(|| "–".to_owned(), rate),
        ]);
    }
    format!(
        "{}\n{}",
        style.heading("Candidates"),
        table.render(2, style)
    )
}

fn memory(candidate: &CandidateDocument, style: Style) -> String {
    let mut table = Table::new(&[
        ("Memory", Align::Left),
        ("Weights", Align::Right),
        ("KV cache", Align::Right),
        ("Compute", Align::Right),
        ("Total", Align::Right),
        ("Usable", Align::Right),
        ("", Align::Left),
    ]);
    for m in &candidate.memory {
        let size = |n| Bytes(n).to_string();
        let fits = match (m.fits, candidate.streams) {
            (true, _) => "fits",
            (false, true) => "streams from disk",
            (false, false) => "does not fit",
        };
        table.row([
            clean(&m.device),
            size(m.weights),
            size(m.kv),
            size(m.compute),
            size(m.total),
            size(m.usable),
            fits.to_owned(),
        ]);
    }
    format!("{}\n{}", style.heading("Memory"), table.render(2, style))
}

/// What a session predicted of placements before it ran them, and how far off that was.
pub(super) fn predicted_before(arms: &[ArmResult], style: Style) -> String {
    let error = placements::error(arms).map_or_else(String::new, |told| format!("  {told}\n"));
    let table = arms_table(arms.iter()).render(2, style);
    format!("{}\n{table}{error}", style.heading(placements::TITLE))
}

fn arms_table<'a>(arms: impl Iterator<Item = &'a ArmResult>) -> Table {
    let mut table = Table::new(&placements::TITLES.map(|(title, is_rate)| {
        let align = if is_rate { Align::Right } else { Align::Left };
        (title, align)
    }));
    for arm in arms {
        table.row(placements::cells(arm));
    }
    table
}

/// Every arm measured, and what the confirmations came to.
fn measured(bench: &BenchDocument, style: Style) -> String {
    let arms = std::iter::once(&bench.stock).chain(&bench.fit);
    let arms = arms.chain(&bench.placements);
    let mut text = format!(
        "{}\n{}",
        style.heading("Benchmarks"),
        arms_table(arms).render(2, style)
    );
    for confirmation in &bench.confirmations {
        let _ = writeln!(
            text,
            "  {} against {}: {}",
            clean(&settings_words(&confirmation.settings)),
            clean(&settings_words(&confirmation.baseline)),
            clean(&confirmation.reason)
        );
    }
    if !bench.reason.is_empty() {
        let _ = writeln!(text, "Result: {}", clean(&bench.reason));
    }
    if let Some(output) = &bench.output {
        let _ = writeln!(text, "Output: {}", clean(&output.sentence()));
    }
    if let Some(profile) = bench.profile {
        let _ = writeln!(
            text,
            "Stored as profile {profile} of session {}",
            bench.session
        );
    }
    text
}

fn predicted(candidate: &CandidateDocument, style: Style) -> String {
    let mut text = format!(
        "{}\n  {}, micro-batch {}: {} tok/s generating, {} tok/s reading the prompt\n",
        style.heading("Prediction"),
        placed(candidate),
        candidate.placement.micro_batch,
        rate(candidate.predicted.tg),
        rate(candidate.predicted.pp),
    );
    for problem in &candidate.problems {
        let _ = writeln!(text, "  {problem}");
    }
    if candidate.streams {
        text.push_str("  streams weights from the disk for every token\n");
    }
    text
}

fn fit(fit: &FitDocument, style: Style) -> String {
    let mut table = Table::new(&[
        ("Constant", Align::Left),
        ("Value", Align::Right),
        ("Unit", Align::Left),
        ("Status", Align::Left),
        ("From", Align::Left),
    ]);
    for constant in &fit.constants {
        table.row([
            clean(&constant.name),
            constant.value.map_or_else(|| "no limit".to_owned(), rate),
            constant.unit.clone(),
            status(constant.status).to_owned(),
            clean(&constant.origin),
        ]);
    }
    let title = style.heading("What the prediction rests on");
    let mut text = format!("{title}\n{}", table.render(2, style));
    if let Some(errors) = told(&fit.history) {
        let _ = writeln!(text, "  {errors}");
    }
    text
}

const fn status(status: Status) -> &'static str {
    match status {
        Status::Measured => "measured",
        Status::Fitted => "fitted",
        Status::Assumed => "assumed",
    }
}

/// Three significant digits.
fn rate(value: f64) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
