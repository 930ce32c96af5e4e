//! Where each tensor of a model lives, what that needs and how fast it will be (paper section 5, design section 8).
//!
//! In the paper's order: [`layout`] is what the file says, [`assignment`] where it goes, [`bandwidth`] what the machine was
//! measured to do, [`speed`] the prediction, [`fit`] what benchmarks teach it, [`planner`] the candidates of the five
//! tiers, [`flags`] a placement written out for each tool.

pub mod assignment;
pub mod assumed;
pub mod bandwidth;
pub mod devices;
pub mod edit;
pub mod fit;
pub mod flags;
pub mod footprint;
pub mod layout;
pub mod learn;
pub mod memory;
pub mod planner;
pub mod pool;
pub mod speed;
pub mod words;
