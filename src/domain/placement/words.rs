//! A placement in words: `ngl=24 ncmoe=8 ub=1024`, as `--predict` reads it and as a setting keeps it.

use std::fmt;

use super::assignment::{ContextParams, HostTensors, Placement};
use super::layout::TensorClass;

/// Name of the placement among settings; its value is in these words, or [`FIT`].
pub const SETTING: &str = "placement";

/// llama.cpp's own fitting instead of a placement of ours: `fit`, or `fit=MIB` with the device memory it must leave free.
pub const FIT: &str = "fit";

/// Does this setting leave the placement to llama.cpp? Then with what must stay free, MiB, where it says.
pub fn fitting(text: &str) -> Option<Option<&str>> {
    let rest = text.strip_prefix(FIT)?;
    match rest.strip_prefix('=') {
        Some(margin) => Some(Some(margin)),
        None => rest.is_empty().then_some(None),
    }
}

/// A placement with the context it is for, and the test lengths where they were given.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    /// Placement.
    pub placement: Placement,
    /// Context.
    pub context: ContextParams,
    /// Tokens of the prompt test (`p=`).
    pub prompt_tokens: Option<u32>,
    /// Tokens of the generation test (`n=`).
    pub generated_tokens: Option<u32>,
    /// Tokens in the context before either (`d=`).
    pub depth: Option<u32>,
}

/// Reads words into a placement; what is not named is as in `context`.
///
/// # Errors
/// A word that is none, or a value that is no number where one is needed; a sentence without a full stop.
pub fn parse(text: &str, context: &ContextParams) -> Result<Words, String> {
    if text.trim().is_empty() {
        return Err("a placement without words: write ngl=24 or ncmoe=8".to_owned());
    }
    let mut words = Words {
        placement: Placement::default(),
        context: context.clone(),
        prompt_tokens: None,
        generated_tokens: None,
        depth: None,
    };
    for word in text
        .split([' ', ','])
        .filter(|w| !w.is_empty() && *w != "stock")
    {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            format!("{word:?} is no part of a placement: write ngl=24 or ncmoe=8")
        })?;
        words.set(key, value)?;
    }
    Ok(words)
}

impl Words {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let count = || whole::<u32>(key, value);
        let tokens = || {
            let n = whole::<u64>(key, value)?;
            let range = 1..=MAX_TOKENS;
            let wrong = || format!("{key}={value}: from 1 to {MAX_TOKENS} tokens");
            range.contains(&n).then_some(n).ok_or_else(wrong)
        };
        match key {
            // llama.cpp's own "all" is a negative number.
            "ngl" if value == "-1" || value == "all" => self.placement.n_gpu_layers = None,
            "ngl" => self.placement.n_gpu_layers = Some(count()?),
            "ncmoe" => self.placement.n_cpu_moe = count()?,
            "ffn" => self.keep(TensorClass::FeedForward, value)?,
            "experts" => self.keep(TensorClass::Experts, value)?,
            "nkvo" => self.placement.kv_on_host = count()? != 0,
            "repack" => self.placement.no_repack = count()? == 0,
            "ts" => {
                let shares: Result<Vec<f64>, _> = value.split('/').map(str::parse).collect();
                let shares = shares
                    .ok()
                    .filter(|s| s.iter().all(|x| x.is_finite() && *x >= 0.0));
                self.placement.tensor_split =
                    shares.ok_or_else(|| format!("ts={value}: write shares like ts=20/17"))?;
            }
            "ub" => {
                self.context.micro_batch = tokens()?;
                self.context.batch = self.context.batch.max(self.context.micro_batch);
            }
            "b" => self.context.batch = tokens()?,
            "c" => self.context.context = tokens()?,
            "ctk" => self.context.type_k = cache_type(key, value)?,
            "ctv" => self.context.type_v = cache_type(key, value)?,
            "p" => self.prompt_tokens = Some(count()?),
            "n" => self.generated_tokens = Some(count()?),
            "d" => self.depth = Some(count()?),
            _ => {
                return Err(format!(
                    "{key} is not known in a placement; known: ngl, ncmoe, experts, ffn, ts, nkvo, repack, ub, b, c, ctk, ctv, p, n, d"
                ));
            }
        }
        Ok(())
    }

    /// `0-11.36-47`: layers and ranges of layers.
    fn keep(&mut self, class: TensorClass, value: &str) -> Result<(), String> {
        let wrong = || format!("{value}: write layers like 0-11.36-47");
        let mut layers = Vec::new();
        let before: usize = self
            .placement
            .host_tensors
            .iter()
            .map(|t| t.layers.len())
            .sum();
        for range in value.split(['.', '+']) {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to): (u32, u32) = (
                from.parse().map_err(|_| wrong())?,
                to.parse().map_err(|_| wrong())?,
            );
            if to < from || before + layers.len() + (to - from) as usize >= MAX_LAYERS {
                return Err(wrong());
            }
            layers.extend(from..=to);
        }
        self.placement
            .host_tensors
            .push(HostTensors { class, layers });
        Ok(())
    }
}

