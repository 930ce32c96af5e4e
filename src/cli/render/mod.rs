//! Results as text for people. Everything here is pure: documents in, text out.

mod bandwidth;
pub mod comparison;
pub mod data;
pub mod doctor;
pub mod explain;
pub mod history;
pub mod lab;
pub mod models;
pub mod monitor;
pub mod placement;
pub mod plan;
pub mod refusals;
pub mod runtimes;
pub mod scan;
mod scan_gpu;
pub mod session;
pub mod table;
pub mod tune;
