//! Which layers attend over a sliding window only (case C32): each architecture's rule, as the `load_arch_hparams` of
//! llama.cpp b11149 has it.

use super::keys::Keys;

/// Tokens of the window.
#[derive(Clone, Copy)]
enum Size {
    /// `attention.sliding_window`; without it (or with 0) there is no window.
    Told,
    /// The same with a default.
    Default(u64),
    /// Fixed by llama.cpp where the key is there and not 0.
    FixedIfTold(u64),
    /// Fixed by llama.cpp unless the key is 0.
    FixedUnlessZero(u64),
}

use Size::{Default, FixedIfTold, FixedUnlessZero, Told};

/// Architecture, its period where the file tells none, whether a period begins with its layer over the whole context
/// (else that one ends it), size of the window.
const PERIODIC: &[(&str, u64, bool, Size)] = &[
    ("afmoe", 4, false, Told),
    ("cohere2", 4, false, Told),
    ("cohere2moe", 4, true, Told),
    ("exaone-moe", 4, false, Default(128)),
    ("exaone4", 4, false, Default(4096)),
    ("gemma2", 2, false, Default(4096)),
    ("gemma3", 6, false, Told),
    ("gemma3n", 5, false, Told),
    ("gpt-oss", 2, false, Told),
    ("laguna", 4, true, Told),
    ("llama4", 4, false, FixedUnlessZero(8192)),
    ("mellum", 4, false, Told),
    ("muse-glimmer", 4, false, Told),
    ("olmo2", 4, false, Told),
    ("plamo3", 8, false, Told),
    ("smallthinker", 4, true, FixedIfTold(4096)),
];

/// Architectures whose files name each layer in `attention.sliding_window_pattern`.
const LISTED: &[&str] = &[
    "dflash",
    "dots3note",
    "gemma4",
    "gemma4-assistant",
    "granite_swa",
    "maple",
    "mimo2",
    "spark2_5",
    "step35",
];

/// Architectures whose every layer has the window.
const ALL: &[&str] = &["deepseek4", "lfm2"];

/// Layers of exaone4's 32B, the only one of its models with a window.
const EXAONE4_32B_LAYERS: u64 = 64;

const PATTERN: &str = "attention.sliding_window_pattern";
const WINDOW: &str = "attention.sliding_window";

/// The window of every layer; `predicted` layers at the end belong to multi-token prediction and have none. A window
/// that llama.cpp does not use for this architecture is told in `notices`.
pub(super) fn of_layers(
    keys: Keys<'_>,
    predicted: u64,
    notices: &mut Vec<String>,
) -> Vec<Option<u64>> {
    let all = u64::from(keys.layers);
    let trunk = all.saturating_sub(predicted);
    let architecture = keys.architecture;
    let told = keys.positive(WINDOW);
    let per_layer = |windowed: &dyn Fn(u64) -> bool, size: u64| {
        (0..all).map(|l| windowed(l).then_some(size)).collect()
    };
    let listed = keys.list(PATTERN);
    let named = |l: u64| {
        let list = listed.as_deref().unwrap_or_default();
        list.get(l as usize).is_some_and(|n| *n != 0)
    };
    if let Some((period, dense_first, size)) = periodic(architecture, all, told, keys) {
        if listed.is_some() {
            return per_layer(&named, size);
        }
        let period = keys.number(PATTERN).unwrap_or(period);
        let rule = |l: u64| l < trunk && in_window(l, period, dense_first);
        return per_layer(&rule, size);
    }
    let Some(size) = told else {
        return vec![None; all as usize];
    };
    if ALL.contains(&architecture) {
        return per_layer(&|l| l < trunk, size);
    }
    if LISTED.contains(&architecture) && listed.is_some() {
        return per_layer(&named, size);
    }
    if !PERIODIC.iter().any(|(name, ..)| *name == architecture) {
        notices.push(format!(
            "which layers of {architecture} have its sliding window of {size} tokens is not known, so the cache of all is counted in full"
        ));
    }
    vec![None; all as usize]
}

fn periodic(
    architecture: &str,
    layers: u64,
    told: Option<u64>,
    keys: Keys<'_>,
) -> Option<(u64, bool, u64)> {
    let rule = PERIODIC.iter().find(|(name, ..)| *name == architecture)?;
    let &(name, period, dense_first, size) = rule;
    if name == "exaone4" && layers != EXAONE4_32B_LAYERS {
        return None;
    }
    let size = match size {
        Told => told,
        Default(size) => told.or(Some(size)),
        FixedIfTold(size) => told.map(|_| size),
        FixedUnlessZero(size) => (keys.number(WINDOW) != Some(0)).then_some(size),
    };
    Some((period, dense_first, size?))
}

/// `llama_hparams::set_swa_pattern`.
fn in_window(layer: u64, period: u64, dense_first: bool) -> bool {
    match (period, dense_first) {
        (0, _) => true,
        (_, true) => !layer.is_multiple_of(period),
        (_, false) => layer % period < period - 1,
    }
}
