//! What this device, build and goal leave of the search space, and why the rest is not offered (paper section 2.1).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::types::{Backend, Features, Goal, Settings};

use super::rules;
use super::space::{Affects, Cores, Dimension, Effect, Need, Number, SearchSpace};

/// What the device, the placement and the build can do.
#[derive(Debug, Clone, PartialEq)]
pub struct Capabilities {
    /// Backend the model runs on.
    pub backend: Backend,
    /// Features of the Vulkan device; `None` where they cannot be asked.
    pub features: Option<Features>,
    /// The device is a software renderer.
    pub software_device: bool,
    /// Some weights stay in RAM beside a GPU.
    pub partial_offload: bool,
    /// Devices that share the model; 0 and 1 share nothing.
    pub devices: usize,
    /// Physical cores, where known.
    pub physical_cores: Option<u32>,
    /// Logical processors.
    pub logical_cores: u32,
    /// Long flags that llama-bench's `--help` names.
    pub bench_flags: BTreeSet<String>,
    /// Stock defaults as `--help` prints them, by long flag.
    pub bench_defaults: BTreeMap<String, String>,
    /// Variables kept with the build: every run gets them, so that a setting of the same variable has no "off".
    pub fixed_env: BTreeSet<String>,
}

/// What the user and the workload allow.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferRules {
    /// Only these dimensions; empty is all.
    pub only: Vec<String>,
    /// Reduced-precision caches may be tried.
    pub allow_kv_quant: bool,
    /// The goal: dimensions that cannot change it are screened last.
    pub goal: Goal,
    /// Longest prompt that is measured, tokens.
    pub max_prompt: u32,
}

impl Default for OfferRules {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            allow_kv_quant: false,
            goal: Goal::Generation,
            max_prompt: super::plan::LONG_PROMPT,
        }
    }
}

/// One value on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedValue {
    /// The value.
    pub id: String,
    /// Tried as the baseline when stock fails.
    pub fallback: bool,
    /// Other dimensions that must have one of these values.
    pub requires: BTreeMap<String, Vec<String>>,
    /// Other dimensions that must not have any of these values.
    pub conflicts: BTreeMap<String, Vec<String>>,
}

/// One dimension on offer, with at least one value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedDimension {
    /// The dimension.
    pub id: String,
    /// It only reaches the prompt at lengths above llama-bench's default: a longer prompt is measured too.
    pub prompt_bound: bool,
    /// Its values.
    pub values: Vec<OfferedValue>,
}

/// Something not offered, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The dimension.
    pub dimension: String,
    /// The value; `None` is the whole dimension.
    pub value: Option<String>,
    /// Why.
    pub reason: String,
}

/// The candidates of one search, and what is not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// On offer, in screening order.
    pub dimensions: Vec<OfferedDimension>,
    /// Not on offer.
    pub refused: Vec<Refusal>,
}

/// A name in `--only` that is no dimension.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no setting is called {name}; known: {known}")]
pub struct UnknownDimension {
    /// The name given.
    pub name: String,
    /// All names.
    pub known: String,
}

impl Offer {
    /// The offered value, if it is on offer.
    pub fn find(&self, dimension: &str, value: &str) -> Option<&OfferedValue> {
        let dimension = self.dimensions.iter().find(|d| d.id == dimension)?;
        dimension.values.iter().find(|v| v.id == value)
    }

    /// Do these settings go together?
    ///
    /// # Errors
    /// The broken rule, in one sentence.
    pub fn check(&self, settings: &Settings) -> Result<(), String> {
        for (dimension, value) in &settings.0 {
            if let Some(v) = self.find(dimension, value) {
                rules::check(settings, dimension, value, &v.requires, &v.conflicts)?;
            }
        }
        Ok(())
    }

    /// `base` with one value set, and whatever that value requires.
    ///
    /// # Errors
    /// The rule that the result would break.
    pub fn compose(
        &self,
        base: &Settings,
        dimension: &str,
        value: &str,
    ) -> Result<Settings, String> {
        let mut settings = base.with(dimension, value);
        if let Some(v) = self.find(dimension, value) {
            for (other, allowed) in &v.requires {
                if let (None, Some(first)) = (base.0.get(other), allowed.first()) {
                    settings = settings.with(other, first);
                }
            }
        }
        self.check(&settings).map(|()| settings)
    }
}

