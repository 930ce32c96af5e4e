//! Settings written out per tool, and read from text. One option can need another separator in each tool (case C06).

use std::collections::BTreeMap;

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::domain::types::{Launch, Settings};

use super::space::{Effect, HOLE, SearchSpace};

/// The llama.cpp program a launch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `llama-bench`: a comma means several tests.
    Bench,
    /// `llama-server`.
    Server,
}

impl Tool {
    /// `--tensor-split`: `1/9` for llama-bench, `1,9` for llama-server.
    pub fn tensor_split(self, parts: &[f64]) -> String {
        let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        parts.join(self.list_separator())
    }

    /// `--device`: `Vulkan0/Vulkan1` for llama-bench, `Vulkan0,Vulkan1` for llama-server.
    pub fn devices(self, devices: &[String]) -> String {
        devices.join(self.list_separator())
    }

    /// `--override-tensor`: rules joined by `;` for llama-bench, by `,` for llama-server.
    pub fn overrides(self, rules: &[(String, String)]) -> String {
        let rules: Vec<String> = rules
            .iter()
            .map(|(re, buf)| format!("{re}={buf}"))
            .collect();
        rules.join(match self {
            Self::Bench => ";",
            Self::Server => ",",
        })
    }

    const fn list_separator(self) -> &'static str {
        match self {
            Self::Bench => "/",
            Self::Server => ",",
        }
    }
}

/// Settings that the search space does not know, or that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not `name=value`.
    #[error("{0:?} is no setting: write name=value")]
    Shape(String),
    /// No such dimension.
    #[error("no setting is called {name}; known: {known}")]
    UnknownName {
        /// The name given.
        name: String,
        /// All names.
        known: String,
    },
    /// No such value.
    #[error("{name} cannot be {value}; it can be {known}")]
    UnknownValue {
        /// The dimension.
        name: String,
        /// The value given.
        value: String,
        /// The values it can have.
        known: String,
    },
    /// Two settings that exclude each other.
    #[error("{0}")]
    Contradiction(String),
}

impl SearchSpace {
    /// Settings as arguments and environment of one tool. Each setting is written out, also where it equals the default.
    ///
    /// # Errors
    /// A setting the space does not know.
    pub fn launch(&self, settings: &Settings, tool: Tool) -> Result<Launch, SettingsError> {
        let mut launch = Launch::default();
        for (dimension, value) in &settings.0 {
            let effect = self.effect(dimension, value)?;
            launch.args.extend(match tool {
                Tool::Bench => effect.bench,
                Tool::Server => effect.server,
            });
            launch.env.extend(effect.env);
        }
        Ok(launch)
    }

    /// Record fields that must read back for these settings: `n_ubatch` → `1024`.
    ///
    /// # Errors
    /// A setting the space does not know.
    pub fn expectations(
        &self,
        settings: &Settings,
    ) -> Result<BTreeMap<String, Json>, SettingsError> {
        let mut fields = BTreeMap::new();
        for (dimension, value) in &settings.0 {
            fields.extend(self.effect(dimension, value)?.expect);
        }
        Ok(fields)
    }

    /// Digest of what settings, each `(dimension, value)`, mean to llama.cpp's programs: it stays the same while each of
    /// them does, whatever else the space holds. SHA-256, lower-case hex.
    ///
    /// # Errors
    /// A setting the space does not know.
    pub fn digest<'a>(
        &self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<String, SettingsError> {
        let mut hash = Sha256::new();
        for (dimension, value) in settings {
            let effect = self.effect(dimension, value)?;
            let meaning = serde_json::json!([
                dimension,
                value,
                effect.bench,
                effect.server,
                effect.env,
                effect.expect
            ]);
            hash.update(meaning.to_string());
        }
        let hex = |hex: String, byte: &u8| hex + &format!("{byte:02x}");
        Ok(hash.finalize().iter().fold(String::new(), hex))
    }

    /// Reads `flash-attn=on ubatch=1024`; `stock` and nothing at all are the stock runtime.
    ///
    /// # Errors
    /// Unknown names or values, the same name twice, or settings that contradict each other.
    pub fn parse_settings(&self, text: &str) -> Result<Settings, SettingsError> {
        let mut settings = Settings::stock();
        for word in text.split_whitespace().filter(|w| *w != "stock") {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| SettingsError::Shape(word.to_owned()))?;
            self.effect(name, value)?;
            if settings.0.contains_key(name) {
                return Err(SettingsError::Contradiction(format!("{name} is set twice")));
            }
            settings = settings.with(name, value);
        }
        self.check_rules(&settings)?;
        Ok(settings)
    }

    fn check_rules(&self, settings: &Settings) -> Result<(), SettingsError> {
        for (dimension, value) in &settings.0 {
            let Some(d) = self.get(dimension) else {
                continue;
            };
            if let Some(v) = d.values.iter().find(|v| v.id == *value) {
                super::rules::check(settings, dimension, value, &v.requires, &v.conflicts)
                    .map_err(SettingsError::Contradiction)?;
            }
        }
        let reading = |name: &str| {
            let stock = self.get(name)?.number.as_ref()?.stock;
            let set = settings.0.get(name).and_then(|v| v.parse().ok());
            set.or(stock)
        };
        for d in self.dimensions() {
            let other = d.number.as_ref().and_then(|n| n.not_below.as_deref());
            if let Some(other) = other
                && let (Some(value), Some(floor)) = (reading(&d.id), reading(other))
                && value < floor
            {
                return Err(SettingsError::Contradiction(format!(
                    "{}={value} is below {other}={floor}",
                    d.id
                )));
            }
        }
        Ok(())
    }

    pub(super) fn effect(&self, name: &str, value: &str) -> Result<Effect, SettingsError> {
        let dimension = self.get(name).ok_or_else(|| SettingsError::UnknownName {
            name: name.to_owned(),
            known: self.names(),
        })?;
        let unknown = |known: String| SettingsError::UnknownValue {
            name: name.to_owned(),
            value: value.to_owned(),
            known,
        };
        if let Some(number) = &dimension.number {
            return value
                .parse()
                .ok()
                .filter(|&n| number.allows(n))
                .map(|n| filled(&number.effect, n))
                .ok_or_else(|| unknown(format!("{} to {}", number.min, number.max)));
        }
        let found = dimension.values.iter().find(|v| v.id == value);
        found.map(|v| v.effect.clone()).ok_or_else(|| {
            let ids: Vec<&str> = dimension.values.iter().map(|v| v.id.as_str()).collect();
            unknown(ids.join(", "))
        })
    }

    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.dimensions().iter().map(|d| d.id.as_str()).collect();
        names.join(", ")
    }
}

/// A template with its number.
fn filled(effect: &Effect, n: u64) -> Effect {
    let fill = |text: &String| text.replace(HOLE, &n.to_string());
    Effect {
        bench: effect.bench.iter().map(fill).collect(),
        server: effect.server.iter().map(fill).collect(),
        env: effect
            .env
            .iter()
            .map(|(k, v)| (k.clone(), fill(v)))
            .collect(),
        expect: effect
            .expect
            .iter()
            .map(|(k, v)| {
                let hole = v.as_str() == Some(HOLE);
                (k.clone(), if hole { Json::from(n) } else { v.clone() })
            })
            .collect(),
    }
}
