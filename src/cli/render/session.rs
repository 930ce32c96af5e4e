//! One session in full: how it began and ended, every sample, every verdict, every notice; raw output where asked for.

use std::fmt::Write as _;

use serde::Deserialize as _;

use crate::cli::output::{Style, notice_line};
use crate::domain::server::speculation::advice;
use crate::domain::text::{
    arm_words, clean, clean_lines, metrics_of, moment, rate, sensor_lines, settings_phrase,
    settings_words, span,
};
use crate::domain::types::{RunOutcome, Settings, TestSamples};
use crate::engine::evidence::Evidence;
use crate::engine::lab::LabDocument;
use crate::engine::report::{AbDocument, ArmDocument, LiveDocument, Overhead, TuneDocument};
use crate::engine::resume::can_resume;
use crate::ports::{Session, SessionKind, SessionState, StoredRun, StoredVerdict};
use crate::report::findings::ended;
use crate::report::limits;

use super::comparison;
use super::history::{kind, state};
use super::table::pairs;

/// The session as text; `raw` adds what every process printed.
pub fn show(evidence: &Evidence, is_measured: bool, raw: bool, style: Style) -> String {
    let mut text = head(&evidence.session, style);
    if evidence.session.begun.kind == SessionKind::Lab {
        text.push_str(&lab(&evidence.session, style));
    } else {
        let _ = writeln!(text, "\n{}", style.heading("Runs"));
    }
    for run in &evidence.runs {
        text.push_str(&self::run(run));
        if raw {
            text.push_str(&raw_output(run));
        }
    }
    text.push_str(&screened(evidence, style));
    text.push_str(&verdicts(&evidence.verdicts, &evidence.session, style));
    text.push_str(&clients(&evidence.session, style));
    if !evidence.notices.is_empty() {
        let _ = writeln!(text, "\n{}", style.heading("Notices"));
    }
    for notice in &evidence.notices {
        let _ = writeln!(text, "  {}", notice_line(notice));
    }
    text.push_str(&cost(evidence, style));
    text.push_str(&end(evidence, is_measured, style));
    text
}

/// What a search screened, or what placements a benchmark predicted and ran.
fn screened(evidence: &Evidence, style: Style) -> String {
    if !evidence.placements.is_empty() {
        let placements = super::placement::predicted_before(&evidence.placements, style);
        return format!("\n{placements}");
    }
    let result = evidence.session.end.as_ref().map(|end| &end.result);
    let tuned = result.and_then(|r| TuneDocument::deserialize(r).ok());
    let tuned = tuned.filter(|t| !t.candidates.is_empty());
    tuned.map_or_else(String::new, |tuned| {
        format!("\n{}", super::tune::candidates(&tuned, style))
    })
}

/// Where the session's time went.
fn cost(evidence: &Evidence, style: Style) -> String {
    let result = evidence
        .session
        .end
        .as_ref()
        .map(|end| &end.result["overhead"]);
    let Some(told) = result.and_then(|r| Overhead::deserialize(r).ok()) else {
        return String::new();
    };
    // Sessions of before commands told of it: what runs took beyond this command's.
    let all: f64 = evidence.runs.iter().map(|run| run.run.wall_secs).sum();
    let earlier = told.earlier_run_secs.max(all - told.run_secs);
    let known = if earlier > 1.0 { earlier } else { 0.0 };
    format!(
        "\n{}",
        super::tune::overhead(Some(&told.after(known)), style)
    )
}

/// What a lab found before it ended, however it did.
fn lab(session: &Session, style: Style) -> String {
    let result = session.end.as_ref().map(|end| end.result.clone());
    let lab = result.and_then(|result| serde_json::from_value::<LabDocument>(result).ok());
    lab.map_or_else(String::new, |lab| {
        format!("\n{}", super::lab::full(&lab, style))
    })
}

