//! Machines that are told otherwise than they were read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flux::domain::doctor::Facts;
use flux::domain::types::{Host, Machine, Runtime};
use flux::ports::{MachineProbe, PortResult};
use flux::probe::FixtureProbe;

/// A machine that is told otherwise than it was read.
pub struct Altered<F> {
    pub probe: Arc<dyn MachineProbe>,
    pub alter: F,
}

/// An exported machine that says it is the real one.
pub fn as_if_real(name: &str) -> Arc<dyn MachineProbe> {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machines");
    Arc::new(Altered {
        probe: Arc::new(FixtureProbe::load(&machines.join(name)).unwrap()),
        alter: |machine: &mut Machine| machine.simulated = false,
    })
}

impl<F: Fn(&mut Machine) + Send + Sync> MachineProbe for Altered<F> {
    fn machine(&self) -> Machine {
        let mut machine = self.probe.machine();
        (self.alter)(&mut machine);
        machine
    }

    fn host(&self) -> Host {
        self.probe.host()
    }

    fn facts(&self, data_dir: &Path) -> Facts {
        self.probe.facts(data_dir)
    }

    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
        self.probe.export(machine, runtimes, dir)
    }
}
