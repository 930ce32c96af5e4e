//! Flux finds, on the owner's own machine, the llama.cpp settings that are really faster, and proves it.
//!
//! The paper's steps by name: [`probe`] scans, [`domain::fingerprint`] keys, [`domain::search`] screens and
//! confirms with [`domain::stats`], [`store`] persists, [`engine`] runs the jobs, [`cli`] is one reader of its events.

pub mod bandwidth;
pub mod chart;
pub mod cli;
pub mod config;
pub mod domain;
pub mod engine;
pub mod gguf;
pub mod lab;
mod owner;
pub mod ports;
pub mod probe;
pub mod report;
pub mod runtime;
pub mod store;
mod system_root;
pub mod telemetry;
#[cfg(feature = "gui")]
pub mod ui;
mod vulkan;
pub mod wiring;
