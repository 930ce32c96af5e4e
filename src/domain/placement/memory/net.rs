//! Building blocks of a model's graph: its weights by name, its inputs, norms and projections (`llama-graph.cpp`).

use std::collections::BTreeMap;

use super::cache;
use super::graph::{Elem, Graph, Id, Op, Stored};
use super::weights::{EMBEDDINGS, Homes};
use crate::domain::placement::assignment::{ContextParams, Home, Placement};
use crate::domain::placement::layout::{AttentionCache, LayerShape, ModelLayout};

/// Tokens below which llama.cpp pins norms to their layer's device (`graph_get_cb`).
const PINNED_TOKENS: u64 = 32;
/// Smallest side of the rotation of a quantised cache; K takes the largest power of two times this that divides a head.
const ROTATION: u64 = 64;

/// A model's tensors by block and by name within it.
#[derive(Debug)]
struct Index<'a>(BTreeMap<(Option<u32>, &'a str), usize>);

impl<'a> Index<'a> {
    fn new(layout: &'a ModelLayout) -> Self {
        let entry = |(i, t): (usize, &'a crate::domain::placement::layout::TensorEntry)| {
            let mut name = t.name.as_str();
            if t.layer.is_some() {
                name = name.splitn(3, '.').nth(2).unwrap_or(name);
            }
            ((t.layer, name), i)
        };
        Self(layout.tensors.iter().enumerate().map(entry).collect())
    }

    fn get(&self, layer: Option<u32>, name: &str) -> Option<usize> {
        self.0.get(&(layer, name)).copied()
    }
}

/// Inputs of one kind of attention cache: of the whole context, or of a window.
#[derive(Debug, Clone, Copy, Default)]
struct CacheInputs {
    mask: Option<Id>,
    keys: Option<Id>,
    values: Option<Id>,
    rotation_k: Option<Id>,
    rotation_v: Option<Id>,
}

/// What a graph is built from, and the graph so far.
pub(super) struct Net<'a> {
    pub graph: Graph,
    pub layout: &'a ModelLayout,
    pub context: &'a ContextParams,
    pub placement: &'a Placement,
    /// Number of devices.
    pub devices: usize,
    /// Tokens of the micro-batch, a multiple of the sequences.
    pub tokens: u64,
    /// Sequences in it.
    pub sequences: u64,
    /// Of layers alike only the first few are built.
    pub shortened: bool,
    index: Index<'a>,
    pub homes: &'a Homes,
    weights: Vec<Option<Id>>,
    positions: Option<Id>,
    outputs: Option<Id>,
    state_rows: Option<[Id; 2]>,
    caches: [CacheInputs; 2],
}

impl<'a> Net<'a> {
    pub(super) fn new(
        layout: &'a ModelLayout,
        placement: &'a Placement,
        context: &'a ContextParams,
        devices: usize,
        homes: &'a Homes,
    ) -> Self {
        let sequences = context.sequences.max(1);
        Self {
            graph: Graph::default(),
            layout,
            context,
            placement,
            devices,
            tokens: cache::micro_batch(context).next_multiple_of(sequences),
            sequences,
            shortened: false,
            index: Index::new(layout),
            homes,
            weights: vec![None; layout.tensors.len()],
            positions: None,
            outputs: None,
            state_rows: None,
            caches: [CacheInputs::default(); 2],
        }
    }

    /// The same with fewer of the layers alike.
    pub(super) fn shortened(self) -> Self {
        Self {
            shortened: true,
            ..self
        }
    }

    pub(super) fn has(&self, layer: Option<u32>, name: &str) -> bool {
        self.index.get(layer, name).is_some()
    }

    /// Dimensions of a tensor of the file.
    pub(super) fn dims(&self, layer: Option<u32>, name: &str) -> Option<[u64; 4]> {
        self.index
            .get(layer, name)
            .map(|i| self.layout.tensors[i].dims)
    }

    /// A weight of the model, where the file has it.
    pub(super) fn weight(&mut self, layer: Option<u32>, name: &str) -> Option<Id> {
        let i = self.index.get(layer, name)?;
        if let Some(id) = self.weights[i] {
            return Some(id);
        }
        let tensor = &self.layout.tensors[i];
        let stored = Stored::Weight(self.homes.of[i]);
        let id = self.graph.stored(tensor.dims, tensor.bytes.0, stored);
        self.weights[i] = Some(id);
        Some(id)
    }

    /// The output matrix: its own tensor, or the embeddings' second copy.
    pub(super) fn output_matrix(&mut self) -> Option<Id> {
        if let Some(own) = self.weight(None, "output.weight") {
            return Some(own);
        }
        let i = self.index.get(None, EMBEDDINGS)?;
        let Some(home) = self.homes.tied else {
            return self.weight(None, EMBEDDINGS);
        };
        let tensor = &self.layout.tensors[i];
        Some(
            self.graph
                .stored(tensor.dims, tensor.bytes.0, Stored::Weight(home)),
        )
    }

