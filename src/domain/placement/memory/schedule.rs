//! ggml's scheduler (`ggml_backend_sched_split_graph`): which backend computes each node, and what has to be copied
//! between them.

use super::allocate::Arena;
use super::graph::{Elem, Graph, Id, Op, Stored, Tensor};
use super::reorder;
use crate::domain::placement::assignment::Home;
use crate::domain::types::Backend as Kind;

/// What decides where a node runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backend {
    pub kind: Kind,
    pub arena: Arena,
    /// Largest tensor an operation may touch (`maxStorageBufferRange`); `None` without a limit.
    pub max_tensor: Option<u64>,
    /// Fewest tokens at once for which weights in RAM are copied over and used here (`GGML_OP_OFFLOAD_MIN_BATCH`);
    /// `None` where the backend never offers that.
    pub offload_min_batch: Option<u64>,
}

/// Where each tensor lives and in which order nodes are computed, copies among them.
#[derive(Debug)]
pub(super) struct Plan {
    /// Nodes, copies and dependencies, in order.
    pub order: Vec<Id>,
    /// Copies allocated before all else (pipeline parallelism).
    pub leafs: Vec<Id>,
    /// Backend of each tensor.
    pub backends: Vec<usize>,
}

/// Copies of each input that pipeline parallelism keeps (`GGML_SCHED_MAX_COPIES`).
pub(super) const PIPELINE_COPIES: usize = 4;

/// Position of a home among the backends: devices in order, the CPU last.
fn index(home: Home, backends: &[Backend]) -> usize {
    match home {
        Home::Device(i) => i,
        Home::Host => backends.len() - 1,
    }
}

struct Scheduler<'a> {
    graph: &'a mut Graph,
    /// Users of each tensor.
    uses: Vec<u32>,
    backends: &'a [Backend],
    ids: Vec<Option<usize>>,
}

/// Places a graph's nodes, adding the copies that go between backends.
pub(super) fn plan(graph: &mut Graph, backends: &[Backend], copies: usize) -> Plan {
    let ids = vec![None; graph.tensors.len()];
    let mut uses = vec![0; graph.tensors.len()];
    for source in graph
        .nodes
        .iter()
        .flat_map(|node| &graph.tensors[*node].src)
    {
        uses[*source] += 1;
    }
    let mut scheduler = Scheduler {
        graph,
        uses,
        backends,
        ids,
    };
    scheduler.assign();
    scheduler.spread();
    scheduler.settle();
    scheduler.split(copies)
}

