//! Where a job measures: one build on one machine with one model (paper sections 2.1 and 2.2).

use std::sync::Arc;

use crate::domain::doctor;
use crate::domain::fingerprint;
use crate::domain::machine;
use crate::domain::search::{Capabilities, SearchSpace, Tool};
use crate::domain::settings::VRAM_RESERVE;
use crate::domain::telemetry::SeriesId;
use crate::domain::types::{
    Bytes, DeviceKind, Fingerprint, Launch, Machine, ModelInfo, Runtime, Settings,
};

use super::Ports;
use super::message::JobError;
use super::settings;
use super::target::{Target, choose_target};

/// Where a job measures: one build on one machine with one model.
#[derive(Debug, Clone)]
pub struct Workplace {
    /// Machine, with the runtime used.
    pub machine: Machine,
    /// Fingerprint of machine and runtime.
    pub fingerprint: Fingerprint,
    /// Build.
    pub runtime: Runtime,
    /// Model.
    pub model: ModelInfo,
    /// Device.
    pub target: Target,
    /// What may be set.
    pub space: Arc<SearchSpace>,
}

impl Workplace {
    /// Reads the machine, then what [`Workplace::on`] does.
    ///
    /// # Errors
    /// As [`Workplace::on`].
    pub fn read(
        model: &std::path::Path,
        runtime: Option<&str>,
        device: Option<&str>,
        reserve: Option<Bytes>,
        ports: &Ports,
    ) -> Result<Self, JobError> {
        Self::on(
            ports.probe.machine(),
            model,
            runtime,
            device,
            reserve,
            ports,
        )
    }

    /// Reads runtime, model and device of a machine; `reserve` of its memory is left free, [`VRAM_RESERVE`] unless given.
    ///
    /// # Errors
    /// The model is not runnable, no runtime with llama-bench, or an unknown device; each says what to do.
    pub fn on(
        mut machine: Machine,
        model: &std::path::Path,
        runtime: Option<&str>,
        device: Option<&str>,
        reserve: Option<Bytes>,
        ports: &Ports,
    ) -> Result<Self, JobError> {
        let model = ports.models.inspect(model)?;
        let runtime = choose_runtime(runtime, ports)?;
        machine.runtimes = vec![runtime.clone()];
        let gpus = machine::gpus(&machine);
        let reserve = reserve.unwrap_or(VRAM_RESERVE);
        let target = choose_target(device, &runtime, &gpus, machine.simulated, reserve)?;
        can_measure(&runtime, &model)?;
        let fingerprint = fingerprint::fingerprint(&machine, Some(&runtime));
        Ok(Self {
            machine,
            fingerprint,
            runtime,
            model,
            target,
            space: ports.space.current(),
        })
    }

    /// Settings as arguments and environment of one tool, on the target.
    ///
    /// # Errors
    /// As [`settings::launch`].
    pub fn launch(&self, own: &Settings, tool: Tool, ports: &Ports) -> Result<Launch, JobError> {
        let own = self.own_launch(own, tool, ports)?;
        Ok(self.target.joined(own, tool))
    }

    /// The same without what chooses the target.
    ///
    /// # Errors
    /// As [`settings::launch`].
    pub fn own_launch(
        &self,
        own: &Settings,
        tool: Tool,
        ports: &Ports,
    ) -> Result<Launch, JobError> {
        let layout = || Ok(ports.models.layout(&self.model.path)?);
        settings::launch(own, &self.space, tool, &self.runtime, layout)
    }

    /// What the build is measured with: llama-bench, where it has one.
    pub fn tool(&self) -> Tool {
        match self.runtime.bench {
            Some(_) => Tool::Bench,
            None => Tool::Server,
        }
    }

