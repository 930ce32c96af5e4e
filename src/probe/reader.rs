//! This machine, read now.

use std::path::{Path, PathBuf};

use crate::domain::doctor::Facts;
use crate::domain::types::{Host, Machine, Runtime, VulkanReport};
use crate::ports::{MachineProbe, PortResult};

use super::{facts, host, sources, system_gpus, vulkan};
use crate::system_root::SystemRoot;

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

    /// The machine, with what Vulkan said to somebody else.
    pub fn machine_with(&self, vulkan: VulkanReport) -> Machine {
        let system_gpus = system_gpus::system_gpus(&self.root);
        Machine {
            schema: Machine::SCHEMA,
            vulkan,
            telemetry: sources::sources(&self.root, &system_gpus),
            system_gpus,
            host: self.host(),
            runtimes: Vec::new(),
            inherited_env: host::inherited_env(),
            llama_configs: host::llama_configs(&self.root),
            simulated: false,
        }
    }
}

impl MachineProbe for MachineReader {
    fn machine(&self) -> Machine {
        self.machine_with(vulkan::report())
    }

    fn host(&self) -> Host {
        host::host(&self.root)
    }

    fn facts(&self, data_dir: &Path) -> Facts {
        facts::facts(&self.root, data_dir)
    }

    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
        super::export(machine, runtimes, dir)
    }
}
