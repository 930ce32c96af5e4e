//! Which settings go together: quantised V cache only with flash attention, batch at least the micro-batch.

use std::collections::BTreeMap;

use crate::domain::types::Settings;

/// Checks one setting's rules against the settings it is part of; the error says which one is broken.
pub(super) fn check(
    settings: &Settings,
    dimension: &str,
    value: &str,
    requires: &BTreeMap<String, Vec<String>>,
    conflicts: &BTreeMap<String, Vec<String>>,
) -> Result<(), String> {
    for (other, allowed) in requires {
        if !settings.0.get(other).is_some_and(|v| allowed.contains(v)) {
            return Err(format!(
                "{dimension}={value} needs {other}={}",
                allowed.join(" or ")
            ));
        }
    }
    for (other, refused) in conflicts {
        if let Some(v) = settings.0.get(other).filter(|v| refused.contains(v)) {
            return Err(format!("{dimension}={value} does not go with {other}={v}"));
        }
    }
    Ok(())
}
