//! Scans this machine, or replays an exported one (paper section 3.1, design section 3).
//!
//! Raw facts only: grouping and judging are in `domain::machine`. What cannot be read is a status, never an error.

mod cgroup;
mod export;
mod facts;
mod fixture;
mod gpu_users;
mod host;
mod reader;
mod sources;
mod system_gpus;
pub mod vulkan;

pub use crate::system_root::SystemRoot;
pub use export::export;
pub use fixture::FixtureProbe;
pub use reader::MachineReader;

/// The file of an exported machine.
pub const MACHINE_FILE: &str = "machine.json";
