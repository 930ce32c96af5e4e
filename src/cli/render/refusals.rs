//! What a search did not try, and why.

use crate::cli::output::Style;
use crate::domain::search::Refusal;
use crate::domain::text::{clean, refusal_words};

use super::table::{Align, Table};

/// The section, or nothing.
pub fn section(refusals: &[Refusal], style: Style) -> String {
    if refusals.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("", Align::Left); 2]);
    for refusal in refusals {
        table.row([refusal_words(refusal), clean(&refusal.reason)]);
    }
    format!("{}\n{}", style.heading("Not tried"), table.render(2, style))
}