fn head(session: &Session, style: Style) -> String {
    let begun = &session.begun;
    let title = format!(
        "Session {}: {}",
        session.id,
        kind(begun.kind, begun.simulated)
    );
    if begun.kind == SessionKind::Lab {
        let rows = [
            ("Began", moment(begun.started_at)),
            ("Fingerprint", begun.fingerprint.hash.clone()),
            ("Flux", clean(&begun.flux_version)),
        ];
        return format!("{}\n{}", style.heading(&title), pairs(&rows, 2));
    }
    let mut rows = vec![
        ("Began", moment(begun.started_at)),
        (
            "Model",
            format!(
                "{} ({})",
                clean(&begun.model.name),
                clean(&begun.model.path.display().to_string())
            ),
        ),
        ("Runtime", super::runtimes::one(&begun.runtime)),
        ("Goal", begun.goal.to_string()),
    ];
    rows.extend(limits(begun).map(|limits| ("Limits", limits)));
    rows.extend([
        ("Fingerprint", begun.fingerprint.hash.clone()),
        ("Flux", clean(&begun.flux_version)),
    ]);
    format!("{}\n{}", style.heading(&title), pairs(&rows, 2))
}

fn run(run: &StoredRun) -> String {
    let side = run
        .planned
        .side
        .map_or_else(String::new, |side| format!(", arm {side:?}"));
    let mut text = format!(
        "  run {:>3}, {}{side}: {} [{}]\n",
        run.seq + 1,
        run.planned.stage.words(),
        arm_words(&run.planned),
        span(run.run.wall_secs),
    );
    match &run.run.outcome {
        RunOutcome::Valid { tests } => {
            for test in tests {
                let _ = writeln!(text, "       {}", samples(test));
            }
        }
        RunOutcome::StoppedEarly {
            test,
            repetition_secs,
            limit_secs,
        } => {
            let (took, limit) = (span(*repetition_secs), span(*limit_secs));
            let _ = writeln!(
                text,
                "       stopped early: a repetition of {test} took {took}, more than {limit}"
            );
        }
        RunOutcome::Failed { failure, .. } => {
            let _ = writeln!(text, "       failed: {}", clean(&failure.to_string()));
            let _ = writeln!(text, "       {}", failure.class.advice());
        }
        RunOutcome::Cancelled => text.push_str("       cancelled\n"),
    }
    for line in sensor_lines(&run.run) {
        let _ = writeln!(text, "       {line}");
    }
    text
}

/// `tg128  38.2 t/s  (38.21 38.19 38.20)`: every repetition, none left out.
fn samples(test: &TestSamples) -> String {
    let all: Vec<String> = test.rates().iter().map(|r| format!("{r:.2}")).collect();
    format!(
        "{}  {} t/s  ({})",
        test.test,
        rate(test.mean_rate(), None),
        all.join(" ")
    )
}

fn raw_output(run: &StoredRun) -> String {
    let raw = &run.run.raw;
    let mut text = format!("       $ {}\n", clean(&shell_words::join(&raw.argv)));
    for (name, value) in &raw.env {
        let _ = writeln!(text, "       env {}={}", clean(name), clean(value));
    }
    let _ = writeln!(text, "       {}", ended(raw));
    for (stream, output) in [("stdout", &raw.stdout), ("stderr", &raw.stderr)] {
        for line in clean_lines(output).lines() {
            let _ = writeln!(text, "       {stream} | {line}");
        }
    }
    text
}

/// `Micro-batch 1024 against stock`; of two builds their names.
fn against(verdict: &StoredVerdict, session: &Session) -> String {
    let settings = settings_words(&verdict.settings);
    let baseline = verdict.detail.get("baseline").cloned();
    let Some(baseline) = baseline.and_then(|b| serde_json::from_value::<Settings>(b).ok()) else {
        return settings;
    };
    let result = session.end.as_ref().map(|end| &end.result);
    let compared = result.and_then(|r| AbDocument::deserialize(r).ok());
    match compared.filter(|c| c.a.runtime != c.b.runtime) {
        Some(c) => {
            let named = |arm: &ArmDocument, settings: String| {
                format!("{} ({settings})", clean(&arm.runtime))
            };
            let (a, b) = (
                settings_phrase(&baseline),
                settings_phrase(&verdict.settings),
            );
            format!("{} against {}", named(&c.b, b), named(&c.a, a))
        }
        None => format!("{settings} against {}", settings_phrase(&baseline)),
    }
}

