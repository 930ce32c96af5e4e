//! The pure core: no I/O, no clock, no randomness but a passed-in seed.

pub mod bench_record;
pub mod compare;
pub mod doctor;
pub mod environment;
pub mod fingerprint;
pub mod handover;
pub mod lab;
pub mod llama_config;
pub mod machine;
pub mod placement;
pub mod redact;
pub mod search;
pub mod server;
pub mod server_args;
pub mod settings;
pub mod stats;
pub mod telemetry;
pub mod text;
pub mod time_limit;
pub mod types;
pub mod windows_path;
