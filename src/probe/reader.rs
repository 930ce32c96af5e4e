//! This machine, read now.

use crate::domain::types::{Host, Machine};
use crate::ports::MachineProbe;

use super::system_root::SystemRoot;
use super::{host, sources, system_gpus, vulkan};

/// Reads this machine each time it is asked.
#[derive(Debug, Clone, Default)]
pub struct MachineReader {
    root: SystemRoot,
}

impl MachineReader {
    /// Reads the real system.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `/sys` and friends below `root`; Vulkan, CPU and RAM stay this machine's.
    pub fn with_root(root: SystemRoot) -> Self {
        Self { root }
    }
}

impl MachineProbe for MachineReader {
    fn machine(&self) -> Machine {
        let system_gpus = system_gpus::system_gpus(&self.root);
        Machine {
            schema: Machine::SCHEMA,
            vulkan: vulkan::report(),
            telemetry: sources::sources(&self.root, &system_gpus),
            system_gpus,
            host: self.host(),
            runtimes: Vec::new(),
            inherited_env: host::inherited_env(),
            simulated: false,
        }
    }

    fn host(&self) -> Host {
        host::host(&self.root)
    }
}
