//! `flux` without a command opens the desktop app.

use crate::cli::error::{CliError, CliResult};

use super::open::Place;

/// Opens the app and returns when its window is closed.
///
/// # Errors
/// No display to open it on; a data folder that cannot be opened.
#[cfg(feature = "gui")]
pub fn run(place: &Place) -> CliResult {
    use crate::ui::{StartError, start};

    let opened = place.app()?;
    start(&opened.ports, &opened.notices).map_err(|error| match error {
        StartError::NoDisplay(_) => CliError::failed(error.to_string()).hint(
            "`flux help` lists what works without one, `flux quickstart` does everything once",
        ),
        _ => CliError::failed(error.to_string()),
    })
}

/// Built without the app: says so.
///
/// # Errors
/// Always.
#[cfg(not(feature = "gui"))]
pub fn run(_: &Place) -> CliResult {
    Err(
        CliError::usage("the desktop app is not built into this binary; name a command")
            .hint("`flux quickstart` does everything once, `flux help` explains each command"),
    )
}
