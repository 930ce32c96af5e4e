//! ggml's graph allocator (`ggml-alloc.c`): what a compute buffer grows to when a graph's tensors are placed in it, best fit
//! first, each freed after its last use and overwritten in place where its operation allows.

use super::graph::{Graph, Id, Tensor};
use super::schedule::Plan;

/// A buffer a backend computes in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arena {
    /// Bytes every allocation is a multiple of.
    pub alignment: u64,
    /// Largest single chunk; a larger tensor gets a chunk of its own.
    pub max_chunk: u64,
    /// Tensors carry their [`Tensor::extra`] here.
    pub with_extra: bool,
}

/// Bytes beyond which a chunk is never limited (`SIZE_MAX/2`).
const ENDLESS: u64 = u64::MAX / 2;
/// Chunks of a buffer at most (`GGML_VBUFFER_MAX_CHUNKS`); the last one is endless.
const MAX_CHUNKS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Block {
    offset: u64,
    size: u64,
}

#[derive(Debug)]
struct Chunk {
    free: Vec<Block>,
    max_size: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Address {
    chunk: usize,
    offset: u64,
}

struct Allocator {
    arena: Arena,
    chunks: Vec<Chunk>,
}

impl Allocator {
    fn aligned(&self, size: u64) -> u64 {
        size.next_multiple_of(self.arena.alignment)
    }

    /// The smallest free block that holds `size`, the last of each chunk aside.
    fn best_fit(&self, size: u64) -> Option<(usize, usize)> {
        let mut best = None;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let mut best_size = u64::MAX;
            let inner = chunk.free.len().saturating_sub(1);
            for (i, block) in chunk.free[..inner].iter().enumerate() {
                if block.size >= size && block.size <= best_size {
                    best = Some((c, i));
                    best_size = block.size;
                }
            }
        }
        best
    }

    /// The last block of the chunk that grows least.
    fn least_growth(&self, size: u64) -> Option<(usize, usize)> {
        let mut best = None;
        let mut best_reuse = i64::MIN;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let Some(block) = chunk.free.last() else {
                continue;
            };
            let reuse =
                chunk.max_size.cast_signed() - block.offset.cast_signed() - size.cast_signed();
            let better =
                (best_reuse < 0 && reuse > best_reuse) || (reuse >= 0 && reuse < best_reuse);
            if block.size >= size && better {
                best = Some((c, chunk.free.len() - 1));
                best_reuse = reuse;
            }
        }
        best
    }

    fn new_chunk(&mut self, size: u64) -> (usize, usize) {
        let last = self.chunks.len() + 1 >= MAX_CHUNKS;
        let room = if last {
            ENDLESS
        } else {
            size.max(self.arena.max_chunk)
        };
        self.chunks.push(Chunk {
            free: vec![Block {
                offset: 0,
                size: room,
            }],
            max_size: 0,
        });
        (self.chunks.len() - 1, 0)
    }

    fn take(&mut self, size: u64) -> Address {
        let size = self.aligned(size);
        let found = self.best_fit(size).or_else(|| self.least_growth(size));
        let (c, i) = found.unwrap_or_else(|| self.new_chunk(size));
        let chunk = &mut self.chunks[c];
        let block = &mut chunk.free[i];
        let offset = block.offset;
        block.offset += size;
        block.size = block.size.saturating_sub(size);
        if block.size == 0 {
            chunk.free.remove(i);
        }
        chunk.max_size = chunk.max_size.max(offset + size);
        Address { chunk: c, offset }
    }

    /// Frees a block and joins it with its neighbours; like ggml in the order of blocks, for empty ones are among them.
    fn give_back(&mut self, address: Address, size: u64) {
        let size = self.aligned(size);
        let free = &mut self.chunks[address.chunk].free;
        let touches =
            |b: &Block| b.offset + b.size == address.offset || address.offset + size == b.offset;
        let Some(at) = free.iter().position(touches) else {
            let at = free.partition_point(|b| b.offset < address.offset);
            let offset = address.offset;
            free.insert(at, Block { offset, size });
            return;
        };
        let follows = free[at].offset + free[at].size == address.offset;
        free[at].size += size;
        let first = if follows {
            at
        } else {
            free[at].offset = address.offset;
            at.saturating_sub(1)
        };
        let Some([one, two]) = free.get(first..first + 2) else {
            return;
        };
        if one.offset + one.size == two.offset {
            free[first].size += free[first + 1].size;
            free.remove(first + 1);
        }
    }

    fn peak(&self) -> u64 {
        self.chunks.iter().map(|c| c.max_size).sum()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    children: u32,
    views: u32,
    buffer: usize,
    address: Address,
    owned: bool,
}

