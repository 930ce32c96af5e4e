//! What is measured: tests, settings, arms.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One llama-bench test: so many prompt tokens, so many generated ones, at a context depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TestSpec {
    /// Prompt tokens processed.
    pub n_prompt: u32,
    /// Tokens generated.
    pub n_gen: u32,
    /// Tokens already in the context.
    pub n_depth: u32,
}

impl TestSpec {
    /// A prompt-processing test (prefill).
    pub const fn prompt(tokens: u32) -> Self {
        Self {
            n_prompt: tokens,
            n_gen: 0,
            n_depth: 0,
        }
    }

    /// A generation test (decode).
    pub const fn generation(tokens: u32) -> Self {
        Self {
            n_prompt: 0,
            n_gen: tokens,
            n_depth: 0,
        }
    }

    /// The same test at a context depth.
    #[must_use]
    pub const fn at_depth(self, n_depth: u32) -> Self {
        Self { n_depth, ..self }
    }

    /// Tokens one repetition works through, the numerator of its rate.
    pub const fn tokens(self) -> u32 {
        self.n_prompt + self.n_gen
    }

    /// Prompt processing only.
    pub const fn is_prompt(self) -> bool {
        self.n_gen == 0
    }
}

/// llama-bench's own label: `pp512`, `tg128`, `pp512+tg128`, with ` @ dN` at a depth.
impl fmt::Display for TestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match (self.n_prompt, self.n_gen) {
            (p, 0) => format!("pp{p}"),
            (0, g) => format!("tg{g}"),
            (p, g) => format!("pp{p}+tg{g}"),
        };
        if self.n_depth > 0 {
            text = format!("{text} @ d{}", self.n_depth);
        }
        f.pad(&text)
    }
}

/// Chosen values by dimension of the search space, both by their ids in `search-space.toml`. Empty is stock.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, String>);

impl Settings {
    /// No Flux settings: the stock runtime.
    pub fn stock() -> Self {
        Self::default()
    }

    /// Is this the stock runtime?
    pub fn is_stock(&self) -> bool {
        self.0.is_empty()
    }

    /// The same settings with one dimension set.
    #[must_use]
    pub fn with(&self, dimension: &str, value: &str) -> Self {
        let mut next = self.clone();
        next.0.insert(dimension.to_owned(), value.to_owned());
        next
    }

    /// The same settings with one dimension back at stock.
    #[must_use]
    pub fn without(&self, dimension: &str) -> Self {
        let mut next = self.clone();
        next.0.remove(dimension);
        next
    }

    /// What is set here and is not, or is otherwise, in `base`.
    #[must_use]
    pub fn beyond(&self, base: &Self) -> Self {
        let own = self.0.iter().filter(|(d, v)| base.0.get(*d) != Some(*v));
        Self(own.map(|(d, v)| (d.clone(), v.clone())).collect())
    }

    /// The same settings with those of `other`, which win.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.0.extend(other.0.clone());
        both
    }
}

/// `stock`, or `graphics-queue=on ubatch=1024`.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stock() {
            return f.pad("stock");
        }
        let text: Vec<String> = self.0.iter().map(|(d, v)| format!("{d}={v}")).collect();
        f.pad(&text.join(" "))
    }
}

/// Settings written out for one tool: an argument list and an environment, never a shell line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    /// Arguments, one element each.
    pub args: Vec<String>,
    /// Environment added after every inherited `GGML_*`, `LLAMA_*` was removed. "Off" is absence.
    pub env: BTreeMap<String, String>,
}

/// What the user wants faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Tokens generated per second (decode).
    Generation,
    /// Prompt tokens per second (prefill).
    Prompt,
    /// Requests per second: a prompt of `prompt_tokens`, then `generated_tokens`.
    Request,
    /// Tokens per joule.
    Energy,
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Generation => "generation",
            Self::Prompt => "prompt",
            Self::Request => "request",
            Self::Energy => "energy",
        })
    }
}

/// The request goal's request: tokens in, tokens out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestShape {
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Generated tokens.
    pub generated_tokens: u32,
}

impl Default for RequestShape {
    /// 1,500 tokens in, 300 out: a chat turn with some context (issue text).
    fn default() -> Self {
        Self {
            prompt_tokens: 1500,
            generated_tokens: 300,
        }
    }
}
