//! The search space as data: `assets/search-space.toml`, checked against a whitelist of shapes (paper section 2.3).
//!
//! A file may only produce flags and `GGML_*` variables Flux knows, with plain values: never an arbitrary string.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::domain::placement::words;
use crate::domain::server::speculation;
use crate::domain::text::{clean, excerpt};
use crate::domain::types::Backend;

use super::known::{BENCH_FLAGS, SERVER_FLAGS, VARIABLES};

/// The search space that ships with Flux.
const SHIPPED: &str = include_str!("../../../assets/search-space.toml");

/// Where a template takes its number.
pub(super) const HOLE: &str = "{}";

/// What part of the work a dimension changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Affects {
    /// Prompt processing only.
    Prompt,
    /// Generation only.
    Generation,
    /// Both.
    Both,
}

/// What a dimension needs to do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Accelerated 8-bit dot products.
    Int8Dot,
    /// Half-precision arithmetic.
    Fp16,
    /// `VK_KHR_cooperative_matrix`.
    CooperativeMatrix,
    /// `VK_NV_cooperative_matrix2`.
    CooperativeMatrix2,
    /// bfloat16 arithmetic.
    Bfloat16,
    /// Some layers are computed on the CPU.
    CpuWork,
    /// Weights on both sides, GPU and RAM.
    PartialOffload,
    /// More than one device shares the model.
    SeveralDevices,
}

/// What one setting is for each tool: arguments, environment, and what the record must then say.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Effect {
    pub bench: Vec<String>,
    pub server: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub expect: BTreeMap<String, Json>,
}

/// A value with a name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Value {
    pub id: String,
    /// Equals today's default.
    #[serde(default)]
    pub stock: bool,
    /// Tried as the baseline when stock fails (case C15).
    #[serde(default)]
    pub fallback: bool,
    /// Other dimensions that must have one of these values.
    #[serde(default)]
    pub requires: BTreeMap<String, Vec<String>>,
    /// Other dimensions that must not have any of these values.
    #[serde(default)]
    pub conflicts: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    pub effect: Effect,
    /// Keys nobody knows: a mistake in the file.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, toml::Value>,
}

/// Values that are whole numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Number {
    pub min: u64,
    pub max: u64,
    /// Numbers, or `half`, `physical`, `all` of the processor's cores.
    pub offer: Vec<String>,
    pub stock: Option<u64>,
    /// A number of prompt tokens: no-op above the prompt's length (case C43).
    #[serde(default)]
    pub prompt_bound: bool,
    /// A number of bytes: said as a size.
    #[serde(default)]
    pub bytes: bool,
    /// A dimension whose number this one must reach.
    pub not_below: Option<String>,
    #[serde(flatten)]
    pub effect: Effect,
    /// Keys nobody knows: a mistake in the file.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, toml::Value>,
}

/// One thing Flux may set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// Kebab-case name, as in `--only` and in settings.
    pub id: String,
    /// Its name as people read it in front of a value: `Graphics queue`.
    pub title: String,
    /// What it does, in one line.
    pub summary: String,
    /// What it changes.
    pub affects: Affects,
    /// Weights and KV cache keep their precision.
    #[serde(default = "yes")]
    pub exact: bool,
    /// Backends on which it does anything; empty is all.
    #[serde(default)]
    pub backends: BTreeSet<Backend>,
    /// What it needs.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The flag llama-bench's `--help` must name.
    pub flag: Option<String>,
    pub(super) number: Option<Number>,
    #[serde(default, rename = "value")]
    pub(super) values: Vec<Value>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    dimension: Vec<Dimension>,
}

/// A search space that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// Not TOML, or not of this shape.
    #[error("the search space cannot be read: {0}")]
    Syntax(String),
    /// A rule is broken.
    #[error("the search space is wrong at {place}: {what}")]
    Rule {
        /// Dimension, or dimension=value.
        place: String,
        /// What is wrong there.
        what: String,
    },
}

