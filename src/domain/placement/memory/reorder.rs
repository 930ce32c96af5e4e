//! The order a backend gives the nodes of its part of a graph (`graph_optimize`), and what it keeps alive for fusion.
//!
//! Vulkan pulls independent nodes together and keeps known patterns whole (`ggml_vk_graph_optimize`); CUDA keeps the order,
//! and what its fused mixture kernels read (`ggml_backend_cuda_graph_optimize`).

use super::graph::{Graph, Id, Op, Tensor};
use crate::domain::types::Backend;

/// Tensors that must outlive a node although nothing reads them any more.
#[derive(Debug)]
pub(super) struct Kept {
    pub until: Id,
    pub tensors: Vec<Id>,
}

/// Nodes Vulkan looks ahead for independent ones.
const AHEAD: usize = 20;
/// Nodes it looks ahead for the rest of a pattern.
const PATTERN_AHEAD: usize = 15;

/// Expert choice with softmax first and normalised weights.
const SOFTMAX_NORMED: &[Op] = &[
    Op::SoftMax,
    Op::Reshape,
    Op::ArgSort,
    Op::View,
    Op::GetRows,
    Op::Reshape,
    Op::SumRows,
    Op::Clamp,
    Op::Div,
    Op::Reshape,
];
/// Expert choice with softmax first.
const SOFTMAX_PLAIN: &[Op] = SOFTMAX_NORMED.split_at(5).0;
/// Expert choice with sigmoid and a bias, and normalised weights.
const SIGMOID_NORMED: &[Op] = &[
    Op::Unary,
    Op::Reshape,
    Op::Add,
    Op::ArgSort,
    Op::View,
    Op::GetRows,
    Op::Reshape,
    Op::SumRows,
    Op::Clamp,
    Op::Div,
    Op::Reshape,
];
/// Expert choice with sigmoid and a bias.
const SIGMOID_PLAIN: &[Op] = SIGMOID_NORMED.split_at(6).0;
/// Expert choice with softmax last.
const SOFTMAX_LAST: &[Op] = &[
    Op::ArgSort,
    Op::View,
    Op::GetRows,
    Op::Reshape,
    Op::SoftMax,
    Op::Reshape,
];
/// What Vulkan never takes apart.
const CHOICES: [&[Op]; 4] = [SOFTMAX_NORMED, SIGMOID_NORMED, SOFTMAX_PLAIN, SOFTMAX_LAST];
/// What CUDA computes in one kernel.
const CUDA_CHOICES: [&[Op]; 4] = [SOFTMAX_NORMED, SIGMOID_NORMED, SOFTMAX_PLAIN, SIGMOID_PLAIN];

/// Other patterns Vulkan never takes apart.
const PATTERNS: [&[Op]; 5] = [
    &[Op::RmsNorm, Op::Mul, Op::Add, Op::Mul],
    &[Op::RmsNorm, Op::Mul, Op::Add],
    &[Op::RmsNorm, Op::Mul, Op::Rope, Op::View, Op::SetRows],
    &[Op::RmsNorm, Op::View, Op::SetRows],
    &[Op::Rope, Op::View, Op::SetRows],
];

/// Pairs of which the second may follow the first at once although it needs it.
const FUSED_NEIGHBOURS: [(Op, Op); 5] = [
    (Op::MulMat, Op::Add),
    (Op::MulMatId, Op::AddId),
    (Op::MulMatId, Op::Mul),
    (Op::Add, Op::Add),
    (Op::Conv, Op::Unary),
];

/// Reorders a run of nodes as its backend does; `uses` counts each tensor's users in the whole graph.
pub(super) fn optimize(graph: &Graph, run: &mut Vec<Id>, kind: Backend, uses: &[u32]) -> Vec<Kept> {
    match kind {
        Backend::Vulkan => {
            let used = vec![false; run.len()];
            let mut vulkan = Vulkan {
                graph,
                uses,
                used,
                run: run.as_slice(),
                order: Vec::with_capacity(run.len()),
                kept: Vec::new(),
                first: 0,
            };
            vulkan.reorder();
            let (order, kept) = (vulkan.order, vulkan.kept);
            *run = order;
            kept
        }
        Backend::Cuda | Backend::Hip => cuda(graph, run),
        _ => Vec::new(),
    }
}

/// Most experts a token may use for CUDA to weight and add them in one kernel (`MOE_WEIGHTED_REDUCTION_MAX_EXPERTS`).
const FUSED_EXPERTS: u64 = 15;
/// Numbers of experts that CUDA's choice in one kernel is built for, beside the powers of two up to 512
/// (`ggml_cuda_should_use_topk_moe`).
const CHOSEN_AMONG: [u64; 2] = [288, 576];

/// What CUDA's fused mixture kernels touch, until the kernel is done: weighting and adding of experts, and their choice.
fn cuda(graph: &Graph, run: &[Id]) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut i = 0;
    while i < run.len() {
        if let Some(last) = weighted_sum(graph, run, i) {
            kept.push(Kept {
                until: run[last],
                tensors: graph.tensors[run[i]].src.clone(),
            });
            i = last;
        } else if let Some(end) = choice(graph, run, i) {
            // llama.cpp keeps all of it until the node after the last one.
            if let Some(until) = run.get(end).copied() {
                let tensors = touched(graph, &run[i..end]);
                kept.push(Kept { until, tensors });
            }
            i = end - 1;
        }
        i += 1;
    }
    kept
}

