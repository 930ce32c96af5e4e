//! The kernel lab (paper sections 4.2 and 4.3, design section 9): kernels of many layouts against the card's memory, and
//! dispatches on each of its queue families. Every result is checked against the processor's; a card that fails is a result.

mod buffers;
mod data;
mod dispatch;
mod kernels;
mod shaders;

use std::rc::Rc;

use crate::domain::lab::{Card, Fault, FaultKind, LabEvent};
use crate::domain::types::Bytes;
use crate::ports::{CancelToken, Lab, LabRequest, PortError, PortResult};
use crate::vulkan::{
    Family, Gpu, GpuError, Kind, OpenError, Physical, Queue, QuietStdout, Vulkan, cards,
};

/// Share of the free device memory that is used at most: the desktop, and whoever else draws, keep the rest.
const FREE_SHARE: u64 = 2;

/// Measures in this process: Mesa brings LLVM into it, and a driver that crashes takes it along.
#[derive(Debug, Clone, Copy, Default)]
pub struct InProcess;

impl Lab for InProcess {
    fn measure(
        &self,
        request: &LabRequest,
        cancel: &CancelToken,
        tell: &mut dyn FnMut(LabEvent),
    ) -> PortResult<()> {
        let _quiet = QuietStdout::begin();
        let vulkan = Vulkan::open().map(Rc::new).map_err(|error| {
            let (OpenError::NoLoader(why) | OpenError::NoDriver(why)) = error;
            PortError::new(format!(
                "no GPU can be measured, Vulkan is not there: {why}"
            ))
        })?;
        let found =
            cards(&vulkan).map_err(|e| PortError::new(format!("no GPU can be measured: {e}")))?;
        let physical = Rc::new(choose(found, request.device.as_deref())?);
        if let Err(error) = work(&vulkan, &physical, request, cancel, tell) {
            tell(LabEvent::Fault(fault(&error)));
        }
        Ok(())
    }
}

/// The card asked for.
fn choose(found: Vec<Physical>, wanted: Option<&str>) -> PortResult<Physical> {
    let names: Vec<String> = found.iter().map(|p| p.name.clone()).collect();
    let at = match wanted {
        None => {
            let first = |is: fn(&Physical) -> bool| found.iter().position(is);
            first(|p| p.is_discrete).or_else(|| first(|p| !p.is_software))
        }
        Some(wanted) => place_of(&names, wanted),
    };
    let known = if names.is_empty() {
        "Vulkan lists none".to_owned()
    } else {
        format!("Vulkan lists {}", names.join(", "))
    };
    at.and_then(|at| found.into_iter().nth(at))
        .ok_or_else(|| match wanted {
            Some(wanted) => PortError::new(format!("no card is called {wanted}; {known}")),
            None => PortError::new(format!("there is no GPU to measure; {known}"))
                .hint("name a software renderer with --device to measure it all the same"),
        })
}

/// Which of the cards is meant: a place in the list, or a part of a name; a number only as a whole word of it, as 4090.
fn place_of(names: &[String], wanted: &str) -> Option<usize> {
    let wanted = wanted.trim().to_lowercase();
    let mut names = names.iter().map(|name| name.to_lowercase());
    match wanted.parse::<usize>() {
        Ok(number) if number < names.len() => Some(number),
        Ok(_) => names.position(|n| n.split(|c: char| !c.is_alphanumeric()).any(|w| w == wanted)),
        Err(_) if wanted.is_empty() => None,
        Err(_) => names.position(|name| name.contains(&wanted)),
    }
}

fn work(
    vulkan: &Rc<Vulkan>,
    physical: &Rc<Physical>,
    request: &LabRequest,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(LabEvent),
) -> Result<(), GpuError> {
    let families: Vec<u32> = physical.families.iter().map(|f| f.index).collect();
    let free = physical.free(Kind::Device);
    let card = card(physical, free);
    if card.software {
        tell(LabEvent::Notice(format!(
            "{} is a software renderer: its memory is RAM, its kernels run on the processor",
            card.name
        )));
    }
    tell(LabEvent::Card(card));
    let gpu = Gpu::open(vulkan, Rc::clone(physical), &families)?;
    on_gpu(&gpu, request, cancel, tell)
}

fn on_gpu(
    gpu: &Gpu,
    request: &LabRequest,
    cancel: &CancelToken,
    tell: &mut dyn FnMut(LabEvent),
) -> Result<(), GpuError> {
    let steps = kernels::STEPS + dispatch::STEPS;
    let mut queue = Queue::new(gpu, &gpu.physical.families[0])?;
    if !queue.has_timestamps() {
        tell(LabEvent::Notice(
            "the card keeps no time of its own: bandwidths include handing over the work"
                .to_owned(),
        ));
    }
    kernels::measure(gpu, &mut queue, request, steps, cancel, tell)?;
    drop(queue);
    if cancel.is_cancelled() {
        return Ok(());
    }
    dispatch::measure(gpu, request.quick, steps, cancel, tell)
}

fn card(physical: &Physical, free: u64) -> Card {
    Card {
        name: physical.name.clone(),
        software: physical.is_software,
        subgroup_size: physical.subgroup_size,
        f16: physical.features.f16,
        subgroup_sums: physical.features.subgroup_sums,
        free: Bytes(free),
        used: Bytes(free / FREE_SHARE),
        // Vulkan does not tell clocks.
        peak: None,
        timestamp_period_ns: f64::from(physical.timestamp_period),
        families: physical.families.iter().map(family).collect(),
    }
}

fn family(of: &Family) -> crate::domain::lab::Family {
    crate::domain::lab::Family {
        index: of.index,
        graphics: of.graphics,
        timestamp_bits: of.timestamp_bits,
    }
}

/// A failure as a result.
fn fault(error: &GpuError) -> Fault {
    let kind = match error {
        GpuError::Lost(_) => FaultKind::DeviceLost,
        GpuError::OutOfDeviceMemory(_) | GpuError::OutOfHostMemory(_) => FaultKind::OutOfMemory,
        GpuError::Timeout(_) => FaultKind::Timeout,
        GpuError::Missing(_) | GpuError::Shader(_) | GpuError::Call(..) => FaultKind::Other,
    };
    Fault {
        kind,
        detail: error.to_string(),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
