//! The words every layer shares. Serde, no I/O.

mod arm;
mod device;
mod energy;
mod failure;
mod model;
mod profile;
mod run;
mod runtime;
mod units;
mod verdict;

pub use arm::*;
pub use device::*;
pub use energy::*;
pub use failure::*;
pub use model::*;
pub use profile::*;
pub use run::*;
pub use runtime::*;
pub use units::*;
pub use verdict::*;
