//! The `flux` binary: everything is in the library, so that tests and the app share it.

use std::process::ExitCode;

fn main() -> ExitCode {
    flux::cli::main()
}