/// Position of the last sum of a weighting and adding of experts that begins at `i`.
fn weighted_sum(graph: &Graph, run: &[Id], i: usize) -> Option<usize> {
    let tensor = &graph.tensors[run[i]];
    let [_, used, tokens, _] = tensor.ne;
    let weights = graph.ne(*tensor.src.get(1)?);
    let weighs = tensor.op == Op::Mul && weights == [1, used, tokens, 1];
    let last = i + 2 * used as usize - 1;
    let added = graph.tensors[*run.get(last)?].op == Op::Add;
    (weighs && added && (2..=FUSED_EXPERTS).contains(&used)).then_some(last)
}

/// Position after a choice of experts that begins at `i`, softmax or sigmoid first.
fn choice(graph: &Graph, run: &[Id], i: usize) -> Option<usize> {
    let op = |j: usize| run.get(j).map(|id| graph.tensors[*id].op);
    let [count, ..] = graph.ne(run[i]);
    let built = count.is_power_of_two() && count <= 512 || CHOSEN_AMONG.contains(&count);
    let fits = |pattern: &&[Op]| (0..pattern.len()).all(|j| op(i + j) == Some(pattern[j]));
    let pattern = CUDA_CHOICES.iter().copied().find(fits).filter(|_| built)?;
    let end = i + pattern.len();
    Some(end + usize::from(op(end) == Some(Op::Scale)))
}

/// Nodes and their sources, each once.
fn touched(graph: &Graph, nodes: &[Id]) -> Vec<Id> {
    let mut all = Vec::new();
    for node in nodes {
        for id in std::iter::once(node).chain(&graph.tensors[*node].src) {
            if !all.contains(id) {
                all.push(*id);
            }
        }
    }
    all
}

struct Vulkan<'a> {
    graph: &'a Graph,
    uses: &'a [u32],
    run: &'a [Id],
    used: Vec<bool>,
    order: Vec<Id>,
    kept: Vec<Kept>,
    first: usize,
}

