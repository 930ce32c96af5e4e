//! `flux import`: a profile of another machine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::json;

use crate::cli::args::Import as Args;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::{Output, Style};
use crate::cli::render::table::{Align, Table};
use crate::domain::text::{clean, moment, settings_words};
use crate::engine::import::{Import, Imports, Kept, import, imports, undo};

use super::open::Place;

/// Bytes read at most: enough to see that it is none of ours.
const MOST: u64 = 64 << 20;

/// Reads a profile, says what it is and whether it holds here, and keeps it; or shows or undoes what was kept.
///
/// # Errors
/// The file cannot be read, is no profile, or says what Flux could not have chosen; there is no such import; the database
/// cannot be written.
pub fn run(args: &Args, place: &Place, output: &Output) -> CliResult {
    let Some(file) = &args.file else {
        return kept(args.undo, place, output);
    };
    let text = text(file)?;
    let import = import(&text, &place.look(output)?)?;
    output.print_either(&import, || said(&import))
}

fn kept(undone: Option<i64>, place: &Place, output: &Output) -> CliResult {
    let ports = place.look_back(output)?;
    if let Some(id) = undone {
        undo(id, &ports)?;
        let document = json!({ "schema": 1, "undone": id });
        return output.print_either(&document, || format!("Import {id} is forgotten\n"));
    }
    let imports = imports(&ports.probe.machine(), &ports.runtimes.list(), &ports)?;
    let document = Imports { schema: 1, imports };
    output.print_either(&document, || listed(&document.imports, output.style))
}

fn listed(imports: &[Kept], style: Style) -> String {
    if imports.is_empty() {
        return "Nothing was imported. `flux import FILE` takes over a profile of another machine.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("Import", Align::Right),
        ("Imported", Align::Left),
        ("Model", Align::Left),
        ("Goal", Align::Left),
        ("Settings", Align::Left),
        ("Measured", Align::Left),
    ]);
    for Kept { import, holds } in imports {
        table.row([
            import.id.to_string(),
            moment(import.imported_at),
            clean(&import.profile.model.name),
            import.profile.goal.to_string(),
            settings_words(&import.profile.settings),
            if *holds { "here" } else { "elsewhere" }.to_owned(),
        ]);
    }
    table.render(0, style)
}

fn text(file: &Path) -> CliResult<String> {
    let shown = clean(&file.display().to_string());
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(MOST).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(MOST).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(e) => Err(CliError::failed(format!("the profile cannot be read: {shown}")).cause(e)),
    }
}

fn said(import: &Import) -> String {
    let profile = &import.profile;
    let mut text = format!(
        "Imported: {}, {} goal, saved {}\n  {}\n",
        clean(&profile.model.name),
        profile.goal,
        moment(profile.created_at),
        clean(&profile.confirmed)
    );
    for setting in &import.stock {
        let _ = writeln!(
            text,
            "  {}={} (stock: {})",
            clean(&setting.setting),
            clean(&setting.value),
            clean(&setting.stock)
        );
    }
    if import.holds {
        text.push_str("It was measured on this machine and build: `flux run` applies it\n");
        return text;
    }
    let fields: Vec<String> = import.differs.iter().map(|c| clean(&c.field)).collect();
    let _ = writeln!(
        text,
        "It was measured elsewhere; different here: {}\n\
         `flux run -m MODEL --stale-ok` applies it all the same; `flux tune -m MODEL` tries it first and proves it here",
        fields.join(", ")
    );
    text
}
