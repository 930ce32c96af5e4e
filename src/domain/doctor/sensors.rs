//! What sensors say against a measurement now: heat, other programs on the GPU, readings that will be missing.

use std::collections::BTreeMap;

use crate::domain::machine::{Gpu, gpus};
use crate::domain::telemetry::around::BUSY_DEVICE_PCT;
use crate::domain::telemetry::{HOST, Metric};
use crate::domain::text::metric_words;
use crate::domain::types::{Bytes, Machine};

use super::{Facts, Finding, Level};

/// Distance from the temperature at which the driver steps in, °C: a run heats a chip at rest by more.
const HEADROOM_C: f64 = 15.0;
/// Share of a card's memory that a desktop takes without spoiling anything.
const DESKTOP_SHARE: f64 = 0.15;
/// Programs named in a finding.
const NAMED: usize = 3;
/// Programs that hold less of a GPU's memory are not named.
const WORTH_NAMING: Bytes = Bytes::mib(64);

/// Everything found, of each GPU in turn.
pub(super) fn findings(machine: &Machine, facts: &Facts) -> Vec<Finding> {
    let gpus = gpus(machine);
    let mut found = Vec::new();
    found.extend(heat(facts, &gpus));
    found.extend(load(facts, &gpus));
    found.extend(memory(facts, &gpus));
    found.extend(links(facts, &gpus));
    found.extend(absent(facts, &gpus));
    found
}

fn name(source: &str, gpus: &[Gpu]) -> String {
    if source == HOST {
        return "the processor".to_owned();
    }
    let ours = |gpu: &&Gpu| gpu.pci.is_some_and(|pci| pci.to_string() == source);
    match gpus.iter().find(ours) {
        None => format!("the GPU at {source}"),
        Some(gpu) if gpus.iter().filter(|g| g.name == gpu.name).count() > 1 => {
            format!("{} at {source}", gpu.name)
        }
        Some(gpu) => gpu.name.clone(),
    }
}

fn heat(facts: &Facts, gpus: &[Gpu]) -> Vec<Finding> {
    let near = facts.critical.iter().filter_map(|(series, critical)| {
        let (_, now) = facts.readings.iter().find(|(s, _)| s == series)?;
        (critical - now < HEADROOM_C).then(|| {
            let (place, gpu) = (metric_words(series.metric), name(&series.source, gpus));
            Finding::new(
                Level::Warning,
                "gpu-hot",
                format!("{gpu} is hot before anything runs: {place} {now:.0} °C, its driver steps in at {critical:.0} °C"),
                "let it cool down, clean the fans, or improve the airflow: a hot GPU holds its clocks down",
            )
        })
    });
    near.collect()
}

fn load(facts: &Facts, gpus: &[Gpu]) -> Vec<Finding> {
    let loads = facts
        .readings
        .iter()
        .filter(|(s, load)| s.metric == Metric::GpuLoad && *load > BUSY_DEVICE_PCT);
    loads
        .map(|(series, load)| {
            Finding::new(
                Level::Warning,
                "gpu-load",
                format!(
                    "{} is busy with something else: load {load:.0} %",
                    name(&series.source, gpus)
                ),
                "close what uses it, or measure later",
            )
        })
        .collect()
}

/// Of cards: what an integrated GPU holds is the host's RAM.
fn memory(facts: &Facts, gpus: &[Gpu]) -> Vec<Finding> {
    let of_card = |gpu: &Gpu| {
        let memory = gpu.memory.as_ref().filter(|m| !m.shared_with_ram)?;
        let source = gpu.pci?.to_string();
        let ours = |s: &crate::domain::telemetry::SeriesId| {
            s.metric == Metric::VramUsed && s.source == source
        };
        let (_, used) = facts.readings.iter().find(|(s, _)| ours(s))?;
        if *used <= DESKTOP_SHARE * memory.vram.0 as f64 {
            return None;
        }
        let used = Bytes(*used as u64);
        Some(Finding::new(
            Level::Warning,
            "gpu-memory",
            format!(
                "other programs hold {used} of the {} of {}{}",
                memory.vram,
                name(&source, gpus),
                holders(facts, gpu)
            ),
            "close them, or expect less room for a model",
        ))
    };
    gpus.iter().filter_map(of_card).collect()
}