impl<'a> Vulkan<'a> {
    fn node(&self, i: usize) -> &'a Tensor {
        &self.graph.tensors[self.run[i]]
    }

    fn op(&self, i: usize) -> Op {
        self.node(i).op
    }

    fn matches(&self, pattern: &[Op], start: usize) -> bool {
        let fits = start + pattern.len() <= self.run.len();
        fits && (0..pattern.len())
            .all(|j| self.op(start + j) == pattern[j] && !self.used[start + j])
    }

    fn starts_pattern(&self, i: usize) -> bool {
        let mut all = CHOICES.iter().chain(&PATTERNS);
        all.any(|pattern| self.matches(pattern, i))
    }

    /// Does `dst` need what `src` computes, or overwrite what it reads?
    fn needs(&self, dst: usize, src: usize) -> bool {
        let (d, s) = (self.node(dst), self.node(src));
        let (dst, src) = (self.run[dst], self.run[src]);
        let base = |id: Id| self.graph.root(id);
        if base(dst) == base(src) || d.src.contains(&src) {
            return true;
        }
        if d.op.is_view() || s.op.is_view() {
            return false;
        }
        d.src.iter().any(|x| base(*x) == base(src)) || s.src.iter().any(|x| base(*x) == base(dst))
    }

    fn reorder(&mut self) {
        while self.first < self.run.len() {
            if !self.keep_whole() {
                let set = self.independent();
                for i in &set {
                    self.order.push(self.run[*i]);
                    self.used[*i] = true;
                }
            }
            while self.first < self.run.len() && self.used[self.first] {
                self.first += 1;
            }
        }
    }

    /// Takes a pattern that starts at the first node left, whole.
    fn keep_whole(&mut self) -> bool {
        let first = self.first;
        if let Some(pattern) = CHOICES.iter().find(|p| self.matches(p, first)) {
            self.keep_sources(pattern.len());
            self.take(pattern.len());
            return true;
        }
        if let Some(pattern) = PATTERNS.iter().find(|p| self.matches(p, first)) {
            self.take(pattern.len());
            return true;
        }
        false
    }

    fn take(&mut self, n: usize) {
        for i in self.first..self.first + n {
            self.order.push(self.run[i]);
            self.used[i] = true;
        }
    }

    /// A fused choice of experts reads its inputs until its last node (and the scale after it).
    fn keep_sources(&mut self, n: usize) {
        let mut last = self.first + n - 1;
        if last + 1 < self.run.len() && self.op(last + 1) == Op::Scale {
            last += 1;
        }
        let inside = &self.run[self.first..self.first + n];
        let mut tensors: Vec<Id> = Vec::new();
        for source in inside.iter().flat_map(|id| &self.graph.tensors[*id].src) {
            if !inside.contains(source) && !tensors.contains(source) {
                tensors.push(*source);
            }
        }
        self.kept.push(Kept {
            until: self.run[last],
            tensors,
        });
    }

    /// The first node left, those soon after it that need none of the nodes between, and views of what is done.
    fn independent(&mut self) -> Vec<usize> {
        let first = self.first;
        let end = (first + AHEAD).min(self.run.len());
        let mut set = vec![first];
        for j in first + 1..end {
            let skip = self.used[j] || self.op(j).is_view() || self.starts_pattern(j);
            if skip || !self.ready(j, &set) {
                continue;
            }
            set.push(j);
            self.pull(j, &mut set);
        }
        if set.last().is_some_and(|i| self.op(*i) != Op::Add) {
            for j in first + 1..end {
                if self.used[j] || !self.op(j).is_view() {
                    continue;
                }
                let waits = |c: usize| !self.used[c] && self.needs(j, c) && !set.contains(&c);
                if !(first..j).any(waits) {
                    set.push(j);
                }
            }
        }
        set
    }

    fn ready(&self, j: usize, set: &[usize]) -> bool {
        let last = set.last().copied();
        let blocks = |c: usize| {
            if self.used[c] || !self.needs(j, c) {
                return false;
            }
            let pair = (self.op(c), self.op(j));
            let scheduled = || (c + 1..j).all(|v| self.used[v] || self.op(v).is_view());
            let scales = matches!(pair, (Op::RmsNorm | Op::Unary, Op::Mul)) && scheduled();
            let fused = j == c + 1 && FUSED_NEIGHBOURS.contains(&pair);
            !(last == Some(c) && (scales || fused))
        };
        !(self.first..j).any(blocks)
    }

    /// Takes the rest of a pattern that node `j` belongs to.
    fn pull(&mut self, j: usize, set: &mut Vec<usize>) {
        let before = self.op(j - 1);
        let mut turned = j;
        if self.op(j) == Op::Mul
            && before == Op::RmsNorm
            && let Some(k) = self.find(j, |v, k| {
                v.op(k) == Op::Rope && v.first_source(k, j) && v.inputs_only(k)
            })
        {
            turned = k;
            self.mark(k, set);
        }
        if matches!(self.op(turned), Op::Rope | Op::RmsNorm) {
            self.pull_store(turned, set);
        }
        let follower = match (before, self.op(j)) {
            (Op::MulMatId, Op::AddId) => Some(Op::Mul),
            (Op::MulMat, Op::Add) => Some(Op::Add),
            _ => None,
        };
        if let Some(op) = follower
            && let Some(k) = self.find(j, |v, k| {
                v.op(k) == op && v.first_source(k, j) && v.other_done(k, 1)
            })
        {
            self.mark(k, set);
        }
        if self.op(j) == Op::Unary {
            let multiplies = |v: &Self, k: usize| {
                let at = v.node(k).src.iter().position(|s| *s == v.run[j]);
                v.op(k) == Op::Mul && at.is_some_and(|at| v.other_done(k, 1 - at.min(1)))
            };
            if let Some(k) = self.find(j, multiplies) {
                self.mark(k, set);
            }
        }
    }

    fn find(&self, j: usize, wanted: impl Fn(&Self, usize) -> bool) -> Option<usize> {
        let end = (j + PATTERN_AHEAD).min(self.run.len());
        (j + 1..end).find(|k| wanted(self, *k))
    }

    fn mark(&mut self, k: usize, set: &mut Vec<usize>) {
        set.push(k);
        self.used[k] = true;
    }

    fn first_source(&self, k: usize, j: usize) -> bool {
        self.node(k).src.first() == Some(&self.run[j])
    }

    fn inputs_only(&self, k: usize) -> bool {
        let given = |s: &Id| self.graph.tensors[*s].op == Op::None;
        self.node(k).src[1..].iter().all(given)
    }

    /// Is this source a weight, or computed already?
    fn other_done(&self, k: usize, at: usize) -> bool {
        let done = |s: &Id| self.graph.tensors[*s].op == Op::None || self.order.contains(s);
        self.node(k).src.get(at).is_some_and(done)
    }

    /// Pulls the write to the cache behind the rotation whose result it stores.
    fn pull_store(&mut self, turned: usize, set: &mut Vec<usize>) {
        let view =
            |v: &Self, k: usize| !v.used[k] && v.op(k) == Op::View && v.first_source(k, turned);
        let Some(view) = self.find(turned, view) else {
            return;
        };
        let end = (turned + PATTERN_AHEAD).min(self.run.len());
        let stores =
            |k: &usize| !self.used[*k] && self.op(*k) == Op::SetRows && self.first_source(*k, view);
        let Some(store) = (view + 1..end).find(stores) else {
            return;
        };
        let alone = self.uses[self.run[turned]] == 1 && self.uses[self.run[view]] == 1;
        let own = self.graph.root(self.run[view]) == self.run[turned];
        let blocks =
            |c: usize| !self.used[c] && c != view && !self.op(c).is_view() && self.needs(store, c);
        if alone && own && !(turned + 1..store).any(blocks) {
            self.mark(view, set);
            self.mark(store, set);
        }
    }
}