impl Scheduler<'_> {
    fn cpu(&self) -> usize {
        self.backends.len() - 1
    }

    fn fits(&self, backend: usize, id: Id) -> bool {
        let Some(limit) = self.backends[backend].max_tensor else {
            return true;
        };
        let tensor = &self.graph.tensors[id];
        let bytes = |id: &Id| self.graph.tensors[*id].bytes;
        tensor.bytes <= limit && tensor.src.iter().all(|s| bytes(s) <= limit)
    }

    /// Nodes whose place is given: caches, inputs, and what multiplies weights.
    fn assign(&mut self) {
        for i in 0..self.graph.leafs.len() {
            let id = self.graph.leafs[i];
            self.ids[id] = self.given(id);
        }
        for i in 0..self.graph.nodes.len() {
            let id = self.graph.nodes[i];
            self.ids[id] = self.given(id);
        }
    }

    fn given(&self, id: Id) -> Option<usize> {
        let tensor = &self.graph.tensors[id];
        if let Some(home) = tensor.pinned {
            return Some(index(home, self.backends));
        }
        if let Some(stored) = self.graph.stored_at(id) {
            return Some(index(stored.home(), self.backends));
        }
        if tensor.input {
            return Some(self.cpu());
        }
        if matches!(tensor.op, Op::Rope | Op::FlashAttention) {
            return None;
        }
        let weight = |source: &Id| match self.graph.tensors[*source].stored {
            Some(Stored::Weight(home)) => Some(index(home, self.backends)),
            _ => None,
        };
        let home = tensor.src.iter().find_map(weight)?;
        if home == self.cpu() {
            let offers = |b: usize| {
                let enough = |min: u64| self.graph.batch_size(id) >= min;
                self.backends[b].offload_min_batch.is_some_and(enough) && self.fits(b, id)
            };
            return (0..home).find(|b| offers(*b)).or(Some(home));
        }
        self.fits(home, id).then_some(home)
    }

    /// Neighbours of placed nodes follow them: first those of devices, then of the CPU.
    fn spread(&mut self) {
        for devices_only in [true, false] {
            for backwards in [false, true] {
                self.spread_once(devices_only, backwards);
            }
        }
    }

    fn spread_once(&mut self, devices_only: bool, backwards: bool) {
        let mut current = None;
        let n = self.graph.nodes.len();
        for step in 0..n {
            let node = self.graph.nodes[if backwards { n - 1 - step } else { step }];
            if self.graph.tensors[node].op.is_view() {
                continue;
            }
            match (self.ids[node], current) {
                (Some(id), _) => current = Some(id).filter(|id| !devices_only || *id != self.cpu()),
                (None, Some(id)) if self.fits(id, node) => self.ids[node] = Some(id),
                (None, _) => {}
            }
        }
    }

    /// Nodes no neighbour could take go where most of their sources are; views and leafs follow.
    fn settle(&mut self) {
        for i in 0..self.graph.nodes.len() {
            let node = self.graph.nodes[i];
            if !self.graph.tensors[node].op.is_view() && self.ids[node].is_none() {
                self.ids[node] = Some(self.best_for(node));
            }
        }
        for i in 0..self.graph.nodes.len() {
            let node = self.graph.nodes[i];
            if self.ids[node].is_none() {
                self.ids[node] = self.ids[self.graph.root(node)].or(Some(self.cpu()));
            }
            for j in 0..self.graph.tensors[node].src.len() {
                let source = self.graph.tensors[node].src[j];
                if self.ids[source].is_none() {
                    let root = self.graph.root(source);
                    self.ids[source] = self.ids[root].or(self.ids[node]);
                }
            }
        }
    }

    fn best_for(&self, node: Id) -> usize {
        let mut best = (self.cpu(), None);
        for b in (0..self.backends.len()).filter(|b| self.fits(*b, node)) {
            let here = |s: &&Id| self.ids[self.graph.root(**s)].or(self.ids[**s]) == Some(b);
            let supported = self.graph.tensors[node].src.iter().filter(here).count();
            if best.1.is_none_or(|most| supported > most) {
                best = (b, Some(supported));
            }
        }
        best.0
    }

    fn backend(&self, id: Id) -> usize {
        self.ids[id].unwrap_or(self.cpu())
    }

    /// Cuts the nodes into runs on one backend and gives each run copies of what lies elsewhere.
    fn split(mut self, copies: usize) -> Plan {
        let nodes = self.graph.nodes.clone();
        let mut plan = Plan {
            order: Vec::with_capacity(nodes.len() * 2),
            leafs: Vec::new(),
            backends: Vec::new(),
        };
        let mut copied = vec![Vec::new(); self.backends.len()];
        for per_backend in &mut copied {
            per_backend.resize(self.graph.tensors.len(), None);
        }
        let mut seen_inputs = Vec::new();
        let computed = |s: &Self, id: &Id| !s.graph.tensors[*id].op.is_view();
        let first = nodes.iter().find(|id| computed(&self, id));
        let mut current = first.map_or(self.cpu(), |id| self.backend(*id));
        let mut run: Vec<Id> = Vec::new();
        let mut inputs: Vec<(Id, Id)> = Vec::new();
        for node in nodes {
            if self.graph.tensors[node].op.is_view() {
                run.push(node);
                continue;
            }
            let backend = self.backend(node);
            if backend != current || (!inputs.is_empty() && self.uploads_weight(node, current)) {
                self.close(&mut plan, current, &mut run, &mut inputs);
                current = backend;
            }
            for j in 0..self.graph.tensors[node].src.len() {
                let source = self.graph.tensors[node].src[j];
                if copies > 1 && self.graph.tensors[source].input && !seen_inputs.contains(&source)
                {
                    seen_inputs.push(source);
                    self.multiply(&mut plan, source, copies);
                }
                if self.backend(source) == current {
                    continue;
                }
                let copy = if let Some(copy) = copied[current][source] {
                    copy
                } else {
                    let copy = self.copy(source, current);
                    if copies > 1 {
                        plan.leafs.push(copy);
                        self.multiply(&mut plan, copy, copies);
                    }
                    copied[current][source] = Some(copy);
                    inputs.push((source, copy));
                    copy
                };
                self.graph.tensors[node].src[j] = copy;
            }
            run.push(node);
        }
        self.close(&mut plan, current, &mut run, &mut inputs);
        let cpu = self.cpu();
        plan.backends = self.ids.iter().map(|id| id.unwrap_or(cpu)).collect();
        plan
    }

    /// Does this node need a weight from another backend? A new run lets the last one's copy be overwritten.
    fn uploads_weight(&self, node: Id, current: usize) -> bool {
        let elsewhere = |s: &Id| {
            let weight = matches!(self.graph.tensors[*s].stored, Some(Stored::Weight(_)));
            weight && self.backend(*s) != current
        };
        self.graph.tensors[node].src.iter().any(elsewhere)
    }

    fn copy(&mut self, source: Id, backend: usize) -> Id {
        let original = &self.graph.tensors[source];
        let copy = Tensor {
            op: Op::None,
            src: Vec::new(),
            root: None,
            stored: None,
            pinned: None,
            input: false,
            output: false,
            ..original.clone()
        };
        let id = self.graph.push(copy);
        self.ids.push(Some(backend));
        id
    }

    /// Pipeline parallelism keeps every input several times, none of them ever overwritten.
    fn multiply(&mut self, plan: &mut Plan, id: Id, copies: usize) {
        let backend = self.backend(id);
        self.graph.tensors[id].input = true;
        self.graph.tensors[id].output = true;
        for _ in 1..copies {
            let twin = self.copy(id, backend);
            self.graph.tensors[twin].input = true;
            self.graph.tensors[twin].output = true;
            plan.leafs.push(twin);
        }
    }

    /// Ends a run: its inputs are allocated first, each kept until it is copied.
    fn close(
        &mut self,
        plan: &mut Plan,
        backend: usize,
        run: &mut Vec<Id>,
        inputs: &mut Vec<(Id, Id)>,
    ) {
        for (source, copy) in inputs.drain(..) {
            let root = self.graph.root(source);
            let dependency = Tensor {
                op: Op::None,
                src: vec![source],
                root: Some(root),
                elem: Elem::Stored,
                input: false,
                output: false,
                ..self.graph.tensors[source].clone()
            };
            let id = self.graph.push(dependency);
            self.ids.push(self.ids[source]);
            plan.order.extend([id, copy]);
        }
        let kept = reorder::optimize(self.graph, run, self.backends[backend].kind, &self.uses);
        for node in run.drain(..) {
            plan.order.push(node);
            if let Some(tensors) = kept.iter().find(|k| k.until == node) {
                let dependency = self.keep(tensors);
                plan.order.push(dependency);
            }
        }
    }

    fn keep(&mut self, kept: &reorder::Kept) -> Id {
        let first = kept.tensors[0];
        let dependency = Tensor {
            op: Op::None,
            src: kept.tensors.clone(),
            root: Some(self.graph.root(first)),
            input: false,
            output: false,
            ..self.graph.tensors[first].clone()
        };
        let id = self.graph.push(dependency);
        self.ids.push(self.ids[first]);
        id
    }
}
