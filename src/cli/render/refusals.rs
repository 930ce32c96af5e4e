//! What a search did not try, and why.

use serde::Deserialize;

use crate::cli::output::Style;
use crate::cli::text::clean;

use super::table::{Align, Table};

/// A dimension, or one value of it, that was not offered.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refusal {
    dimension: String,
    value: Option<String>,
    reason: String,
}

/// The section, or nothing.
pub fn section(refusals: &[Refusal], style: Style) -> String {
    if refusals.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("", Align::Left); 2]);
    for refusal in refusals {
        let what = match &refusal.value {
            Some(value) => format!("{}={value}", refusal.dimension),
            None => refusal.dimension.clone(),
        };
        table.row([clean(&what), clean(&refusal.reason)]);
    }
    format!("{}\n{}", style.heading("Not tried"), table.render(2, style))
}
