//! Sensors in words: one reading, and what they said around a run.

use crate::domain::settings::MemoryUnits;
use crate::domain::telemetry::{HOST, Metric, SeriesId};
use crate::domain::types::{Bytes, Run, RunOutcome, RunTelemetry, TestSamples};

use super::{clean, three_digits};

/// A value with its unit: `87 W`, `1284 MHz`, `2.75 GiB`, `yes`.
pub fn reading_words(metric: Metric, value: f64) -> String {
    let bytes = || MemoryUnits::Binary.text(Bytes(value.max(0.0) as u64));
    match metric.unit() {
        "" if value > 0.0 => "yes".to_owned(),
        "" => "no".to_owned(),
        "B" => bytes(),
        "B/s" => format!("{}/s", bytes()),
        // Idle processors draw a few watts, in which tenths are most of the difference.
        unit @ ("W" | "J") if value < 10.0 => format!("{value:.1} {unit}"),
        unit => format!("{value:.0} {unit}").replace('-', "−"),
    }
}

/// What the sensors said of a run: a line of its device while it was timed, a line of energy per test, and every doubt.
/// Empty where nothing was read.
pub fn sensor_lines(run: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(telemetry) = &run.telemetry {
        lines.extend(device_line(telemetry));
    }
    if let RunOutcome::Valid { tests } = &run.outcome {
        lines.extend(tests.iter().filter_map(energy_line));
    }
    if let Some(telemetry) = &run.telemetry {
        let doubts = telemetry.doubts.iter();
        lines.extend(doubts.map(|doubt| format!("doubtful: {}", clean(doubt))));
    }
    lines
}

/// `GPU 87 W, at most 121 W · core clock 1284 MHz · temperature 63 °C, at most 66 °C · CPU power 41 W`.
fn device_line(telemetry: &RunTelemetry) -> Option<String> {
    let of = |source: &str, metric| {
        telemetry.timed(&SeriesId {
            source: source.to_owned(),
            metric,
        })
    };
    let mut parts = Vec::new();
    if let Some(device) = &telemetry.device {
        for metric in [
            Metric::Power,
            Metric::CoreClock,
            Metric::MemoryClock,
            Metric::Temperature,
            Metric::HotSpot,
        ] {
            let Some(spread) = of(device, metric) else {
                continue;
            };
            let mut words = reading_words(metric, spread.mean);
            let most = reading_words(metric, spread.max);
            if !matches!(metric, Metric::CoreClock | Metric::MemoryClock) && most != words {
                words = format!("{words}, at most {most}");
            }
            parts.push(format!("{} {words}", metric_words(metric)));
        }
    }
    if let Some(package) = of(HOST, Metric::CpuPower) {
        let words = reading_words(Metric::CpuPower, package.mean);
        parts.push(format!("{} {words}", metric_words(Metric::CpuPower)));
    }
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// What a metric is called within a sentence: `core clock`, but `GPU load`.
pub fn metric_words(metric: Metric) -> String {
    let title = metric.title();
    let is_name = title.chars().nth(1).is_some_and(char::is_uppercase);
    if is_name {
        title.to_owned()
    } else {
        title.to_lowercase()
    }
}

/// `tg128 2.24 t/J, 1.60 t/J with the processor (an estimate)`; `None` where no energy is known.
pub fn energy_line(test: &TestSamples) -> Option<String> {
    let energy = test.energy.as_ref()?;
    let per_joule = |with_package| {
        let joules = energy.joules(with_package);
        let mean = joules.iter().sum::<f64>() / joules.len() as f64;
        let known = !joules.is_empty() && mean > 0.0;
        known.then(|| three_digits(f64::from(test.test.tokens()) / mean))
    };
    let package = per_joule(true).map_or_else(String::new, |rate| {
        format!(", {rate} t/J with the processor")
    });
    let estimate = if energy.is_estimated() {
        " (an estimate)"
    } else {
        ""
    };
    let device = per_joule(false)?;
    Some(format!("{} {device} t/J{package}{estimate}", test.test))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::types::{
        Energy, EnergyMethod, RawOutput, Spread, TestEnergy, TestSpec, Timestamp,
    };

    #[test]
    fn readings_have_the_unit_people_use() {
        let words = [
            (Metric::Power, 87.4, "87 W"),
            (Metric::CpuPower, 4.26, "4.3 W"),
            (Metric::CoreClock, 1284.0, "1284 MHz"),
            (Metric::VramUsed, 2_952_790_016.0, "2.75 GiB"),
            (Metric::DiskRead, 3_145_728.0, "3.0 MiB/s"),
            (Metric::Temperature, -3.0, "−3 °C"),
            (Metric::Throttled, 1.0, "yes"),
            (Metric::Throttled, 0.0, "no"),
        ];
        for (metric, value, expected) in words {
            assert_eq!(reading_words(metric, value), expected);
        }
    }

    #[test]
    fn a_metric_keeps_its_name_within_a_sentence() {
        for (metric, expected) in [
            (Metric::CoreClock, "core clock"),
            (Metric::GpuLoad, "GPU load"),
            (Metric::VramUsed, "VRAM"),
            (Metric::LinkLanes, "PCIe lanes"),
            (Metric::Throttled, "throttling"),
        ] {
            assert_eq!(metric_words(metric), expected);
        }
    }

    fn series(source: &str, metric: Metric) -> SeriesId {
        SeriesId {
            source: source.to_owned(),
            metric,
        }
    }

    #[test]
    fn a_run_tells_its_device_its_energy_and_its_doubts() {
        let spread = |min, mean, max| Spread { min, mean, max };
        let energy = |joules, estimated| Energy {
            joules,
            method: EnergyMethod::Counter,
            estimated,
        };
        let test = TestSamples {
            test: TestSpec::generation(128),
            samples_ns: vec![1, 1],
            record: serde_json::Value::Null,
            energy: Some(TestEnergy {
                // 128 tokens for 57 J and for 71 J: 64 J on average, with the package 80 J.
                device: vec![energy(57.0, false), energy(71.0, true)],
                package: vec![energy(16.0, false); 2],
            }),
        };
        let gpu = "0000:01:00.0";
        let mut run = Run {
            started_at: Timestamp(0),
            wall_secs: 1.0,
            outcome: RunOutcome::Valid { tests: vec![test] },
            buffers: vec![],
            raw: RawOutput::default(),
            telemetry: Some(Box::new(RunTelemetry {
                device: Some(gpu.to_owned()),
                timed: vec![
                    (series(gpu, Metric::Power), spread(60.0, 87.0, 121.0)),
                    (
                        series(gpu, Metric::CoreClock),
                        spread(300.0, 1284.0, 1300.0),
                    ),
                    (series(gpu, Metric::Temperature), spread(63.0, 63.0, 63.0)),
                    (series(HOST, Metric::CpuPower), spread(40.0, 41.0, 42.0)),
                ],
                before: vec![],
                doubts: vec!["the GPU held its clocks down for 24 % of the time".to_owned()],
            })),
        };
        assert_eq!(
            sensor_lines(&run),
            [
                "power 87 W, at most 121 W · core clock 1284 MHz · temperature 63 °C · CPU power 41 W",
                "tg128 2.00 t/J, 1.60 t/J with the processor (an estimate)",
                "doubtful: the GPU held its clocks down for 24 % of the time",
            ]
        );
        run.telemetry = None;
        run.outcome = RunOutcome::Cancelled;
        assert_eq!(sensor_lines(&run), Vec::<String>::new());
    }
}