/// Types of a KV cache that llama.cpp knows (`kv_cache_types` of its common/arg.cpp).
const CACHE_TYPES: [&str; 9] = [
    "f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1",
];

fn cache_type(key: &str, value: &str) -> Result<String, String> {
    if CACHE_TYPES.contains(&value) {
        return Ok(value.to_owned());
    }
    let known = CACHE_TYPES.join(", ");
    Err(format!(
        "{key}={value} is no type of a KV cache; known: {known}"
    ))
}

/// Longer contexts than any model has.
pub(super) const MAX_TOKENS: u64 = 1 << 30;
/// More layers than any model has, of both kinds of tensor together; a typing error must not fill memory.
const MAX_LAYERS: usize = 100_000;

fn whole<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{key}={value}: a whole number is needed"))
}

/// The words that [`parse`] reads back: placement, micro-batch and cache types.
#[derive(Debug, Clone, Copy)]
pub struct Spoken<'a>(pub &'a Placement, pub &'a ContextParams);

impl fmt::Display for Spoken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(placement, context) = self;
        let mut text = placement.to_string();
        for (key, value) in [("ctk", &context.type_k), ("ctv", &context.type_v)] {
            if value != "f16" {
                text = format!("{text} {key}={value}");
            }
        }
        f.pad(&format!("{text} ub={}", context.micro_batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_tool_takes_are_refused_by_name() {
        for (text, why) in [
            ("ctk=q9_9", "ctk=q9_9 is no type of a KV cache"),
            ("ub=0", "ub=0: from 1 to"),
            ("ub=999999999999", "ub=999999999999: from 1 to"),
            ("c=99999999999999", "c=99999999999999: from 1 to"),
            ("ts=nan/1", "ts=nan/1: write shares"),
            ("ts=-1/2", "ts=-1/2: write shares"),
            ("ffn=0-100000", "0-100000: write layers"),
            ("ffn=0-99998+0-1", "0-99998+0-1: write layers"),
            ("ffn=0-99998 experts=0-1", "0-1: write layers"),
        ] {
            let error = parse(text, &ContextParams::default()).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn words_are_read_and_said_alike() {
        let stock = ContextParams::default();
        for text in [
            "ngl=24 ub=512",
            "ngl=49 ncmoe=8 ub=2048",
            "ngl=49 experts=12-23.36-47 ts=25/24 ctk=q8_0 ctv=q8_0 ub=512",
            "ngl=37 ffn=0-5.7 nkvo=1 ub=128",
            "ngl=0 repack=0 ub=512",
        ] {
            let read = parse(text, &stock).unwrap();
            assert_eq!(Spoken(&read.placement, &read.context).to_string(), text);
        }
        let read = parse("ngl=24,p=128 n=32 d=4096", &stock).unwrap();
        assert_eq!(read.placement.n_gpu_layers, Some(24));
        assert_eq!(
            (read.prompt_tokens, read.generated_tokens),
            (Some(128), Some(32))
        );
        assert_eq!(read.depth, Some(4096));
    }

    #[test]
    fn fitting_is_told_from_placements() {
        assert_eq!(fitting("fit"), Some(None));
        assert_eq!(fitting("fit=7168"), Some(Some("7168")));
        assert_eq!(fitting("ngl=3 ub=512"), None);
        assert_eq!(fitting("fitted"), None);
    }

    #[test]
    fn what_is_no_placement_is_refused_by_name() {
        let stock = ContextParams::default();
        assert!(
            parse("layers=3", &stock)
                .unwrap_err()
                .contains("known: ngl")
        );
        assert!(parse("ngl", &stock).unwrap_err().contains("write ngl=24"));
        assert!(
            parse("ngl=-3", &stock)
                .unwrap_err()
                .contains("whole number")
        );
        assert!(parse("experts=9-2", &stock).is_err());
        assert!(parse("experts=0-4294967295", &stock).is_err());
    }
}
