//! The computation graph llama.cpp builds for a batch, as far as its memory goes: tensors with their sizes, sources and
//! views, in the order ggml evaluates them.

use crate::domain::placement::assignment::Home;

/// Position of a tensor in [`Graph::tensors`].
pub(super) type Id = usize;

/// What a tensor is computed by, as far as scheduling and allocation tell operations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// Not computed: a weight, a cache, an input (`GGML_OP_NONE`).
    None,
    View,
    Reshape,
    Permute,
    GetRows,
    SetRows,
    MulMat,
    MulMatId,
    Add,
    AddId,
    Mul,
    Div,
    Scale,
    RmsNorm,
    Rope,
    SoftMax,
    FlashAttention,
    /// A unary function: `SiLU`, sigmoid, softplus, …
    Unary,
    Clamp,
    /// A gated unit of two inputs (`SwiGLU`, `GeGLU`).
    Glu,
    ArgSort,
    SumRows,
    Conv,
    /// Any other operation that writes a new tensor.
    Other,
}

impl Op {
    /// It only names another tensor's memory (`ggml_is_view_op`).
    pub(super) fn is_view(self) -> bool {
        matches!(self, Self::View | Self::Reshape | Self::Permute)
    }

    /// Its result may overwrite a source (`ggml_op_can_inplace`).
    pub(super) fn is_in_place(self) -> bool {
        use Op::{Add, AddId, Clamp, Div, Mul, RmsNorm, Rope, Scale, SoftMax, Unary};
        matches!(
            self,
            Scale | Add | AddId | Mul | Div | Unary | Rope | RmsNorm | Clamp | SoftMax
        )
    }
}

/// Type of a computed tensor's values; only equality and size count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elem {
    F32,
    F16,
    I32,
    I64,
    /// A weight's or a cache's own type.
    Stored,
}

impl Elem {
    /// Bytes of a value; [`Elem::Stored`] has none of its own.
    fn bytes(self) -> u64 {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
            Self::Stored => 0,
        }
    }
}

/// Memory that exists before the graph does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// A weight of the model.
    Weight(Home),
    /// KV cache or recurrent state.
    Cache(Home),
}

