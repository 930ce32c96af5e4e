//! A simulated llama-bench: a real process with scripted behaviour.
fn main() {}
