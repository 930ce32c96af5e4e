//! A model's own metadata keys, which begin with its architecture's name: numbers, and values per layer that may be
//! one for all (case C31).

use super::header::{Header, Value};
use crate::domain::text::count;

/// Most blocks llama.cpp takes (`LLAMA_MAX_LAYERS`).
pub(super) const MAX_LAYERS: u32 = 512;

/// Most experts of a layer that llama.cpp takes (`LLAMA_MAX_EXPERTS`).
const MAX_EXPERTS: u64 = 1024;
/// No count or width of a layer comes near: a header that says more is read as saying this, so that products of its
/// numbers stay numbers.
const MAX_NUMBER: u64 = 1 << 20;

/// The keys of one architecture in one header.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) header: &'a Header,
    pub(super) architecture: &'a str,
    /// `block_count`, at most [`MAX_LAYERS`].
    pub(super) layers: u32,
}

impl<'a> Keys<'a> {
    /// # Errors
    /// More layers than llama.cpp takes.
    pub(super) fn new(
        header: &'a Header,
        architecture: &'a str,
        layers: u32,
    ) -> Result<Self, String> {
        if layers > MAX_LAYERS {
            return Err(format!(
                "{architecture}.block_count is {layers}, but llama.cpp takes at most {MAX_LAYERS} layers"
            ));
        }
        Ok(Self {
            header,
            architecture,
            layers,
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.header.metadata.get(&self.key(name))
    }

    /// An integer ≥ 0.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let number = self.header.unsigned(&self.key(name));
        number.map(|n| n.min(MAX_NUMBER))
    }

    /// Experts of a layer, and how many of them a token uses; `None` without any.
    ///
    /// # Errors
    /// Numbers that llama.cpp ends at.
    pub(super) fn experts(&self) -> Result<Option<(u64, u64)>, String> {
        let Some(count) = self.positive("expert_count") else {
            return Ok(None);
        };
        let used = self.largest("expert_used_count").unwrap_or(0);
        if count > MAX_EXPERTS || !(1..=count).contains(&used) {
            return Err(format!(
                "{}.expert_used_count is {used} of {count} experts, but llama.cpp takes 1 to all of at most {MAX_EXPERTS}",
                self.architecture
            ));
        }
        Ok(Some((count, used)))
    }

    /// An integer > 0.
    pub(super) fn positive(&self, name: &str) -> Option<u64> {
        self.number(name).filter(|n| *n > 0)
    }

    /// A value per layer from a scalar or an array; nothing where it is missing or unusable (`get_key_or_arr`).
    ///
    /// # Errors
    /// An array of another length than there are layers; llama.cpp refuses such a file too.
    pub(super) fn per_layer(&self, name: &str) -> Result<Option<Vec<u64>>, String> {
        let layers = u64::from(self.layers);
        let len = match self.value(name) {
            Some(Value::Integers(list)) => list.len() as u64,
            Some(Value::Skipped(len)) => *len,
            _ => return Ok(self.number(name).map(|n| vec![n; self.layers as usize])),
        };
        if len != layers {
            let key = self.key(name);
            return Err(format!(
                "{key} has {} for {}",
                count(len, "entry"),
                count(layers, "layer")
            ));
        }
        Ok(self.list(name))
    }

    /// An array of whole numbers ≥ 0 of any length.
    pub(super) fn list(&self, name: &str) -> Option<Vec<u64>> {
        match self.value(name)? {
            Value::Integers(list) => {
                let number = |n: &i64| Some(u64::try_from(*n).ok()?.min(MAX_NUMBER));
                list.iter().map(number).collect()
            }
            _ => None,
        }
    }

    /// Largest of a scalar or an array.
    pub(super) fn largest(&self, name: &str) -> Option<u64> {
        let list = self.list(name).and_then(|list| list.into_iter().max());
        list.or_else(|| self.number(name))
    }
}
