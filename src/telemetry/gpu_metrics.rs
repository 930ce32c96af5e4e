//! The table of its firmware that `amdgpu` hands on as `gpu_metrics`: of all that it holds, whether clocks are held down.
//!
//! Layouts: `drivers/gpu/drm/amd/include/kgd_pp_interface.h` of Linux; bits: `amdgpu_smu.h` there.

use std::io;
use std::path::Path;

use crate::domain::telemetry::says_nothing;

use super::files::{Files, SensorFile, why};

/// Power limits of the card and of the package (PPT, SPL, FPPT, SPPT).
const POWER: u64 = 0xff;
/// Limits of current, lasting and for moments (TDC, EDC, APCC).
const CURRENT: u64 = 0xff << 16;
/// Heat of the chip, its memory and its regulators, and the host's signal of it (PROCHOT).
const HEAT: u64 = 0xffff << 32;
/// The hot spot's among them. RDNA 3 shows it nearly always: on cards it says nothing.
const HOT_SPOT: u64 = 1 << 36;
/// Every bit of a status whose meaning changes from chip to chip.
const ANY: u64 = u32::MAX as u64;

/// Where a version of the table has its status, and which of its bits count.
struct Status {
    at: usize,
    bytes: usize,
    held_down: u64,
}

impl Status {
    const fn of_chip(at: usize) -> Self {
        Self {
            at,
            bytes: 4,
            held_down: ANY,
        }
    }

    const fn of_all(at: usize, held_down: u64) -> Self {
        Self {
            at,
            bytes: 8,
            held_down,
        }
    }

    /// Of the table's version; v1.4 and later leave it at 0 and v3 counts times instead.
    const fn of(version: (u8, u8)) -> Option<Self> {
        Some(match version {
            (1, 0..=2) => Self::of_chip(68),
            (1, 3) => Self::of_all(112, (POWER | CURRENT | HEAT) & !HOT_SPOT),
            (2, 0) => Self::of_chip(112),
            (2, 1) => Self::of_chip(108),
            (2, 2..=4) => Self::of_all(120, POWER | CURRENT | HEAT),
            _ => return None,
        })
    }
}

/// The file, and why it told nothing when it was read last.
pub(super) struct GpuMetrics {
    file: Option<SensorFile>,
    lost: Option<String>,
}

impl GpuMetrics {
    /// Opens it.
    pub fn look(files: &Files, path: &Path) -> Self {
        let opened = files.open(path);
        Self {
            lost: opened.as_ref().err().map(why),
            file: opened.ok(),
        }
    }

    /// Are clocks held down for power, current or heat?
    pub fn throttled(&mut self) -> Option<bool> {
        let read = self.file.as_mut()?.read_bytes(throttled);
        let told = read.unwrap_or_else(|error: io::Error| Err(why(&error)));
        self.lost = told.as_ref().err().cloned();
        told.ok()
    }

    /// Why it told nothing when it was read last.
    pub fn reason(&self) -> Option<&str> {
        self.lost.as_deref()
    }
}

fn throttled(table: &[u8]) -> Result<bool, String> {
    let Some(&[_, _, format, content]) = table.first_chunk() else {
        return Err("the driver's table is cut short".to_owned());
    };
    let version = format!("format v{format}.{content} of `gpu_metrics`");
    let status = Status::of((format, content))
        .ok_or_else(|| format!("{version} tells no throttling that can be read"))?;
    let field = table.get(status.at..status.at + status.bytes);
    let field = field.ok_or_else(|| format!("{version} is cut short"))?;
    let bits = field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    if says_nothing(bits) {
        return Err(format!("{version} leaves throttling open on this chip"));
    }
    Ok(bits & status.held_down != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of a version and size, all zero but for these bytes.
    fn table(version: (u8, u8), size: u16, set: &[(usize, u8)]) -> Vec<u8> {
        let mut table = vec![0; size.into()];
        table[..2].copy_from_slice(&size.to_le_bytes());
        (table[2], table[3]) = version;
        for (at, byte) in set {
            table[*at] = *byte;
        }
        table
    }

    /// Sizes are those of the kernel's structures: a status misplaced by one field would be read from a fan or a link.
    #[test]
    fn every_version_has_its_status_in_its_own_place() {
        for (version, size, at, bytes) in [
            ((1, 0), 80, 68, 4),
            ((1, 1), 96, 68, 4),
            ((1, 2), 104, 68, 4),
            ((1, 3), 120, 112, 8),
            ((2, 0), 120, 112, 4),
            ((2, 1), 120, 108, 4),
            ((2, 2), 128, 120, 8),
            ((2, 3), 152, 120, 8),
            ((2, 4), 168, 120, 8),
        ] {
            let read = |set: &[(usize, u8)]| throttled(&table(version, size, set));
            assert_eq!(read(&[]), Ok(false), "{version:?}");
            assert_eq!(read(&[(at, 1)]), Ok(true), "{version:?}");
            let beside = [at - 1, at + bytes]
                .into_iter()
                .filter(|at| *at < size.into());
            let beside: Vec<_> = beside.map(|at| (at, 1)).collect();
            assert_eq!(read(&beside), Ok(false), "{version:?}");
        }
    }

    /// `PPT0` is bit 0, `TDC_GFX` 16, `TEMP_MEM` 34, `TEMP_HOTSPOT` 36, `PPM` 56, `FIT` 57.
    #[test]
    fn power_current_and_heat_count_alone() {
        let of = |version, byte, bits| throttled(&table(version, 168, &[(byte, bits)]));
        for (byte, bits, card, apu) in [
            (0, 0x01, true, true),
            (2, 0x01, true, true),
            (4, 0x04, true, true),
            (4, 0x10, false, true),
            (7, 0x03, false, false),
        ] {
            assert_eq!(of((1, 3), 112 + byte, bits), Ok(card), "{byte} {bits}");
            assert_eq!(of((2, 2), 120 + byte, bits), Ok(apu), "{byte} {bits}");
        }
    }

    #[test]
    fn what_is_not_told_has_a_reason() {
        let reason = |table: &[u8]| throttled(table).unwrap_err();
        assert_eq!(
            reason(&table((1, 4), 400, &[])),
            "format v1.4 of `gpu_metrics` tells no throttling that can be read"
        );
        assert!(reason(&table((3, 0), 264, &[])).contains("v3.0"));
        assert_eq!(reason(&[]), "the driver's table is cut short");
        assert_eq!(
            reason(&table((1, 3), 116, &[])),
            "format v1.3 of `gpu_metrics` is cut short"
        );
        let ones: Vec<_> = (108..112).map(|at| (at, 0xff)).collect();
        assert_eq!(
            reason(&table((2, 1), 120, &ones)),
            "format v2.1 of `gpu_metrics` leaves throttling open on this chip"
        );
    }
}
