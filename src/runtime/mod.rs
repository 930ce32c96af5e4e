//! llama.cpp builds and their processes: known and installed builds, supervised children, llama-bench runs, live
//! servers, what their logs and failures mean (design section 4; paper section 3, "valid samples only").

pub mod bench;
pub mod catalog;
mod config;
pub mod digest;
pub mod failure;
pub mod identify;
pub mod install;
pub mod log;
pub mod process;
pub mod server;
