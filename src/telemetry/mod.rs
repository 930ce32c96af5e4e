//! Sensors of this machine (design section 6). A further kind of GPU is a further [`TelemetrySource`] in [`Sensors`].

mod amdgpu;
pub mod apple;
mod counter;
mod files;
mod gpu;
mod gpu_metrics;
mod host;
mod intel;
#[cfg(any(windows, target_os = "macos", test))]
mod latest;
pub mod nvml;
mod processor;
mod rapl;
mod sensor;
pub mod windows;

use std::path::Path;
use std::sync::Arc;

use crate::domain::telemetry::ProcessorTime;
use crate::ports::{Clock, PortError, PortResult, Telemetry, TelemetrySource};
use crate::system_root::SystemRoot;

pub use amdgpu::AmdGpu;
pub use host::HostSource;
pub use intel::IntelGpu;
pub use nvml::NvmlSource;
pub use rapl::Rapl;

use files::Files;

/// Every sensor Flux can read here, or below the root of a captured machine.
pub struct Sensors {
    root: SystemRoot,
    clock: Arc<dyn Clock>,
}

impl Sensors {
    /// Those below `root`; the host's load, RAM and disks stay this machine's.
    pub fn new(root: SystemRoot, clock: Arc<dyn Clock>) -> Self {
        Self { root, clock }
    }

    /// NVIDIA's library, or what a captured machine's said.
    fn library(&self) -> nvml::Opener {
        if self.root.is_this_machine() {
            nvml::live()
        } else {
            nvml::replay(nvml::Recorded::load(&self.root.path("")))
        }
    }

    /// The sources that are files of the kernel.
    fn of_kernel(&self, files: &Files) -> Vec<Box<dyn TelemetrySource>> {
        let mut found: Vec<Box<dyn TelemetrySource>> = Vec::new();
        found.extend(AmdGpu::open(files, &self.clock).into_iter().map(boxed));
        found.extend(IntelGpu::open(files, &self.clock).into_iter().map(boxed));
        found.extend(Rapl::open(files, &self.clock).map(boxed));
        found
    }
}

impl Telemetry for Sensors {
    fn sources(&self) -> Vec<Box<dyn TelemetrySource>> {
        let files = Files::of(&self.root);
        let mut found = self.of_kernel(&files);
        found.extend(NvmlSource::open(&files, &self.clock, self.library()).map(boxed));
        if self.root.is_this_machine() {
            #[cfg(target_os = "macos")]
            found.extend(apple::AppleSource::open().map(boxed));
            #[cfg(windows)]
            found.extend(windows::WindowsSource::open().map(boxed));
        }
        found.extend(HostSource::open(Arc::clone(&self.clock)).map(boxed));
        found
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        let here = self.root.is_this_machine();
        here.then(|| processor::time(&self.root)).flatten()
    }

    fn capture(&self, dir: &Path) -> PortResult<()> {
        let files = Files::of(&self.root);
        self.of_kernel(&files);
        NvmlSource::open(&files, &self.clock, self.library());
        let answers = (self.library())().ok();
        let record = || answers.map_or(Ok(()), |a| nvml::Recorded::of(a.as_ref()).save(dir));
        files.copy_to(dir).and_then(|()| record()).map_err(|e| {
            PortError::caused(
                format!("the sensors cannot be exported to {}", dir.display()),
                &e,
            )
        })
    }
}

fn boxed<S: TelemetrySource + 'static>(source: S) -> Box<dyn TelemetrySource> {
    Box::new(source)
}