    pub(super) fn layer(&self, layer: u32) -> &'a LayerShape {
        &self.layout.layers[layer as usize]
    }

    pub(super) fn positions(&mut self) -> Id {
        let tokens = self.tokens;
        *self
            .positions
            .get_or_insert_with(|| self.graph.input(&[tokens], Elem::I32))
    }

    /// Which tokens' results are wanted: all that a batch allows.
    pub(super) fn outputs(&mut self) -> Id {
        let n = self.tokens.min(self.context.batch.max(1));
        *self
            .outputs
            .get_or_insert_with(|| self.graph.input(&[n], Elem::I32))
    }

    /// Which recurrent states the sequences of the micro-batch have, and which are only moved: none.
    pub(super) fn state_rows(&mut self) -> [Id; 2] {
        if let Some(rows) = self.state_rows {
            return rows;
        }
        let n = self.sequences;
        let all = self.graph.input(&[n], Elem::I32);
        let rows = [n, 0].map(|n| self.graph.part(all, &[n]));
        self.state_rows = Some(rows);
        rows
    }

    fn cache_inputs(&mut self, cache: AttentionCache) -> &mut CacheInputs {
        &mut self.caches[usize::from(cache.window.is_some())]
    }

    /// Which cells each token sees: f16 for flash attention, else f32.
    pub(super) fn mask(&mut self, cache: AttentionCache) -> Id {
        if let Some(id) = self.cache_inputs(cache).mask {
            return id;
        }
        let cells = cache::layer_cells(self.context, cache);
        let elem = if self.context.flash_attention {
            Elem::F16
        } else {
            Elem::F32
        };
        let ne = [cells, self.tokens / self.sequences, 1, self.sequences];
        let id = self.graph.input(&ne, elem);
        self.cache_inputs(cache).mask = Some(id);
        id
    }

    /// Cells the new keys go to.
    pub(super) fn key_cells(&mut self, cache: AttentionCache) -> Id {
        if let Some(id) = self.cache_inputs(cache).keys {
            return id;
        }
        let id = self.graph.input(&[self.tokens], Elem::I64);
        self.cache_inputs(cache).keys = Some(id);
        id
    }

    /// Cells the new values go to: one a token, or one a value where the cache is transposed (no flash attention).
    pub(super) fn value_cells(&mut self, cache: AttentionCache) -> Id {
        if let Some(id) = self.cache_inputs(cache).values {
            return id;
        }
        let widest = self.layout.layers.iter().filter_map(|l| l.attention);
        let widest = widest.map(|a| a.values).max().unwrap_or(1);
        let each = if self.context.flash_attention {
            1
        } else {
            widest
        };
        let id = self.graph.input(&[self.tokens * each], Elem::I64);
        self.cache_inputs(cache).values = Some(id);
        id
    }

    /// The rotation of keys and queries before a quantised K cache.
    pub(super) fn key_rotation(&mut self, cache: AttentionCache, head: u64) -> Option<Id> {
        if !cache::is_quantized(&self.context.type_k) || !head.is_multiple_of(ROTATION) {
            return None;
        }
        if let Some(id) = self.cache_inputs(cache).rotation_k {
            return Some(id);
        }
        let mut side = ROTATION;
        while head.is_multiple_of(side * 2) {
            side *= 2;
        }
        let id = self.graph.input(&[side, side], Elem::F32);
        self.cache_inputs(cache).rotation_k = Some(id);
        Some(id)
    }

    /// The rotation of values before a quantised V cache.
    pub(super) fn value_rotation(&mut self, cache: AttentionCache, head: u64) -> Option<Id> {
        if !cache::is_quantized(&self.context.type_v) || !head.is_multiple_of(ROTATION) {
            return None;
        }
        if let Some(id) = self.cache_inputs(cache).rotation_v {
            return Some(id);
        }
        let id = self.graph.input(&[ROTATION, ROTATION], Elem::F32);
        self.cache_inputs(cache).rotation_v = Some(id);
        Some(id)
    }

    /// Multiplies by a rotation, head by head or part by part.
    pub(super) fn rotate(&mut self, x: Id, rotation: Id) -> Id {
        let ne = self.graph.ne(x);
        let side = self.graph.ne(rotation)[0];
        let rows = ne.iter().product::<u64>() / side;
        let flat = self.graph.view(Op::Reshape, x, &[side, rows]);
        let rotated = self.graph.op(Op::MulMat, &[side, rows], &[rotation, flat]);
        self.graph.view(Op::Reshape, rotated, &ne)
    }

    /// Normalises, and scales by a weight and shifts by a bias where the file has them.
    pub(super) fn norm(&mut self, x: Id, layer: Option<u32>, name: &str) -> Id {
        let mut y = self.graph.like(Op::RmsNorm, &[x]);
        let n_layer = self.layout.n_layer();
        let full = self.placement.offloaded(n_layer, self.devices) > n_layer;
        if let Some(l) = layer.filter(|_| full || self.tokens < PINNED_TOKENS) {
            self.graph.tensors[y].pinned =
                Some(self.placement.layer_home(l, n_layer, self.devices));
        }
        if let Some(weight) = self.weight(layer, &format!("{name}.weight")) {
            y = self.graph.like(Op::Mul, &[y, weight]);
        }
        if let Some(bias) = self.weight(layer, &format!("{name}.bias")) {
            y = self.graph.like(Op::Add, &[y, bias]);
        }
        y
    }

    /// Multiplies by a matrix of the file and adds its bias; `None` where the file has no such matrix.
    pub(super) fn project(&mut self, x: Id, layer: Option<u32>, name: &str) -> Option<Id> {
        let matrix = self.weight(layer, &format!("{name}.weight"))?;
        let y = self.multiply(matrix, x);
        Some(match self.weight(layer, &format!("{name}.bias")) {
            Some(bias) => self.graph.like(Op::Add, &[y, bias]),
            None => y,
        })
    }

    /// `ggml_mul_mat`: one row of the result for each row of the matrix.
    pub(super) fn multiply(&mut self, matrix: Id, x: Id) -> Id {
        let ne = self.graph.ne(x);
        let rows = self.graph.ne(matrix)[1];
        self.graph
            .op(Op::MulMat, &[rows, ne[1], ne[2], ne[3]], &[matrix, x])
    }

    /// Home of a layer's cache.
    pub(super) fn cache_home(&self, layer: u32) -> Home {
        self.placement
            .cache_home(layer, self.layout.n_layer(), self.devices)
    }
}
