//! The ports, with the flag of a cancel built anew.

pub use flux::ports::*;

#[path = "../../src/ports/cancel.rs"]
mod cancel;
pub mod sync;

pub use cancel::{CancelMode, CancelToken};