/// What several clients got, or speculation was worth, where that was measured.
fn clients(session: &Session, style: Style) -> String {
    let result = session.end.as_ref().map(|end| &end.result);
    let Some(document) = result.and_then(|r| AbDocument::deserialize(r).ok()) else {
        return String::new();
    };
    let requests = document.live.as_ref().map(LiveDocument::requests);
    let heading = |what: &str| {
        let requests = requests.as_deref().unwrap_or_default();
        style.heading(&format!("{what}: {requests}"))
    };
    if !document.clients().is_empty() {
        let table = super::tune::clients(document.clients(), style);
        return format!("\n{}\n{table}", heading("Several clients"));
    }
    if document.speculation().is_empty() {
        return String::new();
    }
    let table = super::tune::speculation(&document, style);
    let advice = clean(&advice(document.speculation()));
    format!("\n{}\n{table}  {advice}\n", heading("Speculation"))
}

fn verdicts(verdicts: &[StoredVerdict], session: &Session, style: Style) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let title = format!(
            "Verdict on {}: {}",
            against(verdict, session),
            verdict.verdict
        );
        let _ = writeln!(text, "\n{}", style.heading(&title));
        let metrics = metrics_of(&verdict.detail);
        text.push_str(&comparison::metrics(&metrics, Style::PLAIN));
    }
    text
}

