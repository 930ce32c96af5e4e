//! Staying with a child: its own sources over `crate::ports::sync`.

#[path = "../../src/runtime/process/output.rs"]
mod output;
#[path = "../../src/runtime/process/supervise.rs"]
mod supervise;

mod stopping;
