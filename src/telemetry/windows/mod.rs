//! AMD's and Intel's GPUs on Windows: load and memory from the performance counters that Task Manager shows, clocks, heat
//! and fan from the kernel's graphics part. NVIDIA's are read by their own library.
//!
//! Watts are told by neither. AMD's come from ADLX alone, for which no maintained Rust binding exists (`adlx` is at
//! 0.0.0-alpha.1): power is absent and says so.

#[cfg(windows)]
mod live;

use std::collections::BTreeMap;

use crate::domain::machine::{VENDOR_AMD, VENDOR_INTEL};
use crate::domain::telemetry::{AbsentSensor, Metric, SeriesId, Trust};
use crate::domain::types::PciAddress;

#[cfg(windows)]
pub(super) use live::WindowsSource;

/// Why power is absent.
pub const NO_WATTS: &str = "Windows tells no watts of this GPU";

/// A sensor of the graphics kernel: what it tells, and whether the driver says that it is there (case C28).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Told {
    /// The value, in the metric's unit.
    pub value: f64,
    /// The driver says so.
    pub supported: bool,
}

/// A graphics adapter as it is listed: one card may be listed several times, once for each output or link (case C28).
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Its number until the next start, as the performance counters name it.
    pub luid: u64,
    /// Where it sits.
    pub pci: PciAddress,
    /// Its vendor, as it was told.
    pub vendor: i64,
    /// Its sensors.
    pub sensors: BTreeMap<Metric, Told>,
}

/// A card, however often it is listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// Where it sits.
    pub pci: PciAddress,
    /// PCI vendor id.
    pub vendor: u32,
    /// The numbers it is listed under.
    pub luids: Vec<u64>,
    /// Its sensors that are there: of each, the first listed.
    pub sensors: BTreeMap<Metric, f64>,
}

/// The PCI vendor id. AMD's display library tells the digits of 0x1002 as a decimal number, on some drivers below zero.
pub fn vendor_id(told: i64) -> Option<u32> {
    match told {
        1002 | -1002 => Some(VENDOR_AMD),
        other => u32::try_from(other).ok(),
    }
}

/// The cards among adapters, AMD's and Intel's, each once, in the order of their addresses.
pub fn cards(adapters: &[Adapter]) -> Vec<Card> {
    let mut found: BTreeMap<PciAddress, Card> = BTreeMap::new();
    for adapter in adapters {
        let vendor = vendor_id(adapter.vendor);
        let Some(vendor) = vendor.filter(|v| matches!(*v, VENDOR_AMD | VENDOR_INTEL)) else {
            continue;
        };
        let card = found.entry(adapter.pci).or_insert_with(|| Card {
            pci: adapter.pci,
            vendor,
            luids: Vec::new(),
            sensors: BTreeMap::new(),
        });
        card.luids.push(adapter.luid);
        let there = adapter.sensors.iter().filter(|(_, told)| told.supported);
        for (metric, told) in there {
            card.sensors.entry(*metric).or_insert(told.value);
        }
    }
    found.into_values().collect()
}

/// Whose counter an instance is, and of which engine: `pid_1234_luid_0x00000000_0x0000D2A1_phys_0_eng_3_engtype_3D`, or
/// without process and engine where it counts memory.
pub fn instance(name: &str) -> Option<(u64, &str)> {
    let (_, rest) = name.split_once("luid_")?;
    let mut parts = rest.splitn(3, '_');
    let mut half = || u64::from_str_radix(parts.next()?.strip_prefix("0x")?, 16).ok();
    let (high, low) = (half()?, half()?);
    let engine = rest.split_once("_eng_").map_or("", |(_, engine)| engine);
    Some((high << 32 | low, engine))
}

/// Load of every adapter, percent: of its busiest engine, over all processes, as Task Manager shows it.
pub fn loads(instances: &[(String, f64)]) -> BTreeMap<u64, f64> {
    let mut engines: BTreeMap<(u64, &str), f64> = BTreeMap::new();
    for (name, percent) in instances {
        if let Some(key) = instance(name) {
            *engines.entry(key).or_default() += percent;
        }
    }
    let mut found = BTreeMap::new();
    for ((luid, _), percent) in engines {
        let load: &mut f64 = found.entry(luid).or_default();
        *load = load.max(percent.min(100.0));
    }
    found
}

/// Sum of a counter of memory over every adapter's instances, bytes.
pub fn totals(instances: &[(String, f64)]) -> BTreeMap<u64, f64> {
    let mut found = BTreeMap::new();
    for (name, bytes) in instances {
        if let Some((luid, _)) = instance(name) {
            *found.entry(luid).or_default() += bytes;
        }
    }
    found
}

/// What was read at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// The cards with their sensors.
    pub cards: Vec<Card>,
    /// Load by adapter, percent.
    pub loads: BTreeMap<u64, f64>,
    /// Memory in use on the card, by adapter, bytes.
    pub dedicated: BTreeMap<u64, f64>,
    /// System memory in use by it, by adapter, bytes.
    pub shared: BTreeMap<u64, f64>,
}

/// Judges what is read, each sensor on its own.
#[derive(Debug, Default)]
pub struct Readings {
    trust: BTreeMap<SeriesId, Trust>,
}

