//! One line per sample, for spreadsheets and scripts (RFC 4180 quoting).

use std::fmt::Write as _;

use crate::domain::types::{RunOutcome, Stage, TestSamples};
use crate::ports::StoredRun;

/// Columns, in order.
const HEADER: &str =
    "session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome";

/// Every sample of a session's runs. A run without samples has one line with its outcome: nothing is left out.
pub(super) fn samples(session: i64, runs: &[StoredRun]) -> String {
    let mut text = format!("{HEADER}\n");
    for run in runs {
        let head = head(session, run);
        match &run.run.outcome {
            RunOutcome::Valid { tests } => {
                for test in tests {
                    valid(&mut text, &head, test);
                }
            }
            RunOutcome::StoppedEarly { test, .. } => {
                without(&mut text, &head, &test.to_string(), "stopped-early");
            }
            RunOutcome::Failed { failure, .. } => {
                without(&mut text, &head, "", &failure_code(failure.class));
            }
            RunOutcome::Cancelled => without(&mut text, &head, "", "cancelled"),
        }
    }
    text
}

fn head(session: i64, run: &StoredRun) -> String {
    let side = run
        .planned
        .side
        .map_or_else(String::new, |side| format!("{side:?}"));
    format!(
        "{session},{},{},{},{side},{}",
        run.id,
        run.seq,
        stage_code(run.planned.stage),
        field(&run.planned.settings.to_string()),
    )
}

fn valid(text: &mut String, head: &str, test: &TestSamples) {
    let label = field(&test.test.to_string());
    for (number, (ns, rate)) in (1_u32..).zip(test.samples_ns.iter().zip(test.rates())) {
        let _ = writeln!(text, "{head},{label},{number},{ns},{rate},valid");
    }
}

fn without(text: &mut String, head: &str, test: &str, outcome: &str) {
    let _ = writeln!(text, "{head},{},,,,{}", field(test), field(outcome));
}

/// The same words as in JSON.
fn stage_code(stage: Stage) -> &'static str {
    match stage {
        Stage::WarmUp => "warm-up",
        Stage::Baseline => "baseline",
        Stage::Screening => "screening",
        Stage::Pairs => "pairs",
        Stage::DropOne => "drop-one",
        Stage::Confirmation => "confirmation",
    }
}

fn failure_code(class: crate::domain::types::FailureClass) -> String {
    let code = serde_json::to_value(class).ok();
    code.and_then(|c| c.as_str().map(str::to_owned))
        .unwrap_or_else(|| "failed".to_owned())
}

/// Quoted where the format needs it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{
        Failure, FailureClass, PlannedRun, RawOutput, Run, Settings, Side, TestSpec, Timestamp,
    };

    fn stored(id: i64, seq: u32, side: Option<Side>, outcome: RunOutcome) -> StoredRun {
        StoredRun {
            id,
            seq,
            planned: PlannedRun {
                stage: side.map_or(Stage::Screening, |_| Stage::Confirmation),
                side,
                settings: Settings::stock().with("graphics-queue", "on"),
                repetitions: 2,
                early_stop: None,
                log_buffers: false,
                purpose: String::new(),
            },
            run: Run {
                started_at: Timestamp(0),
                wall_secs: 12.0,
                outcome,
                buffers: vec![],
                raw: RawOutput::default(),
                telemetry: None,
            },
        }
    }

    #[test]
    fn each_sample_is_a_line_and_a_failed_run_is_one_too() {
        let tests = vec![TestSamples {
            test: TestSpec::generation(128),
            // 128 tokens in 4 s and in 3.2 s: 32 and 40 tokens per second.
            samples_ns: vec![4_000_000_000, 3_200_000_000],
            record: serde_json::Value::Null,
            energy: None,
        }];
        let failed = RunOutcome::Failed {
            failure: Failure::new(FailureClass::OutOfMemory, "cudaMalloc failed"),
            salvaged: vec![],
        };
        let runs = [
            stored(31, 0, Some(Side::B), RunOutcome::Valid { tests }),
            stored(32, 1, None, failed),
        ];
        assert_eq!(
            samples(5, &runs),
            "session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome\n\
             5,31,0,confirmation,B,graphics-queue=on,tg128,1,4000000000,32,valid\n\
             5,31,0,confirmation,B,graphics-queue=on,tg128,2,3200000000,40,valid\n\
             5,32,1,screening,,graphics-queue=on,,,,,out-of-memory\n"
        );
    }

    #[test]
    fn commas_and_quotes_are_quoted() {
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("tg128 @ d4096"), "tg128 @ d4096");
    }
}
