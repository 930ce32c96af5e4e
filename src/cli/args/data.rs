//! The arguments of `flux data`.

use clap::{Args, Subcommand};

/// Days after which readings and printed output no longer explain anything that someone still asks about.
const DAYS: u32 = 90;
/// Days one may name: ten years, as for the readings' own setting.
const MOST_DAYS: i64 = 3_650;

/// `flux data`.
#[derive(Debug, Args)]
pub struct Data {
    /// What to do; without it, say what is kept
    #[command(subcommand)]
    pub action: Option<DataAction>,
}

/// `flux data …`.
#[derive(Debug, Subcommand)]
pub enum DataAction {
    /// Make the database smaller: erase what only explains, never a sample or a verdict; asks first
    Compact(Compact),
}

/// `flux data compact`.
#[derive(Debug, Args)]
pub struct Compact {
    /// Erase only what is older: sensors' readings, printed output, sessions deleted before
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(0..=MOST_DAYS))]
    pub older_than: u32,
    /// Say what would be erased; erase nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}