impl Stored {
    pub(super) fn home(self) -> Home {
        match self {
            Self::Weight(home) | Self::Cache(home) => home,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pub op: Op,
    pub ne: [u64; 4],
    pub elem: Elem,
    /// Bytes of its data (`ggml_nbytes`).
    pub bytes: u64,
    /// Bytes a CUDA device adds to its allocation (values of a quantised cache as f16).
    pub extra: u64,
    pub src: Vec<Id>,
    /// The tensor whose memory it is a view of.
    pub root: Option<Id>,
    /// A view that is not contiguous: no operation may overwrite it in place.
    pub strided: bool,
    pub input: bool,
    pub output: bool,
    pub stored: Option<Stored>,
    /// Placed by llama.cpp itself rather than by the scheduler.
    pub pinned: Option<Home>,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    pub tensors: Vec<Tensor>,
    /// Computed tensors in the order of evaluation.
    pub nodes: Vec<Id>,
    /// Tensors that are not computed, in the order they were met.
    pub leafs: Vec<Id>,
    visited: Vec<bool>,
}

/// Dimensions with the unused ones 1.
pub(super) fn shape(ne: &[u64]) -> [u64; 4] {
    let mut full = [1; 4];
    full[..ne.len()].copy_from_slice(ne);
    full
}

/// Bytes that a tensor at most counts for: a PiB is more than any machine has, and thousands of them still add up.
pub(super) const MAX_BYTES: u64 = 1 << 50;

fn bytes(ne: [u64; 4], elem: Elem) -> u64 {
    let all = ne.iter().fold(elem.bytes(), |b, n| b.saturating_mul(*n));
    all.min(MAX_BYTES)
}

impl Graph {
    pub(super) fn push(&mut self, tensor: Tensor) -> Id {
        self.tensors.push(tensor);
        self.visited.push(false);
        self.tensors.len() - 1
    }

    fn blank(op: Op, ne: [u64; 4], elem: Elem) -> Tensor {
        Tensor {
            op,
            ne,
            elem,
            bytes: bytes(ne, elem),
            extra: 0,
            src: Vec::new(),
            root: None,
            strided: false,
            input: false,
            output: false,
            stored: None,
            pinned: None,
        }
    }

    /// A tensor the program fills before each evaluation.
    pub(super) fn input(&mut self, ne: &[u64], elem: Elem) -> Id {
        let tensor = Tensor {
            input: true,
            ..Self::blank(Op::None, shape(ne), elem)
        };
        self.push(tensor)
    }

    /// A weight or a cache.
    pub(super) fn stored(&mut self, ne: [u64; 4], bytes: u64, stored: Stored) -> Id {
        let tensor = Tensor {
            bytes,
            stored: Some(stored),
            ..Self::blank(Op::None, ne, Elem::Stored)
        };
        self.push(tensor)
    }

    /// The result of an operation.
    pub(super) fn op(&mut self, op: Op, ne: &[u64], src: &[Id]) -> Id {
        self.typed(op, ne, Elem::F32, src)
    }

    /// The result of an operation whose values are not f32.
    pub(super) fn typed(&mut self, op: Op, ne: &[u64], elem: Elem, src: &[Id]) -> Id {
        let tensor = Tensor {
            src: src.to_vec(),
            ..Self::blank(op, shape(ne), elem)
        };
        self.push(tensor)
    }

    /// A result with the shape of its first source.
    pub(super) fn like(&mut self, op: Op, src: &[Id]) -> Id {
        let ne = self.tensors[src[0]].ne;
        self.op(op, &ne, src)
    }

    /// Another view of the same memory.
    pub(super) fn view(&mut self, op: Op, of: Id, ne: &[u64]) -> Id {
        let source = &self.tensors[of];
        let (root, elem, whole) = (source.root.unwrap_or(of), source.elem, source.bytes);
        let ne = shape(ne);
        let bytes = match elem {
            Elem::Stored => whole,
            _ => bytes(ne, elem),
        };
        let tensor = Tensor {
            bytes,
            src: vec![of],
            root: Some(root),
            strided: op == Op::Permute || source.strided,
            ..Self::blank(op, ne, elem)
        };
        self.push(tensor)
    }

    /// A view of a part of a tensor's rows.
    pub(super) fn part(&mut self, of: Id, ne: &[u64]) -> Id {
        let whole = self.tensors[of].bytes;
        let id = self.view(Op::View, of, ne);
        let part = &mut self.tensors[id];
        // From the first value of the first row to the last of the last (`ggml_nbytes`), which is what a copy takes.
        let rows = part.ne.iter().rev().copied().find(|n| *n > 1).unwrap_or(1);
        part.bytes = whole - whole / rows + part.bytes / rows;
        part.strided = true;
        id
    }

    pub(super) fn ne(&self, id: Id) -> [u64; 4] {
        self.tensors[id].ne
    }

    /// The tensor whose memory this one names.
    pub(super) fn root(&self, id: Id) -> Id {
        self.tensors[id].root.unwrap_or(id)
    }

    /// Where its memory already is, for weights, caches and views of them.
    pub(super) fn stored_at(&self, id: Id) -> Option<Stored> {
        self.tensors[self.root(id)].stored
    }

    /// Adds a tensor and all it needs to the order of evaluation (`ggml_build_forward_expand`).
    pub(super) fn expand(&mut self, id: Id) {
        if self.visited[id] {
            return;
        }
        self.visited[id] = true;
        for source in self.tensors[id].src.clone() {
            self.expand(source);
        }
        if self.tensors[id].op == Op::None {
            self.leafs.push(id);
        } else {
            self.nodes.push(id);
        }
    }

    /// Tokens an operation works on at once, for the decision to offload it (`get_op_batch_size`).
    pub(super) fn batch_size(&self, id: Id) -> u64 {
        let tensor = &self.tensors[id];
        match tensor.op {
            Op::GetRows => 0,
            Op::MulMat => tensor.ne[1],
            Op::MulMatId | Op::Rope => tensor.ne[2],
            _ => tensor.ne[1] * tensor.ne[2] * tensor.ne[3],
        }
    }
}
