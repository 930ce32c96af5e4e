//! `flux import`: a profile of another machine.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;

use crate::cli::args::Import as Args;
use crate::cli::error::{CliError, CliResult};
use crate::cli::output::Output;
use crate::domain::text::{clean, moment};
use crate::engine::import::{Import, import};

use super::open::Place;

/// Bytes read at most: enough to see that it is none of ours.
const MOST: u64 = 64 << 20;

/// Reads a profile, says what it is and whether it holds here, and keeps it.
///
/// # Errors
/// The file cannot be read, is no profile, or says what Flux could not have chosen; the database cannot be written.
pub fn run(args: &Args, place: &Place, output: &Output) -> CliResult {
    let text = text(args)?;
    let import = import(&text, &place.look(output)?)?;
    output.print_either(&import, || said(&import))
}

fn text(args: &Args) -> CliResult<String> {
    let shown = clean(&args.file.display().to_string());
    let mut text = String::new();
    let read = if args.file.as_os_str() == "-" {
        std::io::stdin().take(MOST).read_to_string(&mut text)
    } else {
        File::open(&args.file).and_then(|file| file.take(MOST).read_to_string(&mut text))
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
