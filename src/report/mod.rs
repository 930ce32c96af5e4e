//! What a session came to, for readers: its story, figures and findings, which the app draws, and the same as one
//! self-contained HTML file: the verdict first, the evidence under it, nothing loaded, no script.

mod charts;
mod csv;
mod export;
pub mod figures;
mod file;
pub mod findings;
mod handover;
pub mod lab;
mod page;
mod paths;
mod picture;
mod place;
pub mod placements;
mod sections;
mod story;

use crate::engine::evidence::Evidence;

pub use export::{Format, document, export};
pub use file::{refused, write};
pub use paths::Paths;
pub use place::{Rows, limits, place};
pub use story::{Outcome, Story};

/// The report of a session.
///
/// # Errors
/// The evidence cannot be written as JSON, by which paths are shortened: never from a store that could be read.
pub fn html(evidence: &Evidence, paths: &Paths) -> Result<String, serde_json::Error> {
    let evidence = paths.shown(evidence)?;
    let story = Story::of(&evidence);
    let title = story.headline();
    let body: String = [
        sections::verdict(&story),
        charts::confirmations(&story),
        charts::screening(&story),
        charts::lab(&story),
        sections::placements(&story),
        sections::clients(&story),
        sections::speculation(&story),
        sections::settings(&story),
        sections::not_saved(&story),
        sections::notices(&evidence),
        sections::place(&evidence),
        sections::commands(&story),
        sections::runs(&evidence),
        sections::method(&story),
    ]
    .concat();
    Ok(page::document(&title, &body))
}
