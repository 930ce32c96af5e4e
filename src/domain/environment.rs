//! Which variables change llama.cpp: shown by the scan, removed from every child (design section 4; cases C10, C21).

/// Prefixes of the variables llama.cpp and its backends read.
const SWITCH_PREFIXES: [&str; 2] = ["GGML_", "LLAMA_"];

/// Is this a variable llama.cpp reads? Windows compares names without case.
pub fn is_switch(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SWITCH_PREFIXES.iter().any(|p| name.starts_with(p))
}
