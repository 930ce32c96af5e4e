//! llama.cpp builds and their processes: supervised children, llama-bench runs, what their logs and failures mean
//! (design section 4; paper section 3, "valid samples only").

pub mod catalog;
pub mod digest;
pub mod identify;
pub mod install;
pub mod process;
