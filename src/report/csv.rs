//! One line per sample, for spreadsheets and scripts (RFC 4180 quoting).

use std::fmt::Write as _;

use crate::domain::telemetry::{HOST, Metric, SeriesId};
use crate::domain::text::csv_cell;
use crate::domain::types::{RunOutcome, RunTelemetry, Spread, Stage, TestSamples};
use crate::ports::StoredRun;

/// Columns, in order. Energy is of the line's repetition; sensors are of the run, while its repetitions were timed.
const HEADER: &str = "session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome,\
    joules,package_joules,tokens_per_joule,energy_is_estimate,\
    power_mean_w,power_max_w,core_clock_mean_mhz,temperature_max_c,throttled_pct,doubts,clients";

/// Every sample of a session's runs. A run without samples has one line with its outcome: nothing is left out.
pub(super) fn samples(session: i64, runs: &[StoredRun]) -> String {
    let mut text = format!("{HEADER}\n");
    for run in runs {
        let head = head(session, run);
        let tail = run
            .run
            .telemetry
            .as_deref()
            .map_or_else(|| ",".repeat(SENSORS.len()), sensors);
        let tail = format!("{tail},{}", run.planned.clients);
        match &run.run.outcome {
            RunOutcome::Valid { tests } => {
                for test in tests {
                    valid(&mut text, &head, test, &tail);
                }
            }
            RunOutcome::StoppedEarly { test, .. } => {
                without(&mut text, &head, &test.to_string(), "stopped-early", &tail);
            }
            RunOutcome::Failed { failure, .. } => {
                without(&mut text, &head, "", &failure_code(failure.class), &tail);
            }
            RunOutcome::Cancelled => without(&mut text, &head, "", "cancelled", &tail),
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
        csv_cell(&run.planned.settings.to_string()),
    )
}

fn valid(text: &mut String, head: &str, test: &TestSamples, tail: &str) {
    let label = csv_cell(&test.test.to_string());
    for (at, (ns, rate)) in test.samples_ns.iter().zip(test.rates()).enumerate() {
        let number = at + 1;
        let energy = energy(test, at);
        let _ = writeln!(
            text,
            "{head},{label},{number},{ns},{rate},valid,{energy},{tail}"
        );
    }
}

fn without(text: &mut String, head: &str, test: &str, outcome: &str, tail: &str) {
    let (test, outcome) = (csv_cell(test), csv_cell(outcome));
    let _ = writeln!(text, "{head},{test},,,,{outcome},,,,,{tail}");
}

/// Energy of one repetition; what is not known is empty.
fn energy(test: &TestSamples, at: usize) -> String {
    let energy = test.energy.as_ref();
    let device = energy.and_then(|e| e.device.get(at));
    let package = energy.and_then(|e| e.package.get(at));
    let or_empty = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    format!(
        "{},{},{},{}",
        or_empty(device.map(|e| e.joules)),
        or_empty(package.map(|e| e.joules)),
        or_empty(device.map(|e| f64::from(test.test.tokens()) / e.joules)),
        device.map_or_else(String::new, |e| e.estimated.to_string()),
    )
}

/// A sensor of the device, what is told of it, and what that is multiplied with.
type Column = (Metric, fn(Spread) -> f64, f64);

/// Sensors of the device in the columns before the last.
const SENSORS: [Column; 5] = [
    (Metric::Power, |s| s.mean, 1.0),
    (Metric::Power, |s| s.max, 1.0),
    (Metric::CoreClock, |s| s.mean, 1.0),
    (Metric::Temperature, |s| s.max, 1.0),
    // A share, as percent.
    (Metric::Throttled, |s| s.mean, 100.0),
];

fn sensors(telemetry: &RunTelemetry) -> String {
    let mut text = String::new();
    for (metric, told, factor) in SENSORS {
        // A processor's power is its package's.
        let series = match &telemetry.device {
            Some(device) => SeriesId {
                source: device.clone(),
                metric,
            },
            None => SeriesId {
                source: HOST.to_owned(),
                metric: match metric {
                    Metric::Power => Metric::CpuPower,
                    other => other,
                },
            },
        };
        if let Some(spread) = telemetry.timed(&series) {
            let _ = write!(text, "{}", told(spread) * factor);
        }
        text.push(',');
    }
    text + &csv_cell(&telemetry.doubts.join("; "))
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
        Stage::Clients => "clients",
    }
}

fn failure_code(class: crate::domain::types::FailureClass) -> String {
    let code = serde_json::to_value(class).ok();
    code.and_then(|c| c.as_str().map(str::to_owned))
        .unwrap_or_else(|| "failed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{
        Energy, EnergyMethod, Failure, FailureClass, PlannedRun, RawOutput, Run, Settings, Side,
        TestEnergy, TestSpec, Timestamp,
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
                clients: 1,
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
            "session,run,seq,stage,side,settings,test,repetition,ns,tokens_per_second,outcome,\
             joules,package_joules,tokens_per_joule,energy_is_estimate,\
             power_mean_w,power_max_w,core_clock_mean_mhz,temperature_max_c,throttled_pct,doubts,clients\n\
             5,31,0,confirmation,B,graphics-queue=on,tg128,1,4000000000,32,valid,,,,,,,,,,,1\n\
             5,31,0,confirmation,B,graphics-queue=on,tg128,2,3200000000,40,valid,,,,,,,,,,,1\n\
             5,32,1,screening,,graphics-queue=on,,,,,out-of-memory,,,,,,,,,,,1\n"
        );
    }

    #[test]
    fn a_line_has_its_repetition_s_energy_and_its_run_s_sensors() {
        let energy = |joules, estimated| Energy {
            joules,
            method: EnergyMethod::Counter,
            estimated,
        };
        let tests = vec![TestSamples {
            test: TestSpec::generation(128),
            samples_ns: vec![4_000_000_000, 3_200_000_000],
            record: serde_json::Value::Null,
            energy: Some(TestEnergy {
                device: vec![energy(64.0, false), energy(512.0, true)],
                package: vec![energy(16.0, false)],
            }),
        }];
        let series = |metric| SeriesId {
            source: "0000:01:00.0".to_owned(),
            metric,
        };
        let spread = |min, mean, max| Spread { min, mean, max };
        let mut run = stored(31, 0, Some(Side::B), RunOutcome::Valid { tests });
        run.run.telemetry = Some(Box::new(RunTelemetry {
            device: Some("0000:01:00.0".to_owned()),
            timed: vec![
                (series(Metric::Power), spread(60.0, 87.5, 121.0)),
                (series(Metric::Throttled), spread(0.0, 0.25, 1.0)),
            ],
            before: vec![],
            doubts: vec!["one, \"so\"".to_owned(), "two".to_owned()],
        }));
        let text = samples(5, &[run]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let head = "5,31,0,confirmation,B,graphics-queue=on,tg128";
        assert_eq!(
            lines,
            [
                format!(
                    "{head},1,4000000000,32,valid,64,16,2,false,87.5,121,,,25,\"one, \"\"so\"\"; two\",1"
                ),
                format!(
                    "{head},2,3200000000,40,valid,512,,0.25,true,87.5,121,,,25,\"one, \"\"so\"\"; two\",1"
                ),
            ]
        );
    }
}
