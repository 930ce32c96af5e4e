//! A session as one self-contained HTML file: the verdict first, the evidence under it, nothing loaded, no script.

mod figures;
mod page;
mod paths;
mod sections;
mod story;

use crate::engine::evidence::Evidence;

pub use paths::Paths;

/// The report of a session.
///
/// # Errors
/// The evidence cannot be written as JSON, by which paths are shortened: never from a store that could be read.
pub fn html(evidence: &Evidence, paths: &Paths) -> Result<String, serde_json::Error> {
    let evidence = paths.shown(evidence)?;
    let story = story::Story::of(&evidence);
    let title = sections::headline(&story);
    let body: String = [
        sections::verdict(&story),
        figures::confirmations(&story),
        figures::screening(&story),
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
