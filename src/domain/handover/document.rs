//! A profile as a document for another Flux. It carries settings by name, never arguments or variables: the reader makes
//! those from its own search space, so that a document can say nothing that Flux could not have chosen itself.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::domain::placement::assignment::ContextParams;
use crate::domain::placement::words;
use crate::domain::search::SearchSpace;
use crate::domain::text::{clean, json};
use crate::domain::types::{Backend, Fingerprint, Goal, Settings, Timestamp};

/// What the document says it is.
pub const KIND: &str = "flux-profile";
/// Its format.
const SCHEMA: u32 = 1;
/// Bytes: a document is a few kB, and what is larger is none.
const MAX_BYTES: usize = 1 << 20;
/// Longest name of a model: what people write fits a line or two.
const MAX_NAME: usize = 256;
/// Characters of any other text: the longest Flux writes, a placement of 512 single layers, has about 2,000.
const MAX_TEXT: usize = 4096;
/// Fields of a fingerprint, a dozen for each GPU.
const MAX_FIELDS: usize = 1024;
/// Hex digits of a SHA-256.
const DIGEST_DIGITS: usize = 64;

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedProfile {
    /// Format.
    pub schema: u32,
    /// [`KIND`].
    pub kind: String,
    /// Version of the Flux that wrote it.
    pub flux_version: String,
    /// What it makes faster.
    pub goal: Goal,
    /// The settings.
    pub settings: Settings,
    /// What the confirmation found, in words.
    pub confirmed: String,
    /// When it was saved.
    pub created_at: Timestamp,
    /// The model it was measured on.
    pub model: SharedModel,
    /// The build it was measured with.
    pub build: Build,
    /// The machine and build it was measured on.
    pub fingerprint: Fingerprint,
}

/// A model, without where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedModel {
    /// Name.
    pub name: String,
    /// Digest: the model's identity.
    pub digest: String,
}

/// A build, without where it lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Build number.
    pub number: u64,
    /// Commit.
    pub commit: String,
    /// Digest: the build's identity.
    pub digest: String,
    /// Backends.
    pub backends: BTreeSet<Backend>,
}

/// Why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Larger than any profile.
    #[error("this is no profile: it has {0} bytes, a profile a few thousand")]
    Size(usize),
    /// A session's whole document.
    #[error("this is a session with all its samples, not a profile")]
    Session,
    /// No JSON, or of another shape.
    #[error("this is no profile of Flux: {0}")]
    Shape(String),
    /// Of a newer Flux.
    #[error("this profile is from a newer Flux (schema {0}, this one reads {SCHEMA})")]
    Newer(u64),
    /// A setting Flux could not have chosen.
    #[error("a setting of this profile is not one that Flux knows: {0}")]
    Setting(String),
}

impl ImportError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Session | Self::Size(_) | Self::Shape(_) => {
                "write one with `flux export ID --format profile`"
            }
            Self::Newer(_) => "update Flux",
            Self::Setting(_) => {
                "it may be from another version of Flux, or of another search space; nothing was imported"
            }
        }
    }
}

impl SharedProfile {
    /// The format this Flux writes and reads.
    pub const SCHEMA: u32 = SCHEMA;

    /// The document as it is written.
    pub fn to_json(&self) -> String {
        let text = json(self);
        // Only texts and numbers: nothing in it has no JSON.
        text.unwrap_or_default() + "\n"
    }
}

/// Reads a document; every setting and value must be one that `space`, or a placement, has.
///
/// # Errors
/// [`ImportError`].
pub fn read(text: &str, space: &SearchSpace) -> Result<SharedProfile, ImportError> {
    if text.len() > MAX_BYTES {
        let session = serde_json::from_str::<serde_json::Value>(text);
        return Err(match session {
            Ok(value) if is_session(&value) => ImportError::Session,
            _ => ImportError::Size(text.len()),
        });
    }
    let shape = |e: serde_json::Error| ImportError::Shape(clean(&e.to_string()));
    let value: serde_json::Value = serde_json::from_str(text).map_err(shape)?;
    if is_session(&value) {
        return Err(ImportError::Session);
    }
    if value["kind"] != KIND {
        return Err(ImportError::Shape(format!("its kind is not {KIND}")));
    }
    match value["schema"].as_u64() {
        Some(newer) if newer > u64::from(SCHEMA) => return Err(ImportError::Newer(newer)),
        Some(schema) if schema == u64::from(SCHEMA) => {}
        _ => {
            return Err(ImportError::Shape(
                "its schema is no number of one".to_owned(),
            ));
        }
    }
    let profile: SharedProfile = serde_json::from_value(value).map_err(shape)?;
    if !(1..=MAX_NAME).contains(&profile.model.name.chars().count()) {
        return Err(ImportError::Shape(format!(
            "its model's name has not 1 to {MAX_NAME} characters"
        )));
    }
    check_lengths(&profile)?;
    for digest in [
        &profile.model.digest,
        &profile.build.digest,
        &profile.fingerprint.hash,
    ] {
        if digest.len() != DIGEST_DIGITS || !digest.chars().all(|c| c.is_ascii_hexdigit()) {
            let shown: String = clean(digest).chars().take(DIGEST_DIGITS).collect();
            return Err(ImportError::Shape(format!("{shown} is no digest")));
        }
    }
    if profile.settings.is_stock() {
        return Err(ImportError::Shape("it has no settings".to_owned()));
    }
    check(&profile.settings, space).map_err(ImportError::Setting)?;
    Ok(profile)
}