impl SearchSpace {
    /// What is left of the space here.
    ///
    /// # Errors
    /// A name in `only` that is no dimension.
    pub fn offer(
        &self,
        capabilities: &Capabilities,
        rules: &OfferRules,
    ) -> Result<Offer, UnknownDimension> {
        if let Some(name) = rules.only.iter().find(|n| self.get(n).is_none()) {
            return Err(UnknownDimension {
                name: name.clone(),
                known: self.names(),
            });
        }
        let mut offer = Offer::default();
        let wanted = |d: &&Dimension| rules.only.is_empty() || rules.only.contains(&d.id);
        for dimension in self.dimensions().iter().filter(wanted) {
            let mut refuse = |value: Option<String>, reason: String| {
                offer.refused.push(Refusal {
                    dimension: dimension.id.clone(),
                    value,
                    reason,
                });
            };
            if let Some(reason) = refused_whole(dimension, capabilities, rules) {
                refuse(None, reason);
                continue;
            }
            let values = match &dimension.number {
                Some(number) => numbers(dimension, number, capabilities, rules, &mut refuse),
                None => named(dimension, capabilities),
            };
            if !values.is_empty() {
                offer.dimensions.push(OfferedDimension {
                    id: dimension.id.clone(),
                    prompt_bound: dimension.number.as_ref().is_some_and(|n| n.prompt_bound),
                    values,
                });
            }
        }
        self.bind_floors(&mut offer);
        let reaches = |d: &OfferedDimension| {
            let affects = self.get(&d.id).map(|d| d.affects);
            !matches!(
                (rules.goal, affects),
                (Goal::Generation, Some(Affects::Prompt))
                    | (Goal::Prompt, Some(Affects::Generation))
            )
        };
        offer.dimensions.sort_by_key(|d| !reaches(d));
        Ok(offer)
    }

    /// A number with a floor (batch: the micro-batch) conflicts with every offered floor above it.
    fn bind_floors(&self, offer: &mut Offer) {
        let number = |v: &OfferedValue| v.id.parse::<u64>().unwrap_or(0);
        for dimension in self.dimensions() {
            let Some(floor) = dimension.number.as_ref().and_then(|n| n.not_below.as_ref()) else {
                continue;
            };
            let of = |id: &str| offer.dimensions.iter().position(|d| d.id == id);
            let (Some(at), Some(floor_at)) = (of(&dimension.id), of(floor)) else {
                continue;
            };
            let floors = offer.dimensions[floor_at].values.clone();
            for value in &mut offer.dimensions[at].values {
                let above = floors.iter().filter(|f| number(f) > number(value));
                let above: Vec<String> = above.map(|f| f.id.clone()).collect();
                if !above.is_empty() {
                    value.conflicts.insert(floor.clone(), above);
                }
            }
        }
    }
}

/// Why nothing of a dimension is offered; `None` where it is.
fn refused_whole(
    dimension: &Dimension,
    capabilities: &Capabilities,
    rules: &OfferRules,
) -> Option<String> {
    let backends = &dimension.backends;
    if !backends.is_empty() && !backends.contains(&capabilities.backend) {
        let names: Vec<&str> = backends.iter().map(|b| b.name()).collect();
        let here = match capabilities.backend {
            Backend::Cpu => ", and no GPU is used here",
            _ => "",
        };
        return Some(format!("only for the {} backend{here}", names.join(" or ")));
    }
    if !backends.is_empty() && capabilities.software_device {
        return Some("the device is a software renderer, not a GPU".to_owned());
    }
    if !dimension.exact && !rules.allow_kv_quant {
        return Some("reduces precision, which this search does not allow".to_owned());
    }
    if let Some(flag) = &dimension.flag
        && !capabilities.bench_flags.contains(flag)
    {
        return Some(format!("this llama-bench has no {flag}"));
    }
    let fixed = &capabilities.fixed_env;
    if let Some(name) = variables(dimension).find(|v| fixed.contains(*v)) {
        return Some(format!("the runtime's own environment sets {name}"));
    }
    dimension
        .needs
        .iter()
        .find_map(|need| missing(*need, capabilities))
}

/// Variables a dimension sets by one of its values.
fn variables(dimension: &Dimension) -> impl Iterator<Item = &String> {
    let number = dimension.number.iter().flat_map(|n| n.effect.env.keys());
    let values = dimension.values.iter().flat_map(|v| v.effect.env.keys());
    number.chain(values)
}

