//! The port to a runtime's own projection of memory.

use std::collections::BTreeMap;
use std::path::Path;

use super::{CancelToken, PortResult};
use crate::domain::types::{BufferUse, Runtime};

/// What a build is asked to project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryQuestion<'a> {
    /// The model, any of its parts.
    pub model: &'a Path,
    /// Flags of llama-server for placement and context, one element each.
    pub flags: &'a [String],
    /// Variables beside the runtime's own, e.g. the devices it may see.
    pub env: &'a BTreeMap<String, String>,
}

/// Asks a build itself what a placement takes, without loading weights.
pub trait MemoryOracle: Send + Sync {
    /// Weights, caches and compute buffers of each device and of `Host`, in whole MiB rounded down; `None` where the build
    /// has no such tool.
    ///
    /// # Errors
    /// The tool does not start, ends with an error, says nothing that can be read, takes too long or is cancelled.
    fn project(
        &self,
        runtime: &Runtime,
        question: &MemoryQuestion<'_>,
        cancel: &CancelToken,
    ) -> PortResult<Option<Vec<BufferUse>>>;
}