fn check_lengths(profile: &SharedProfile) -> Result<(), ImportError> {
    let fields = &profile.fingerprint.fields;
    let pairs = fields
        .iter()
        .map(|(n, v)| (n, v))
        .chain(&profile.settings.0);
    let mut texts = pairs.flat_map(|(name, value)| [name, value]).chain([
        &profile.flux_version,
        &profile.confirmed,
        &profile.build.commit,
    ]);
    if fields.len() > MAX_FIELDS || texts.any(|text| text.chars().count() > MAX_TEXT) {
        return Err(ImportError::Shape(format!(
            "it has a text of more than {MAX_TEXT} characters, or more than {MAX_FIELDS} fields"
        )));
    }
    Ok(())
}

fn is_session(value: &serde_json::Value) -> bool {
    value.get("session").is_some() && value.get("runs").is_some()
}

/// The whitelist: settings of the space with values of theirs that go together, and placements in words.
fn check(settings: &Settings, space: &SearchSpace) -> Result<(), String> {
    let own = settings.without(words::SETTING);
    let said = if own.is_stock() {
        String::new()
    } else {
        own.to_string()
    };
    let read = space
        .parse_settings(&said)
        .map_err(|e| clean(&e.to_string()))?;
    if read != own {
        return Err(clean(&said));
    }
    let Some(placement) = settings.0.get(words::SETTING) else {
        return Ok(());
    };
    match words::fitting(placement) {
        Some(None) => Ok(()),
        Some(Some(margin)) if margin.parse::<u32>().is_ok() => Ok(()),
        Some(Some(margin)) => Err(format!("fit={}", clean(margin))),
        None => words::parse(placement, &ContextParams::default())
            .map(|_| ())
            .map_err(|e| clean(&e)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(in crate::domain::handover) fn shared() -> SharedProfile {
        SharedProfile {
            schema: 1,
            kind: KIND.to_owned(),
            flux_version: "0.1.0".to_owned(),
            goal: Goal::Generation,
            settings: Settings::stock()
                .with("graphics-queue", "on")
                .with("placement", "ngl=24 ub=512"),
            confirmed: "Graphics queue on: +68.3 %".to_owned(),
            created_at: Timestamp(1_000),
            model: SharedModel {
                name: "Tiny".to_owned(),
                digest: "a".repeat(64),
            },
            build: Build {
                number: 11149,
                commit: "unknown".to_owned(),
                digest: "b".repeat(64),
                backends: [Backend::Vulkan].into(),
            },
            fingerprint: Fingerprint {
                hash: "c".repeat(64),
                fields: vec![("gpu".to_owned(), "1002:6fdf".to_owned())],
            },
        }
    }

    #[test]
    fn a_document_reads_back_whole() {
        let written = shared().to_json();
        assert_eq!(read(&written, SearchSpace::shipped()), Ok(shared()));
        insta::assert_snapshot!("profile", written);
    }

    #[test]
    fn a_document_can_say_nothing_that_flux_could_not_have_chosen() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut value = json!(shared());
            change(&mut value);
            read(&value.to_string(), SearchSpace::shipped()).unwrap_err()
        };
        for (setting, value) in [
            ("graphics-queue", "on --api-key x"),
            ("graphics-queue", "off"),
            ("graphics-queue", ""),
            ("ubatch", "1024 threads=4"),
            ("ubatch", "999999999"),
            ("LD_PRELOAD", "/tmp/x.so"),
            ("placement", "ngl=24 --host 0.0.0.0"),
            ("placement", "fit=1024 --host"),
            ("placement", "ot=.*=CPU"),
            ("kv-cache", "q8_0"),
        ] {
            let error = of(&|v| v["settings"][setting] = json!(value));
            assert!(
                matches!(error, ImportError::Setting(_)),
                "{setting}={value}: {error}"
            );
            assert!(!error.to_string().contains('\n'));
        }
        for key in ["args", "env", "server"] {
            let error = of(&|v| v[key] = json!(["--host", "0.0.0.0"]));
            assert!(
                error
                    .to_string()
                    .contains(&format!("unknown field `{key}`")),
                "{error}"
            );
        }
        let error = of(&|v| v["schema"] = json!(2));
        assert_eq!(error, ImportError::Newer(2));
        let error = of(&|v| v["settings"] = json!({}));
        assert!(error.to_string().ends_with("it has no settings"), "{error}");
        let error = of(&|v| v["model"]["digest"] = json!("../../etc\u{1b}"));
        assert!(
            error.to_string().ends_with(r"../../etc\u{1b} is no digest"),
            "{error}"
        );
        for (text, why) in [
            ("", "EOF"),
            ("[1]", "kind"),
            (
                "{\"kind\": \"flux-profile\", \"schema\": 1}",
                "missing field",
            ),
        ] {
            let error = read(text, SearchSpace::shipped()).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let session = json!({"schema": 1, "session": {}, "runs": []}).to_string();
        let error = read(&session, SearchSpace::shipped()).unwrap_err();
        assert_eq!(error, ImportError::Session);
        assert!(error.hint().contains("--format profile"));
        let error = read(&" ".repeat(2 << 20), SearchSpace::shipped()).unwrap_err();
        assert!(matches!(error, ImportError::Size(_)));
    }
}