    /// What the device and the build can do.
    pub fn capabilities(&self) -> Capabilities {
        let gpus = machine::gpus(&self.machine);
        let gpu = self.target.gpu(&self.runtime, &gpus);
        Capabilities {
            backend: self.target.backend,
            features: gpu
                .and_then(|g| g.preferred.as_ref())
                .map(|e| e.features.clone()),
            software_device: gpu.is_some_and(|g| g.kind == DeviceKind::Software),
            partial_offload: false,
            devices: self.target.count(&self.runtime),
            physical_cores: self.machine.host.physical_cores,
            logical_cores: self.machine.host.logical_cores,
            bench_flags: match self.tool() {
                Tool::Bench => self.runtime.bench_flags.clone(),
                Tool::Server => self.runtime.server_flags.clone(),
            },
            bench_defaults: self.runtime.bench_defaults.clone(),
            fixed_env: self.runtime.env.keys().cloned().collect(),
        }
    }

    /// Source of the readings of the device measured on; `None` is the processor.
    pub fn sensors(&self) -> Option<String> {
        let gpus = machine::gpus(&self.machine);
        self.target.sensors(&self.runtime, &gpus)
    }

    /// A profile needs a driver whose version is sure (case C25).
    ///
    /// # Errors
    /// The driver was updated without a restart.
    pub fn must_know_its_driver(&self) -> Result<(), JobError> {
        match doctor::driver_update(&self.machine) {
            Some(found) => Err(JobError::new("driver-update", found.title).hint(found.advice)),
            None => Ok(()),
        }
    }

    /// The energy goal needs a power sensor of the device.
    pub(super) fn must_tell_energy(&self, ports: &Ports) -> Result<(), JobError> {
        if self.target.is_shared(&self.runtime) {
            let told = "the energy goal needs the power of all the work, and several GPUs share it";
            return Err(JobError::new("no-power", told)
                .hint("name one with `--device`, or choose another goal"));
        }
        let device = self.sensors();
        let counts = |series: &SeriesId| series.tells_energy_of(device.as_deref());
        let mut sources = ports.telemetry.sources();
        let told = sources
            .iter_mut()
            .flat_map(|s| [s.sample(), s.at_boundary()].concat());
        if told.into_iter().any(|(series, _)| counts(&series)) {
            return Ok(());
        }
        let mut absent = sources.iter().flat_map(|s| s.absent());
        let why = absent
            .find(|a| counts(&a.series))
            .map_or_else(|| "no sensor of it is known".to_owned(), |a| a.reason);
        let what = if device.is_some() { "GPU" } else { "processor" };
        Err(JobError::new(
            "no-power",
            format!("the energy goal needs the power of the {what}: {why}"),
        )
        .hint("`flux monitor` shows what this machine's sensors tell; choose another goal"))
    }
}

/// A build without llama-bench is measured through its server, which answers nothing with a model without a tokenizer
/// (b11149 aborts at the first request).
///
/// # Errors
/// It is such a pair.
pub(super) fn can_measure(runtime: &Runtime, model: &ModelInfo) -> Result<(), JobError> {
    if runtime.bench.is_some() || model.tokenizer {
        return Ok(());
    }
    let told = format!(
        "the model has no tokenizer, so llama-server can answer nothing with it, and {} has no llama-bench",
        runtime.name
    );
    Err(JobError::new("no-tokenizer", told).hint("choose a build with llama-bench: --runtime"))
}

fn choose_runtime(wanted: Option<&str>, ports: &Ports) -> Result<Runtime, JobError> {
    let runtime = if let Some(name) = wanted {
        ports.runtimes.resolve(name)?
    } else {
        let known = ports.runtimes.list();
        let with_bench = known.iter().find(|r| r.bench.is_some());
        // Without llama-bench a build is measured through its server (design section 4).
        let usable = with_bench.or_else(|| known.iter().find(|r| r.server.is_some()));
        usable.cloned().ok_or_else(|| {
            JobError::new(
                "no-runtime",
                "no llama.cpp with llama-bench is known on this machine",
            )
            .hint("`flux runtime install`, or `flux runtime add DIR`")
        })?
    };
    if runtime.bench.is_none() && runtime.server.is_none() {
        let dir = runtime.dir.display();
        let headline = format!("there is neither llama-bench nor llama-server in {dir}");
        return Err(JobError::new("no-bench", headline).hint("choose another build with --runtime"));
    }
    Ok(runtime)
}
