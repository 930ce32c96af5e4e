//! Settings written out for one model on one build: those of the search space, and the placement, which is a setting too but
//! needs the model's own tensor names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::placement::assignment::ContextParams;
use crate::domain::placement::flags::{self, Known};
use crate::domain::placement::layout::ModelLayout;
use crate::domain::placement::words::{self, Words};
use crate::domain::search::{SearchSpace, Tool};
use crate::domain::server::speculation;
use crate::domain::types::{Launch, Runtime, Settings};

use super::message::{JobError, USAGE};

pub use crate::domain::placement::words::SETTING as PLACEMENT;

/// Device memory that llama.cpp's own fitting leaves free, MiB: its default.
const FIT_MARGIN: &str = "1024";

/// The settings without a placement and without speculation.
pub fn of_space(settings: &Settings) -> Settings {
    settings.without(PLACEMENT).without(speculation::SETTING)
}

/// The settings that are a placement.
///
/// # Errors
/// Words that name none.
pub fn placed(text: &str) -> Result<Settings, JobError> {
    let settings = Settings::stock().with(PLACEMENT, text);
    placement(&settings).map(|_| settings)
}

/// The placement among settings; `None` where there is none, or llama.cpp fits by itself.
///
/// # Errors
/// Words that name none.
pub fn placement(settings: &Settings) -> Result<Option<Words>, JobError> {
    let text = settings.0.get(PLACEMENT);
    let text = text.filter(|t| words::fitting(t).is_none());
    text.map(|t| words::parse(t, &ContextParams::default()))
        .transpose()
        .map_err(|e| JobError::new(USAGE, e))
}

/// Settings as arguments and environment of one tool.
///
/// # Errors
/// A setting the space does not know; a placement that is none, or that the model has no tensors for.
pub fn launch(
    settings: &Settings,
    space: &SearchSpace,
    tool: Tool,
    runtime: &Runtime,
    layout: impl FnOnce() -> Result<ModelLayout, JobError>,
) -> Result<Launch, JobError> {
    let mut own = space
        .launch(&of_space(settings), tool)
        .map_err(|e| JobError::new("settings", e.to_string()))?;
    if let (Tool::Server, Some(value)) = (tool, settings.0.get(speculation::SETTING)) {
        own.args.extend(speculation::args(value));
    }
    let mut args = match (settings.0.get(PLACEMENT), placement(settings)?) {
        (None, _) => return Ok(own),
        (Some(text), None) => fit_args(tool, words::fitting(text).flatten()),
        (Some(_), Some(read)) => {
            let flags = match tool {
                Tool::Bench => &runtime.bench_flags,
                Tool::Server => &runtime.server_flags,
            };
            let known = Known { tool, flags };
            flags::args(&read.placement, &read.context, &layout()?, known)
                .map_err(|e| JobError::new("settings", e.to_string()))?
        }
    };
    give_way(&mut args, &own.args);
    args.extend(own.args);
    Ok(Launch { args, env: own.env })
}

/// What both a placement and a setting of the search space may say, in the words of each.
const SAID_TWICE: [(&str, &str); 5] = [
    ("-b", "--batch-size"),
    ("-ub", "--ubatch-size"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-fa", "--flash-attn"),
];

/// Values that a placement sets already, by llama-bench's flag: they are nothing to try.
///
/// # Errors
/// A placement that is none.
pub fn defaults(settings: &Settings) -> Result<BTreeMap<String, String>, JobError> {
    let placed = placement(settings)?.map(|words| words.context);
    Ok(placed.map_or_else(BTreeMap::new, |context| {
        let of = |flag: &str, value: &dyn ToString| (flag.to_owned(), value.to_string());
        BTreeMap::from([
            of("--ubatch-size", &context.micro_batch),
            of("--batch-size", &context.batch),
            of("--cache-type-k", &context.type_k),
        ])
    }))
}

/// Takes out of a placement's arguments what the search sets: llama-bench measures both values of a flag given twice.
fn give_way(placement: &mut Vec<String>, own: &[String]) {
    for (short, long) in SAID_TWICE {
        if own.iter().any(|a| a == long)
            && let Some(at) = placement.iter().position(|a| a == short)
        {
            placement.drain(at..at + 2);
        }
    }
}

/// llama-server fits by itself unless told otherwise.
fn fit_args(tool: Tool, margin: Option<&str>) -> Vec<String> {
    match (tool, margin) {
        (Tool::Server, None) => Vec::new(),
        (_, margin) => vec!["-fitt".to_owned(), margin.unwrap_or(FIT_MARGIN).to_owned()],
    }
}

/// Do these settings leave work to a GPU? A placement may keep everything in RAM.
pub fn offloads(settings: &Settings) -> bool {
    let placed = placement(settings).ok().flatten();
    placed.is_none_or(|w| w.placement.n_gpu_layers != Some(0))
}

/// A setting that stock has otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgainstStock {
    /// Dimension.
    pub setting: String,
    /// Value.
    pub value: String,
    /// What stock uses, in words.
    pub stock: String,
}

/// What stock would do otherwise, setting by setting.
pub fn against_stock(settings: &Settings, space: &SearchSpace) -> Vec<AgainstStock> {
    let differs = settings.0.iter().filter_map(|(setting, value)| {
        let stock = if setting == PLACEMENT {
            "llama.cpp's own fitting".to_owned()
        } else {
            let value = space.stock_value(setting);
            value.unwrap_or_else(|| "left to llama.cpp".to_owned())
        };
        (stock != *value).then(|| AgainstStock {
            setting: setting.clone(),
            value: value.clone(),
            stock,
        })
    });
    differs.collect()
}

/// What a setting does, in one line.
pub fn describe<'s>(setting: &str, space: &'s SearchSpace) -> &'s str {
    if setting == PLACEMENT {
        "which tensors are in the GPU's memory and which in RAM"
    } else {
        space.describe(setting)
    }
}

/// Record fields that must read back for a placement.
///
/// # Errors
/// A placement that is none.
pub fn expectations(
    settings: &Settings,
    space: &SearchSpace,
) -> Result<BTreeMap<String, serde_json::Value>, JobError> {
    let mut fields = space
        .expectations(&of_space(settings))
        .map_err(|e| JobError::new("settings", e.to_string()))?;
    if let Some(read) = placement(settings)? {
        let mut expect = |field: &str, value: serde_json::Value| {
            fields.entry(field.to_owned()).or_insert(value);
        };
        if let Some(layers) = read.placement.n_gpu_layers {
            expect("n_gpu_layers", layers.into());
        }
        expect("n_ubatch", read.context.micro_batch.into());
        expect("type_k", read.context.type_k.into());
        expect("type_v", read.context.type_v.into());
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// llama-bench runs a test for every value it is given: `-ub 512 … --ubatch-size 1024` would be two tests.
    #[test]
    fn what_the_search_sets_replaces_what_the_placement_says() {
        let mut placed: Vec<String> = "-ngl 24 -b 2048 -ub 512 -ctk q8_0 -ctv q8_0 -fa 1"
            .split(' ')
            .map(str::to_owned)
            .collect();
        give_way(
            &mut placed,
            &["--ubatch-size".to_owned(), "1024".to_owned()],
        );
        assert_eq!(
            placed.join(" "),
            "-ngl 24 -b 2048 -ctk q8_0 -ctv q8_0 -fa 1"
        );
        give_way(&mut placed, &["--flash-attn".to_owned(), "off".to_owned()]);
        assert_eq!(placed.join(" "), "-ngl 24 -b 2048 -ctk q8_0 -ctv q8_0");
    }
}
