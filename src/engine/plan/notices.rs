//! What the user should know of a plan besides its numbers.

use crate::domain::machine;
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::memory::Difference;
use crate::domain::types::{Bytes, Machine, TestSamples};
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