/// Everything Flux may set, in the order it is screened.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchSpace {
    dimensions: Vec<Dimension>,
}

impl Default for SearchSpace {
    /// The space that ships with Flux.
    ///
    /// # Panics
    /// Never: a test parses the shipped file.
    fn default() -> Self {
        match Self::parse(SHIPPED) {
            Ok(space) => space,
            Err(error) => unreachable!("the shipped file is tested: {error}"),
        }
    }
}

impl SearchSpace {
    /// Reads and checks a search space.
    ///
    /// # Errors
    /// [`SpaceError`] names the dimension and the rule.
    pub fn parse(text: &str) -> Result<Self, SpaceError> {
        let file: File = toml::from_str(text).map_err(|e| {
            let before = e.span().and_then(|at| text.get(..at.start));
            let line = 1 + before.unwrap_or_default().matches('\n').count();
            let what = e.message().lines().next().unwrap_or_default();
            SpaceError::Syntax(format!("line {line}: {}", excerpt(what)))
        })?;
        let space = Self {
            dimensions: file.dimension,
        };
        space.check()?;
        Ok(space)
    }

    /// The dimensions, in screening order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions
    }

    /// What a dimension does, in one line; empty for an unknown one.
    pub fn describe(&self, dimension: &str) -> &str {
        self.get(dimension).map_or("", |d| d.summary.as_str())
    }

    /// The value that equals stock; `None` where stock is leaving it out.
    pub fn stock_value(&self, dimension: &str) -> Option<String> {
        let dimension = self.get(dimension)?;
        match &dimension.number {
            Some(number) => number.stock.map(|n| n.to_string()),
            None => dimension
                .values
                .iter()
                .find(|v| v.stock)
                .map(|v| v.id.clone()),
        }
    }

    /// The shipped space, read once.
    pub fn shipped() -> &'static Self {
        static SPACE: LazyLock<SearchSpace> = LazyLock::new(SearchSpace::default);
        &SPACE
    }

    /// What people call a dimension; `None` for an unknown one.
    pub fn title(&self, dimension: &str) -> Option<&str> {
        self.get(dimension).map(|d| d.title.as_str())
    }

    /// Is its value a number of bytes?
    pub fn is_in_bytes(&self, dimension: &str) -> bool {
        let number = self.get(dimension).and_then(|d| d.number.as_ref());
        number.is_some_and(|n| n.bytes)
    }

    pub(super) fn get(&self, dimension: &str) -> Option<&Dimension> {
        self.dimensions.iter().find(|d| d.id == dimension)
    }

    fn check(&self) -> Result<(), SpaceError> {
        let mut seen = BTreeSet::new();
        for dimension in &self.dimensions {
            let wrong = |what: &str| Err(rule(&dimension.id, what));
            if !is_kebab(&dimension.id) {
                return wrong("a dimension's id is kebab-case");
            }
            if [words::SETTING, speculation::SETTING].contains(&dimension.id.as_str()) {
                return wrong("this id is a setting of Flux's own");
            }
            if !seen.insert(&dimension.id) {
                return wrong("this id is used twice");
            }
            if !is_line(&dimension.title) {
                return wrong("a title is one line");
            }
            if !is_line(&dimension.summary) {
                return wrong("a summary is one line");
            }
            if dimension.number.is_some() != dimension.values.is_empty() {
                return wrong("a dimension has either named values or a number");
            }
            if let Some(flag) = &dimension.flag
                && !BENCH_FLAGS.contains(&flag.as_str())
            {
                return wrong(&format!("llama-bench has no flag {flag} that Flux knows"));
            }
            if let Some(number) = &dimension.number {
                self.check_number(&dimension.id, number)?;
            }
            self.check_values(dimension)?;
        }
        Ok(())
    }

    fn check_number(&self, id: &str, number: &Number) -> Result<(), SpaceError> {
        check_keys(id, &number.unknown)?;
        check_effect(id, &number.effect, true)?;
        if let Some(other) = &number.not_below
            && self.get(other).is_none_or(|d| d.number.is_none())
        {
            return Err(rule(id, &format!("`not_below` names no number: {other}")));
        }
        for choice in number.offer.iter().filter(|c| Cores::parse(c).is_none()) {
            let known = choice.parse().is_ok_and(|n| number.allows(n));
            if !known {
                return Err(rule(
                    id,
                    &format!(
                        "{choice} is no number from {} to {}, nor half, physical or all",
                        number.min, number.max
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_values(&self, dimension: &Dimension) -> Result<(), SpaceError> {
        let mut seen = BTreeSet::new();
        for value in &dimension.values {
            let place = format!("{}={}", dimension.id, value.id);
            if !is_plain(&value.id) || !seen.insert(&value.id) {
                return Err(rule(&place, "a value's id is plain and used once"));
            }
            check_keys(&place, &value.unknown)?;
            check_effect(&place, &value.effect, false)?;
            for (other, values) in value.requires.iter().chain(&value.conflicts) {
                let known = self.get(other).is_some_and(|d| {
                    values
                        .iter()
                        .all(|v| d.number.is_some() || d.values.iter().any(|k| k.id == *v))
                });
                if !known {
                    return Err(rule(&place, &format!("{other} has no value {values:?}")));
                }
            }
        }
        Ok(())
    }
}

impl Number {
    pub(super) const fn allows(&self, n: u64) -> bool {
        self.min <= n && n <= self.max
    }
}

/// A number of threads named after the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cores {
    Half,
    Physical,
    All,
}

impl Cores {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "half" => Some(Self::Half),
            "physical" => Some(Self::Physical),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

fn rule(place: &str, what: &str) -> SpaceError {
    SpaceError::Rule {
        place: place.to_owned(),
        what: what.to_owned(),
    }
}

fn check_keys(place: &str, unknown: &BTreeMap<String, toml::Value>) -> Result<(), SpaceError> {
    match unknown.keys().next() {
        Some(key) => Err(rule(place, &format!("there is no key {key}"))),
        None => Ok(()),
    }
}

/// The whitelist: known flags and variables, plain values.
fn check_effect(place: &str, effect: &Effect, template: bool) -> Result<(), SpaceError> {
    check_args(place, &effect.bench, BENCH_FLAGS, template)?;
    check_args(place, &effect.server, SERVER_FLAGS, template)?;
    for (name, value) in &effect.env {
        if !VARIABLES.contains(&name.as_str()) {
            return Err(rule(
                place,
                &format!(
                    "{} is no variable of llama.cpp that Flux knows",
                    clean(name)
                ),
            ));
        }
        let filled = template && value == HOLE;
        if !is_plain(value) && !filled {
            return Err(rule(place, &format!("{value:?} is no plain value")));
        }
    }
    if effect.bench.is_empty() && effect.env.is_empty() {
        return Err(rule(place, "it changes nothing"));
    }
    if effect.bench.is_empty() != effect.expect.is_empty() {
        return Err(rule(
            place,
            "arguments and the record fields they show in go together",
        ));
    }
    Ok(())
}

fn check_args(
    place: &str,
    args: &[String],
    flags: &[&str],
    template: bool,
) -> Result<(), SpaceError> {
    for arg in args {
        let known = if arg.starts_with("--") {
            flags.contains(&arg.as_str())
        } else {
            is_plain(arg) || (template && arg == HOLE)
        };
        if !known {
            return Err(rule(
                place,
                &format!("{arg:?} is no flag that Flux knows and no plain value"),
            ));
        }
    }
    Ok(())
}

fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && clean(text) == text
}

fn is_kebab(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Letters, digits, `_`, `.`, `+`: nothing a tool or a shell could read as several values.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+'))
}