fn end(evidence: &Evidence, is_measured: bool, style: Style) -> String {
    let ended = evidence.session.end.as_ref();
    let word = state(ended.map(|e| e.state), is_measured);
    let mut text = format!("\n{} {word}", style.heading("Ended:"));
    if let Some(end) = ended {
        let _ = write!(text, ", {}", moment(end.ended_at));
        if let Some(verdict) = end.verdict {
            let _ = write!(text, ", {verdict}");
        }
        let reason = end.result.get("reason").and_then(serde_json::Value::as_str);
        // Where something was confirmed, its own reason stands above; a benchmark of placements chooses by several.
        let chosen = evidence.session.begun.kind == SessionKind::Plan;
        if let Some(reason) = reason.filter(|_| chosen || evidence.verdicts.is_empty()) {
            let _ = write!(text, ": {}", clean(reason));
        }
        if end.state == SessionState::Failed
            && let Some(headline) = end
                .result
                .get("headline")
                .and_then(serde_json::Value::as_str)
        {
            let _ = write!(text, ": {}", clean(headline));
        }
    }
    text.push('\n');
    if can_resume(&evidence.session) && !is_measured {
        let id = evidence.session.id;
        let _ = writeln!(text, "`flux tune --resume {id}` goes on with it");
    }
    for profile in &evidence.profiles {
        let _ = writeln!(
            text,
            "Profile {}: {}",
            profile.id,
            settings_words(&profile.settings)
        );
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::runtimes::tests::cpu_build;
    use super::*;
    use crate::domain::types::*;
    use crate::ports::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn machine() -> Machine {
        Machine {
            schema: 1,
            vulkan: VulkanReport {
                status: VulkanStatus::NoLoader {
                    detail: String::new(),
                },
                entries: vec![],
            },
            system_gpus: vec![],
            host: Host::default(),
            telemetry: vec![],
            runtimes: vec![],
            inherited_env: BTreeMap::new(),
            llama_configs: Vec::new(),
            simulated: false,
        }
    }

    fn model() -> ModelInfo {
        ModelInfo {
            path: PathBuf::from("/m/a.gguf"),
            parts: vec![],
            digest: String::new(),
            kind: ModelKind::Model,
            architecture: "llama".to_owned(),
            name: "A\u{1b}[2J".to_owned(),
            parameters: 1,
            tensor_bytes: Bytes(1),
            file_bytes: Bytes(1),
            layers: None,
            context_length: None,
            experts: 0,
            quant_mix: vec![],
            tokenizer: true,
            kv_bytes_per_token_f16: None,
            notices: vec![],
        }
    }

    fn stored(
        id: i64,
        seq: u32,
        stage: Stage,
        side: Option<Side>,
        outcome: RunOutcome,
    ) -> StoredRun {
        StoredRun {
            id,
            seq,
            planned: PlannedRun {
                stage,
                side,
                settings: Settings::stock().with("graphics-queue", "on"),
                repetitions: 2,
                early_stop: None,
                log_buffers: false,
                clients: 1,
                purpose: "x".to_owned(),
            },
            run: Run {
                started_at: Timestamp(0),
                wall_secs: 12.0,
                outcome,
                buffers: vec![],
                raw: RawOutput {
                    argv: vec!["llama-bench".to_owned()],
                    stderr: "loading\u{1b}[31m\nready".to_owned(),
                    exit_code: Some(0),
                    ..RawOutput::default()
                },
                telemetry: None,
            },
        }
    }

    fn session() -> Session {
        Session {
            id: 5,
            begun: NewSession {
                kind: SessionKind::Tune,
                started_at: Timestamp(0),
                fingerprint: Fingerprint {
                    hash: "ab".repeat(32),
                    fields: vec![],
                },
                machine: machine(),
                runtime: cpu_build(),
                model: model(),
                goal: Goal::Generation,
                config: serde_json::Value::Null,
                simulated: false,
                flux_version: "0.1.0".to_owned(),
            },
            end: Some(SessionEnd {
                ended_at: Timestamp(60_000),
                state: SessionState::Done,
                verdict: Some(Verdict::Improved),
                result: serde_json::Value::Null,
            }),
        }
    }

    /// A confirmation run with two repetitions, then a run out of memory.
    pub(crate) fn evidence() -> Evidence {
        let tests = vec![TestSamples {
            test: TestSpec::generation(128),
            // 128 tokens in 4 s and in 3.2 s: 32 and 40 tokens per second.
            samples_ns: vec![4_000_000_000, 3_200_000_000],
            record: serde_json::Value::Null,
            energy: None,
        }];
        let failure = Failure::new(FailureClass::OutOfMemory, "cudaMalloc failed");
        Evidence {
            schema: 1,
            session: session(),
            runs: vec![
                stored(
                    31,
                    0,
                    Stage::Confirmation,
                    Some(Side::B),
                    RunOutcome::Valid { tests },
                ),
                stored(
                    32,
                    1,
                    Stage::Screening,
                    None,
                    RunOutcome::Failed {
                        failure,
                        salvaged: vec![],
                    },
                ),
            ],
            verdicts: vec![StoredVerdict {
                id: 2,
                session: 5,
                settings: Settings::stock().with("graphics-queue", "on"),
                verdict: Verdict::Improved,
                detail: serde_json::json!({"metrics": {"tg128": crate::domain::text::graphics_queue()}}),
            }],
            notices: vec![Notice {
                level: NoticeLevel::Warning,
                code: "battery".to_owned(),
                text: "on battery".to_owned(),
            }],
            placements: vec![],
            profiles: vec![],
        }
    }

    #[test]
    fn every_sample_failure_verdict_notice_and_the_end_are_shown() {
        let text = show(&evidence(), false, false, Style::PLAIN);
        for part in [
            "Session 5: tune\n",
            "  run   1, confirmation, arm B: Graphics queue on [12 s]\n       tg128  36.0 t/s  (32.00 40.00)\n",
            "  run   2, screening: Graphics queue on [12 s]\n       failed: out of memory: cudaMalloc failed\n",
            "Verdict on Graphics queue on: improved\ntg128  Improved: +68.3 %",
            "Notices\n  warning: on battery\n",
            "Ended: done, 1970-01-01 00:01 UTC, improved\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing from\n{text}");
        }
        assert!(
            !text.contains("stderr |") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn raw_output_is_shown_harmlessly_on_request() {
        let text = show(&evidence(), false, true, Style::PLAIN);
        assert!(
            text.contains("       stderr | loading\\u{1b}[31m\n       stderr | ready\n"),
            "{text}"
        );
        assert!(text.contains("exit status 0"), "{text}");
    }
}
