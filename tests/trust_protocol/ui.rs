//! The app's workers: their own source over `crate::ports::sync`.

#[path = "../../src/ui/workers.rs"]
mod workers;

mod answering;