impl Readings {
    /// The readings that can be believed.
    pub fn of(&mut self, snapshot: &Snapshot) -> Vec<(SeriesId, f64)> {
        let mut found = Vec::new();
        for card in &snapshot.cards {
            // A card listed twice counts its load and memory under one of its numbers.
            let most = |of: &BTreeMap<u64, f64>| {
                let told = card.luids.iter().filter_map(|luid| of.get(luid).copied());
                told.reduce(f64::max)
            };
            let counted = [
                (Metric::GpuLoad, most(&snapshot.loads)),
                (Metric::VramUsed, most(&snapshot.dedicated)),
                (Metric::SharedUsed, most(&snapshot.shared)),
            ];
            let counted = counted
                .into_iter()
                .filter_map(|(m, value)| Some((m, value?)));
            let sensors = card.sensors.iter().map(|(m, value)| (*m, *value));
            for (metric, value) in counted.chain(sensors) {
                let series = SeriesId {
                    source: card.pci.to_string(),
                    metric,
                };
                let trust = self.trust.entry(series.clone()).or_default();
                let value = trust.judge(metric, value, None);
                found.extend(value.map(|value| (series, value)));
            }
        }
        found
    }

    /// What is not told of these cards.
    pub fn absent(&self, cards: &[Card]) -> Vec<AbsentSensor> {
        let power = cards.iter().map(|card| AbsentSensor {
            series: SeriesId {
                source: card.pci.to_string(),
                metric: Metric::Power,
            },
            reason: NO_WATTS.to_owned(),
        });
        let doubted = self.trust.iter().filter_map(|(series, trust)| {
            Some(AbsentSensor {
                series: series.clone(),
                reason: trust.doubt()?.to_owned(),
            })
        });
        power.chain(doubted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(luid: u64, pci: &str, vendor: i64, sensors: &[(Metric, f64, bool)]) -> Adapter {
        let told = |(metric, value, supported): &(Metric, f64, bool)| {
            let told = Told {
                value: *value,
                supported: *supported,
            };
            (*metric, told)
        };
        Adapter {
            luid,
            pci: pci.parse().unwrap(),
            vendor,
            sensors: sensors.iter().map(told).collect(),
        }
    }

    #[test]
    fn c28_a_card_listed_five_times_is_one_and_vendor_ids_come_in_three_forms() {
        let outputs: Vec<Adapter> = [1002, -1002, 0x1002, 1002, 1002]
            .into_iter()
            .zip(7..)
            .map(|(vendor, luid)| adapter(luid, "0000:03:00.0", vendor, &[]))
            .chain([
                adapter(20, "0000:00:02.0", 0x8086, &[]),
                adapter(21, "0000:01:00.0", 0x10de, &[]),
                adapter(22, "0000:00:00.0", 0x1414, &[]),
            ])
            .collect();
        let found = cards(&outputs);
        let shown: Vec<_> = found
            .iter()
            .map(|c| (c.pci.to_string(), c.vendor))
            .collect();
        assert_eq!(
            shown,
            [
                ("0000:00:02.0".to_owned(), 0x8086),
                ("0000:03:00.0".to_owned(), 0x1002)
            ]
        );
        assert_eq!(found[1].luids, [7, 8, 9, 10, 11]);
        assert_eq!(vendor_id(-1), None);
    }

    #[test]
    fn c28_a_sensor_is_taken_if_it_is_supported_and_can_be() {
        let heat = Metric::Temperature;
        let adapters = [
            adapter(
                1,
                "0000:03:00.0",
                1002,
                &[(heat, 0.0, false), (Metric::FanSpeed, 65_535.0, true)],
            ),
            adapter(
                2,
                "0000:03:00.0",
                1002,
                &[(heat, 61.0, true), (Metric::MemoryClock, 1250.0, true)],
            ),
        ];
        let snapshot = Snapshot {
            cards: cards(&adapters),
            ..Snapshot::default()
        };
        let mut readings = Readings::default();
        let found: Vec<_> = readings
            .of(&snapshot)
            .into_iter()
            .map(|(series, value)| (series.metric, value))
            .collect();
        assert_eq!(found, [(Metric::MemoryClock, 1250.0), (heat, 61.0)]);
        let absent: Vec<_> = readings
            .absent(&snapshot.cards)
            .into_iter()
            .map(|a| (a.series.metric, a.reason))
            .collect();
        assert_eq!(
            absent,
            [
                (Metric::Power, NO_WATTS.to_owned()),
                (
                    Metric::FanSpeed,
                    "tells 65535 rpm, which cannot be".to_owned()
                ),
            ]
        );
    }

    #[test]
    fn load_is_of_the_busiest_engine_over_all_processes() {
        let engine = |pid: u32, luid: &str, engine: &str, percent| {
            (
                format!("pid_{pid}_luid_0x00000000_{luid}_phys_0_eng_{engine}"),
                percent,
            )
        };
        let found = loads(&[
            engine(4, "0x0000D2A1", "0_engtype_3D", 12.0),
            engine(1234, "0x0000D2A1", "0_engtype_3D", 30.5),
            engine(1234, "0x0000D2A1", "4_engtype_Compute 0", 41.0),
            engine(1234, "0x0000F00D", "0_engtype_3D", 70.0),
            engine(9, "0x0000F00D", "0_engtype_3D", 60.0),
            ("_Total".to_owned(), 99.0),
        ]);
        assert_eq!(found, BTreeMap::from([(0xd2a1, 42.5), (0xf00d, 100.0)]));
        let memory = totals(&[("luid_0x00000001_0x0000D2A1_phys_0".to_owned(), 4096.0)]);
        assert_eq!(memory, BTreeMap::from([(0x1_0000_d2a1, 4096.0)]));
        assert_eq!(instance("pid_4_luid_0xZZ"), None);
    }
}