/// Those that hold most of it, as far as this user may see.
fn holders(facts: &Facts, gpu: &Gpu) -> String {
    let mut users: Vec<_> = facts
        .gpu_users
        .iter()
        .filter(|u| Some(u.pci) == gpu.pci && u.vram >= WORTH_NAMING)
        .collect();
    users.sort_by_key(|user| std::cmp::Reverse(user.vram));
    let named: Vec<String> = users
        .iter()
        .take(NAMED)
        .map(|user| format!("{} {}", user.program, user.vram))
        .collect();
    if named.is_empty() {
        return String::new();
    }
    format!(" (of this user: {})", named.join(", "))
}

/// Weights that stream to the GPU come through it; some cards give lanes up while they rest.
fn links(facts: &Facts, gpus: &[Gpu]) -> Vec<Finding> {
    let narrow = facts.links.iter().filter(|link| link.lanes < link.most);
    narrow
        .map(|link| {
            let (lanes, most) = (link.lanes, link.most);
            let gpu = name(&link.pci.to_string(), gpus);
            Finding::new(
                Level::Info,
                "gpu-link",
                format!("{gpu} is linked by {lanes} of {most} PCI Express lanes now"),
                "if it stays so while the GPU works, seat the card anew: a model that does not fit its memory streams through them",
            )
        })
        .collect()
}