struct Walk<'a> {
    graph: &'a Graph,
    states: Vec<State>,
    allocators: Vec<Allocator>,
}

/// Bytes each backend's compute buffer grows to.
pub(super) fn peaks(graph: &Graph, plan: &Plan, arenas: &[Arena]) -> Vec<u64> {
    let allocators = arenas
        .iter()
        .map(|arena| Allocator {
            arena: *arena,
            chunks: Vec::new(),
        })
        .collect();
    let mut walk = Walk {
        graph,
        states: vec![State::default(); graph.tensors.len()],
        allocators,
    };
    for leaf in plan.leafs.iter().chain(&graph.leafs) {
        walk.allocate(*leaf, plan.backends[*leaf]);
    }
    walk.count(plan);
    for node in &plan.order {
        walk.step(*node, plan);
    }
    walk.allocators.iter().map(Allocator::peak).collect()
}

impl Walk<'_> {
    fn size(&self, tensor: &Tensor, buffer: usize) -> u64 {
        let extra = self.allocators[buffer].arena.with_extra;
        tensor.bytes + if extra { tensor.extra } else { 0 }
    }

    /// Counts users and views, and allocates inputs before anything can be laid over them.
    fn count(&mut self, plan: &Plan) {
        for node in &plan.order {
            let tensor = &self.graph.tensors[*node];
            if let Some(root) = tensor.root.filter(|_| tensor.op != super::graph::Op::None) {
                self.states[root].views += 1;
            }
            if tensor.input {
                self.allocate(*node, plan.backends[*node]);
            }
            for source in &tensor.src {
                self.states[*source].children += 1;
                if self.graph.tensors[*source].input {
                    self.allocate(*source, plan.backends[*node]);
                }
            }
        }
    }

    fn step(&mut self, node: Id, plan: &Plan) {
        let buffer = plan.backends[node];
        let graph = self.graph;
        for source in &graph.tensors[node].src {
            self.allocate(*source, buffer);
        }
        self.allocate(node, buffer);
        for source in &graph.tensors[node].src {
            self.states[*source].children -= 1;
            let state = self.states[*source];
            if state.children > 0 || state.views > 0 {
                continue;
            }
            match graph.tensors[*source].root {
                Some(root) => {
                    self.states[root].views = self.states[root].views.saturating_sub(1);
                    let root_state = self.states[root];
                    if root_state.views == 0 && root_state.children == 0 && root_state.owned {
                        self.free(root);
                    }
                }
                None if state.owned => self.free(*source),
                None => {}
            }
        }
    }

    fn allocate(&mut self, id: Id, buffer: usize) {
        let tensor = &self.graph.tensors[id];
        if self.states[id].owned || tensor.stored.is_some() || tensor.root.is_some() {
            return;
        }
        self.states[id].owned = true;
        if tensor.op.is_in_place() && self.overwrite(id) {
            return;
        }
        let size = self.size(tensor, buffer);
        let address = self.allocators[buffer].take(size);
        self.states[id].buffer = buffer;
        self.states[id].address = address;
    }

    /// Lays a result over the first source nobody else needs.
    fn overwrite(&mut self, id: Id) -> bool {
        let tensor = &self.graph.tensors[id];
        for source in &tensor.src {
            let parent = &self.graph.tensors[*source];
            let state = self.states[*source];
            let same = parent.ne == tensor.ne && parent.elem == tensor.elem && !parent.strided;
            if state.owned && !parent.output && same && state.children == 1 && state.views == 0 {
                self.states[id].buffer = state.buffer;
                self.states[id].address = state.address;
                self.states[*source].owned = false;
                return true;
            }
        }
        false
    }

    fn free(&mut self, id: Id) {
        let tensor = &self.graph.tensors[id];
        if tensor.output {
            return;
        }
        let state = self.states[id];
        let size = self.size(tensor, state.buffer);
        self.allocators[state.buffer].give_back(state.address, size);
        self.states[id].owned = false;
    }
}