/// Why a need is not met; `None` where it is.
fn missing(need: Need, capabilities: &Capabilities) -> Option<String> {
    let feature = |has: fn(&Features) -> bool, without: &str| match &capabilities.features {
        None => Some("the device's features cannot be read".to_owned()),
        Some(features) => (!has(features)).then(|| without.to_owned()),
    };
    match need {
        Need::Int8Dot => feature(
            |f| f.int8_dot_accelerated,
            "the device has no accelerated 8-bit dot product",
        ),
        Need::Fp16 => feature(|f| f.fp16, "the device has no half-precision arithmetic"),
        Need::CooperativeMatrix => feature(
            |f| f.cooperative_matrix,
            "the device has no cooperative matrices",
        ),
        Need::CooperativeMatrix2 => feature(
            |f| f.cooperative_matrix2,
            "the device has no VK_NV_cooperative_matrix2",
        ),
        Need::Bfloat16 => feature(|f| f.bfloat16, "the device has no bfloat16 arithmetic"),
        Need::CpuWork => (capabilities.backend != Backend::Cpu && !capabilities.partial_offload)
            .then(|| "the CPU computes nothing here".to_owned()),
        Need::PartialOffload => (!capabilities.partial_offload)
            .then(|| "no weights are split between GPU and RAM".to_owned()),
        Need::SeveralDevices => {
            (capabilities.devices < 2).then(|| "one device holds the model".to_owned())
        }
    }
}

/// Is this what the build does anyway? Its own `--help` decides where it says so, since defaults move (case C10).
fn is_default(
    flag: Option<&str>,
    effect: &Effect,
    marked: bool,
    capabilities: &Capabilities,
) -> bool {
    let printed = flag.and_then(|f| capabilities.bench_defaults.get(f));
    match (printed, effect.bench.get(1)) {
        (Some(default), Some(own)) => default == own,
        _ => marked,
    }
}

fn named(dimension: &Dimension, capabilities: &Capabilities) -> Vec<OfferedValue> {
    let flag = dimension.flag.as_deref();
    dimension
        .values
        .iter()
        .filter(|v| !is_default(flag, &v.effect, v.stock, capabilities))
        .map(|v| OfferedValue {
            id: v.id.clone(),
            fallback: v.fallback,
            requires: v.requires.clone(),
            conflicts: v.conflicts.clone(),
        })
        .collect()
}

fn numbers(
    dimension: &Dimension,
    number: &Number,
    capabilities: &Capabilities,
    rules: &OfferRules,
    refuse: &mut impl FnMut(Option<String>, String),
) -> Vec<OfferedValue> {
    let printed = dimension
        .flag
        .as_ref()
        .and_then(|f| capabilities.bench_defaults.get(f)?.parse().ok());
    let stock: Option<u64> = printed.or(number.stock);
    let mut offered: Vec<u64> = Vec::new();
    for choice in &number.offer {
        let Some(n) = resolve(choice, capabilities) else {
            refuse(
                Some(choice.clone()),
                "the number of physical cores is unknown".to_owned(),
            );
            continue;
        };
        // Twice the batch, so that even the larger one is filled more than once (case C43).
        if number.prompt_bound && n > u64::from(rules.max_prompt) / 2 {
            refuse(
                Some(choice.clone()),
                format!(
                    "searched with prompts of {} tokens or more: shorter ones hardly fill it",
                    2 * n
                ),
            );
        } else if Some(n) != stock && number.allows(n) && !offered.contains(&n) {
            offered.push(n);
        }
    }
    offered
        .into_iter()
        .map(|n| OfferedValue {
            id: n.to_string(),
            fallback: false,
            requires: BTreeMap::new(),
            conflicts: BTreeMap::new(),
        })
        .collect()
}

fn resolve(choice: &str, capabilities: &Capabilities) -> Option<u64> {
    let physical = capabilities.physical_cores.map(u64::from);
    match Cores::parse(choice) {
        Some(Cores::Half) => physical.map(|p| (p / 2).max(1)),
        Some(Cores::Physical) => physical,
        Some(Cores::All) => Some(u64::from(capabilities.logical_cores)),
        None => choice.parse().ok(),
    }
}