/// By device and reason.
fn absent(facts: &Facts, gpus: &[Gpu]) -> Vec<Finding> {
    let mut by_reason: BTreeMap<(&str, &str), Vec<Metric>> = BTreeMap::new();
    for sensor in &facts.absent_sensors {
        let key = (sensor.series.source.as_str(), sensor.reason.as_str());
        by_reason.entry(key).or_default().push(sensor.series.metric);
    }
    by_reason
        .into_iter()
        .map(|((source, reason), metrics)| {
            let what: Vec<_> = metrics.iter().map(|m| metric_words(*m)).collect();
            let power = metrics.iter().any(|metric| metric.unit() == "W");
            let advice = if power {
                "nothing to do for speed; as long as it is not told, tokens per joule stay unknown"
            } else {
                "nothing to do: what is not told is left out"
            };
            let (gpu, what) = (name(source, gpus), what.join(", "));
            Finding::new(
                Level::Info,
                "sensor-absent",
                format!("{gpu} does not tell {what}: {reason}"),
                advice,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::{GpuUser, Link, driver_update};
    use crate::domain::telemetry::{AbsentSensor, SeriesId};
    use crate::domain::types::{Host, SystemGpu, VulkanReport, VulkanStatus};

    const CARD: &str = "0000:01:00.0";

    fn machine() -> Machine {
        Machine {
            schema: Machine::SCHEMA,
            vulkan: VulkanReport {
                status: VulkanStatus::NoLoader {
                    detail: String::new(),
                },
                entries: vec![],
            },
            system_gpus: vec![SystemGpu {
                pci: CARD.parse().unwrap(),
                vendor_id: 0x1002,
                device_id: 0x6fdf,
                subsystem: None,
                revision: Some(0xef),
                kernel_driver: Some("amdgpu".to_owned()),
                driver_version: None,
                pending_driver: None,
                vram: Some(Bytes::gib(8)),
            }],
            host: Host::default(),
            telemetry: vec![],
            runtimes: vec![],
            inherited_env: BTreeMap::new(),
            llama_configs: Vec::new(),
            simulated: false,
        }
    }

    fn series(metric: Metric) -> SeriesId {
        SeriesId {
            source: CARD.to_owned(),
            metric,
        }
    }

    fn found(facts: &Facts) -> Vec<(String, String)> {
        findings(&machine(), facts)
            .into_iter()
            .map(|f| (f.code, f.title))
            .collect()
    }

    #[test]
    fn a_cool_idle_gpu_that_tells_everything_is_no_finding() {
        let facts = Facts {
            readings: vec![
                (series(Metric::GpuLoad), 2.0),
                (series(Metric::Temperature), 79.0),
                (series(Metric::VramUsed), 1.2 * 1_073_741_824.0),
            ],
            critical: vec![(series(Metric::Temperature), 94.0)],
            ..Facts::default()
        };
        assert!(found(&facts).is_empty());
    }

    #[test]
    fn heat_work_and_memory_of_others_are_told_with_their_numbers() {
        let name = gpus(&machine())[0].name.clone();
        let user = |program: &str, mib| GpuUser {
            pci: CARD.parse().unwrap(),
            program: program.to_owned(),
            vram: Bytes::mib(mib),
        };
        let facts = Facts {
            readings: vec![
                (series(Metric::GpuLoad), 38.0),
                (series(Metric::Temperature), 80.0),
                (series(Metric::VramUsed), 3.0 * 1_073_741_824.0),
            ],
            critical: vec![(series(Metric::Temperature), 94.0)],
            gpu_users: vec![
                user("xterm", 3),
                user("firefox", 512),
                user("llama-server", 2048),
            ],
            ..Facts::default()
        };
        let told = |code: &str, title: String| (code.to_owned(), title);
        assert_eq!(
            found(&facts),
            [
                told(
                    "gpu-hot",
                    format!(
                        "{name} is hot before anything runs: temperature 80 °C, its driver steps in at 94 °C"
                    )
                ),
                told(
                    "gpu-load",
                    format!("{name} is busy with something else: load 38 %")
                ),
                told(
                    "gpu-memory",
                    format!(
                        "other programs hold 3.00 GiB of the 8.00 GiB of {name} (of this user: llama-server 2.00 GiB, firefox 512.0 MiB)"
                    )
                ),
            ]
        );
    }

    #[test]
    fn a_link_narrower_than_it_could_be_is_told() {
        let link = |lanes| Link {
            pci: CARD.parse().unwrap(),
            lanes,
            most: 16,
        };
        let links = |lanes| Facts {
            links: vec![link(lanes)],
            ..Facts::default()
        };
        let name = gpus(&machine())[0].name.clone();
        assert!(found(&links(16)).is_empty());
        assert_eq!(
            found(&links(4)),
            [(
                "gpu-link".to_owned(),
                format!("{name} is linked by 4 of 16 PCI Express lanes now")
            )]
        );
    }

    #[test]
    fn c25_a_driver_updated_without_a_restart_is_a_problem() {
        let mut machine = machine();
        assert_eq!(driver_update(&machine), None);
        machine.system_gpus[0].driver_version = Some("580.159.04".to_owned());
        machine.system_gpus[0].pending_driver = Some("590.44.01".to_owned());
        let found = driver_update(&machine).unwrap();
        assert_eq!(
            (found.level, found.title.as_str(), found.advice.as_str()),
            (
                Level::Problem,
                "the driver of the GPU at 0000:01:00.0 was updated to 590.44.01 while 580.159.04 still runs",
                "restart the machine: until then no profile is made"
            )
        );
    }

    #[test]
    fn sensors_that_tell_nothing_are_listed_by_reason() {
        let absent = |source: &str, metric, reason: &str| AbsentSensor {
            series: SeriesId {
                source: source.to_owned(),
                metric,
            },
            reason: reason.to_owned(),
        };
        let facts = Facts {
            absent_sensors: vec![
                absent(CARD, Metric::Power, "always 0 W, even at work"),
                absent(CARD, Metric::HotSpot, "not offered"),
                absent(CARD, Metric::MemoryTemperature, "not offered"),
                absent(HOST, Metric::CpuPower, "no permission"),
            ],
            ..Facts::default()
        };
        let name = gpus(&machine())[0].name.clone();
        let titles: Vec<String> = found(&facts).into_iter().map(|(_, title)| title).collect();
        assert_eq!(
            titles,
            [
                format!("{name} does not tell power: always 0 W, even at work"),
                format!("{name} does not tell hot spot, memory temperature: not offered"),
                "the processor does not tell CPU power: no permission".to_owned(),
            ]
        );
    }

    /// Two cards of one kind, as two H200s of one host: each is told apart by its place.
    #[test]
    fn twins_are_told_apart_by_their_address() {
        const TWIN: &str = "0000:02:00.0";
        let mut pair = machine();
        pair.system_gpus.push(SystemGpu {
            pci: TWIN.parse().unwrap(),
            ..pair.system_gpus[0].clone()
        });
        let absent = |source: &str| AbsentSensor {
            series: SeriesId {
                source: source.to_owned(),
                metric: Metric::Power,
            },
            reason: "not offered".to_owned(),
        };
        let facts = Facts {
            absent_sensors: vec![absent(CARD), absent(TWIN)],
            ..Facts::default()
        };
        let name = &gpus(&pair)[0].name;
        let told = |at| format!("{name} at {at} does not tell power: not offered");
        let titles: Vec<String> = findings(&pair, &facts)
            .into_iter()
            .map(|f| f.title)
            .collect();
        assert_eq!(titles, [told(CARD), told(TWIN)]);
    }
}
