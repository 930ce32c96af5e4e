//! Architecture from the PCI device id (paper section 3.1, case C22): never from the product name.
//!
//! The table is data (`assets/architectures.toml`). An id it does not hold stays unknown: features decide, no guess.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::domain::types::DeviceKind;

/// PCI vendor id of AMD.
pub const VENDOR_AMD: u32 = 0x1002;
/// PCI vendor id of NVIDIA.
pub const VENDOR_NVIDIA: u32 = 0x10de;
/// PCI vendor id of Intel.
pub const VENDOR_INTEL: u32 = 0x8086;

/// What silicon a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Architecture {
    /// Family, e.g. `Polaris`; `None` when the id is in no range.
    pub family: Option<String>,
    /// Generation of the instruction set, e.g. `GCN 4`.
    pub generation: Option<String>,
    /// The chip, e.g. `Polaris 20`.
    pub chip: Option<String>,
    /// What is worth knowing of this very id.
    pub note: Option<String>,
}

impl Architecture {
    /// One line: `Polaris (GCN 4)`, or that features decide.
    pub fn label(&self) -> String {
        match (&self.family, &self.generation) {
            (Some(family), Some(generation)) if family != generation => {
                format!("{family} ({generation})")
            }
            (Some(family), _) => family.clone(),
            _ => "unknown, features decide".to_owned(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    block: Vec<Block>,
    note: Vec<Note>,
    revision: Vec<Revision>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    vendor: String,
    family: String,
    generation: String,
    kind: DeviceKind,
    ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    vendor: String,
    device: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revision {
    vendor: String,
    device: String,
    products: BTreeMap<String, String>,
}

struct Range {
    vendor: u32,
    first: u32,
    last: u32,
    kind: DeviceKind,
    family: String,
    generation: String,
    chip: String,
}

#[derive(Default)]
struct Table {
    ranges: Vec<Range>,
    notes: BTreeMap<(u32, u32), String>,
    products: BTreeMap<(u32, u32, u32), String>,
}

fn hex(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| format!("not a hexadecimal id: {text}"))
}

fn parse_range(vendor: u32, block: &Block, line: &str) -> Result<Range, String> {
    let (ids, chip) = line
        .split_once(' ')
        .ok_or_else(|| format!("no chip name: {line}"))?;
    let (first, last) = ids.split_once('-').unwrap_or((ids, ids));
    Ok(Range {
        vendor,
        first: hex(first)?,
        last: hex(last)?,
        kind: block.kind,
        family: block.family.clone(),
        generation: block.generation.clone(),
        chip: chip.to_owned(),
    })
}

fn parse(text: &str) -> Result<Table, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut table = Table::default();
    for block in &file.block {
        let vendor = hex(&block.vendor)?;
        for line in &block.ids {
            table.ranges.push(parse_range(vendor, block, line)?);
        }
    }
    for note in file.note {
        let id = (hex(&note.vendor)?, hex(&note.device)?);
        table.notes.insert(id, note.text);
    }
    for entry in file.revision {
        for (revision, product) in entry.products {
            let id = (hex(&entry.vendor)?, hex(&entry.device)?, hex(&revision)?);
            table.products.insert(id, product);
        }
    }
    Ok(table)
}

/// An unreadable table (a test forbids it) leaves every architecture unknown rather than ending the scan.
static TABLE: LazyLock<Table> =
    LazyLock::new(|| parse(include_str!("../../../assets/architectures.toml")).unwrap_or_default());

fn range(vendor: u32, device: u32) -> Option<&'static Range> {
    TABLE
        .ranges
        .iter()
        .find(|r| r.vendor == vendor && (r.first..=r.last).contains(&device))
}

/// The architecture of a PCI id.
pub fn architecture(vendor: u32, device: u32) -> Architecture {
    let found = range(vendor, device);
    Architecture {
        family: found.map(|r| r.family.clone()),
        generation: found.map(|r| r.generation.clone()),
        chip: found.map(|r| r.chip.clone()),
        note: TABLE.notes.get(&(vendor, device)).cloned(),
    }
}

/// What a device of this id is (card or integrated), for devices no Vulkan driver describes.
pub(super) fn kind_of_id(vendor: u32, device: u32) -> DeviceKind {
    range(vendor, device).map_or(DeviceKind::Other, |r| r.kind)
}

/// Product and vendor names for display: the revision table first, else the PCI id list where it names one product.
pub(super) fn product(vendor: u32, device: u32, revision: Option<u32>) -> Option<String> {
    let by_revision = revision.and_then(|r| TABLE.products.get(&(vendor, device, r)));
    if let Some(name) = by_revision {
        return Some(name.clone());
    }
    let listed = pci_ids::Device::from_vid_pid(vendor.try_into().ok()?, device.try_into().ok()?)?;
    let name = listed.name();
    // "Chip [Product]"; without brackets it is the chip alone.
    let product = name.rsplit_once('[')?.1.trim_end_matches(']');
    // "RX 470/480/570" names a family of products: no product at all (case C22).
    (!product.contains('/')).then(|| product.to_owned())
}

/// Vendor name for display.
pub(super) fn vendor_name(vendor: u32) -> String {
    match vendor {
        VENDOR_AMD => "AMD".to_owned(),
        VENDOR_NVIDIA => "NVIDIA".to_owned(),
        VENDOR_INTEL => "Intel".to_owned(),
        0x106b => "Apple".to_owned(),
        // Vulkan's own vendor numbers start above the PCI range; Mesa's is the one seen.
        0x10005 => "Mesa".to_owned(),
        other => u16::try_from(other)
            .ok()
            .and_then(|id| pci_ids::Vendors::iter().find(|v| v.id() == id))
            .map_or_else(|| format!("vendor {other:04x}"), |v| v.name().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(vendor: u32, device: u32) -> Option<String> {
        architecture(vendor, device).family
    }

    #[test]
    fn the_table_is_readable_and_its_ranges_do_not_overlap() {
        let table = parse(include_str!("../../../assets/architectures.toml")).unwrap();
        for (i, a) in table.ranges.iter().enumerate() {
            assert!(a.first <= a.last, "{}", a.chip);
            for b in &table.ranges[i + 1..] {
                let apart = a.vendor != b.vendor || a.last < b.first || b.last < a.first;
                assert!(apart, "{} and {} overlap", a.chip, b.chip);
            }
        }
    }

    #[test]
    fn a_2048sp_is_polaris_by_its_id_and_says_so() {
        let card = architecture(VENDOR_AMD, 0x6fdf);
        assert_eq!(card.label(), "Polaris (GCN 4)");
        assert_eq!(
            card.note.as_deref(),
            Some("cut-down Polaris 20, 2048 shaders")
        );
        let standard = architecture(VENDOR_AMD, 0x67df);
        assert_eq!(standard.chip.as_deref(), Some("Polaris 10/20"));
        assert_eq!(product(VENDOR_AMD, 0x67df, None), None);
        assert_eq!(
            product(VENDOR_AMD, 0x67df, Some(0xe7)).as_deref(),
            Some("Radeon RX 580")
        );
    }

    #[test]
    fn an_unknown_id_is_not_guessed() {
        let unknown = architecture(VENDOR_AMD, 0x7fff);
        assert_eq!(unknown.family, None);
        assert_eq!(unknown.label(), "unknown, features decide");
        assert_eq!(family(0x1234, 0x1111), None);
    }

    /// The PCI id list names chips; for each chip the table must give that chip's architecture.
    #[test]
    fn the_table_agrees_with_the_pci_id_list_on_every_nvidia_chip() {
        let expected = [
            ("GM", "Maxwell"),
            ("GP", "Pascal"),
            ("GV", "Volta"),
            ("TU", "Turing"),
            ("GA", "Ampere"),
            ("AD", "Ada Lovelace"),
            ("GH", "Hopper"),
            ("GB", "Blackwell"),
        ];
        let nvidia = pci_ids::Vendors::iter().find(|v| v.id() == 0x10de).unwrap();
        let mut seen = 0;
        for device in nvidia.devices() {
            let name = device.name();
            let named = expected.iter().find(|(chip, _)| {
                name.starts_with(chip) && name[2..].starts_with(|c: char| c.is_ascii_digit())
            });
            if let (Some((_, arch)), Some(found)) = (named, family(0x10de, u32::from(device.id())))
            {
                assert_eq!(found, *arch, "{:04x} {name}", device.id());
                seen += 1;
            }
        }
        assert!(seen > 400, "only {seen} compared");
    }

    #[test]
    fn known_cards_of_every_vendor() {
        let cases = [
            (0x1002, 0x73bf, "RDNA 2"),
            (0x1002, 0x744c, "RDNA 3"),
            (0x1002, 0x15bf, "RDNA 3"),
            (0x1002, 0x7550, "RDNA 4"),
            (0x1002, 0x6660, "GCN 1"),
            (0x1002, 0x67b0, "GCN 2"),
            (0x1002, 0x7300, "GCN 3"),
            (0x1002, 0x687f, "Vega"),
            (0x10de, 0x2786, "Ada Lovelace"),
            (0x10de, 0x2335, "Hopper"),
            (0x8086, 0xe20b, "Battlemage"),
            (0x8086, 0x56a0, "Alchemist"),
            (0x8086, 0x5912, "Gen9"),
            (0x8086, 0x9a49, "Xe-LP"),
        ];
        for (vendor, device, expected) in cases {
            assert_eq!(family(vendor, device).as_deref(), Some(expected));
        }
    }
}
