//! The order a backend gives the nodes of its part of a graph (`graph_optimize`), and what it keeps alive for fusion.

use super::graph::{Graph, Id, Op};
use crate::domain::types::Backend;

/// Tensors that must outlive a node although nothing reads them any more.
#[derive(Debug)]
pub(super) struct Kept {
    pub until: Id,
    pub tensors: Vec<Id>,
}

/// Reorders a run of nodes as its backend does.
pub(super) fn optimize(_graph: &Graph, _run: &mut [Id], _kind: Backend) -> Vec<Kept> {
    Vec::new()
}
