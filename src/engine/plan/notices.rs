//! What the user should know of a plan besides its numbers.

use crate::domain::machine;
use crate::domain::placement::devices::{Memories, OffloadDevice};
use crate::domain::placement::fit::Fit;
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::memory::Difference;
use crate::domain::placement::pool::Pooled;
use crate::domain::text::count;
use crate::domain::types::{Bytes, DeviceKind, Machine, TestSamples};
use crate::ports::{Notice, NoticeLevel};

use super::{PlanRequest, RPC_TRUST, memories};

/// A context longer than the model was made for.
pub(super) fn beyond(request: &PlanRequest, layout: &ModelLayout) -> Option<Notice> {
    let (asked, longest) = (request.context?, layout.info.context_length?);
    (asked > longest).then(|| Notice {
        level: NoticeLevel::Warning,
        code: "context".to_owned(),
        text: format!(
            "{asked} tokens of context are more than the {longest} this model was made for"
        ),
    })
}

/// Whoever reaches an RPC server can use it.
pub(super) fn trust(request: &PlanRequest) -> Option<Notice> {
    (!request.rpc.is_empty()).then(|| Notice {
        level: NoticeLevel::Warning,
        code: "rpc-trust".to_owned(),
        text: RPC_TRUST.to_owned(),
    })
}

/// Software renderers that a build was told to list: stock uses them too, and they gain nothing.
pub(super) fn software(memories: &Memories, machine: &Machine) -> Vec<Notice> {
    let gpus = machine::gpus(machine);
    let is_software = |d: &&OffloadDevice| {
        let gpu = gpus.iter().find(|g| g.is_called(&d.name));
        gpu.is_some_and(|g| g.kind == DeviceKind::Software)
    };
    let renderers = memories.devices.iter().filter(is_software);
    let notice = |d: &OffloadDevice| Notice {
        level: NoticeLevel::Warning,
        code: "software-renderer".to_owned(),
        text: format!(
            "{} is a software renderer: its work is done by the processor, out of RAM; `--device none` plans without it",
            d.id
        ),
    };
    renderers.map(notice).collect()
}

/// Runs here took more of a GPU beside their buffers than would be left free.
pub(super) fn beside(taken: Bytes, request: &PlanRequest) -> Option<Notice> {
    let reserve = memories::reserve(request);
    (taken > reserve).then(|| Notice {
        level: NoticeLevel::Info,
        code: "beside-buffers".to_owned(),
        text: format!(
            "runs here took {taken} of the GPU beside their buffers (the driver's context, pools): that much is left free instead of {reserve}"
        ),
    })
}

/// What was not learned from, so many disturbed runs among it, and whether what was learned is a guide.
pub(super) fn of_learning(learned: &Pooled, disturbed_runs: usize) -> Vec<Notice> {
    let mut notices = info_all("left-out", &learned.left_out);
    notices.extend(disturbed(disturbed_runs));
    notices.extend(poor(&learned.fit));
    notices
}

fn disturbed(runs: usize) -> Option<Notice> {
    (runs > 0).then(|| Notice {
        level: NoticeLevel::Info,
        code: "left-out".to_owned(),
        text: format!(
            "{} left out: something else disturbed them, and others like them ran undisturbed",
            count(runs as u64, "run")
        ),
    })
}

/// Mean error of a fit over its own benchmarks beyond which its predictions are no guide, percent: those of a hybrid placement
/// vary by 25 % (paper section 1).
const POOR_FIT_PCT: f64 = 25.0;

fn poor(fit: &Fit) -> Option<Notice> {
    let error = fit.mean_abs_error_pct(false)?;
    (error > POOR_FIT_PCT).then(|| Notice {
        level: NoticeLevel::Warning,
        code: "poor-fit".to_owned(),
        text: format!(
            "the speed model misses the benchmarks it was fitted to by {error:.0} % on average: its predictions are no guide; measure again with `--bench` while nothing else runs"
        ),
    })
}

/// Records that another GPU made: what is learnt from them is that machine's speed.
pub(super) fn foreign(records: &[TestSamples], machine: &Machine) -> Option<Notice> {
    let gpus = machine::gpus(machine);
    let here = |name: &str| name.is_empty() || gpus.iter().any(|g| name.contains(&g.name));
    let made_on = |r: &TestSamples| Some(r.record.get("gpu_info")?.as_str()?.to_owned());
    let other = records
        .iter()
        .filter_map(made_on)
        .find(|name| !here(name))?;
    Some(Notice {
        level: NoticeLevel::Warning,
        code: "other-machine".to_owned(),
        text: format!(
            "records to learn from were made on {other}, which this machine does not have: predictions are that machine's"
        ),
    })
}

pub(super) fn info_all(code: &str, texts: &[String]) -> Vec<Notice> {
    let notice = |text: &String| Notice {
        level: NoticeLevel::Info,
        code: code.to_owned(),
        text: text.clone(),
    };
    texts.iter().map(notice).collect()
}

/// A run took other memory than is predicted.
pub(super) fn off(difference: &Difference) -> Notice {
    let Difference {
        id,
        predicted,
        observed,
    } = difference;
    Notice {
        level: NoticeLevel::Warning,
        code: "memory-off".to_owned(),
        text: format!(
            "a run of this model took {observed} of {id} where {predicted} are predicted; compute buffers are corrected by what its runs showed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::placement::devices::{CpuLayout, HostMemory};
    use crate::domain::types::Backend;

    #[test]
    fn a_software_renderer_is_told_and_a_card_is_not() {
        let text = include_str!("../../../tests/fixtures/machines/lavapipe/machine.json");
        let machine: Machine = serde_json::from_str(text).unwrap();
        let ram = Bytes::gib(8);
        let listed = |(id, name): (&str, &str)| OffloadDevice {
            id: id.to_owned(),
            name: name.to_owned(),
            backend: Backend::Vulkan,
            total: ram,
            usable: ram,
            shares_ram: false,
            max_buffer: None,
            max_tensor: None,
            captures_graphs: false,
        };
        let renderer = ("Vulkan0", "llvmpipe (LLVM 15.0.6, 256 bits)");
        let memories = Memories {
            devices: [renderer, ("Vulkan1", "Radeon RX 580")].map(listed).into(),
            host: HostMemory {
                total: ram,
                usable: ram,
                used_by_others: Bytes(0),
                layout: CpuLayout::File,
            },
        };
        let told = software(&memories, &machine);
        let [notice] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!(notice.level, NoticeLevel::Warning);
        assert!(notice.text.starts_with("Vulkan0 is a software renderer"));
    }
}
