//! A layout added up per layer and class, so that hundreds of placements can be judged in milliseconds.

use super::assignment::{ContextParams, Home, Resolved};
use super::layout::{ModelLayout, TensorClass};
use super::memory::row_bytes;
use super::speed::{Constant, Constants};

/// Bytes of an f32.
const F32_BYTES: f64 = 4.0;
/// Floating-point operations per weight and token of a matrix product: a multiplication and an addition.
const FLOPS_PER_WEIGHT: f64 = 2.0;
/// Spread of tokens that each choose experts by themselves.
pub const INDEPENDENT: f64 = 1.0;
/// Blocks after which the first one's variety is gone: a thousandth of it is left.
const DEEP: usize = 10;

/// One class of one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Part {
    /// Bytes in memory.
    pub bytes: f64,
    /// Bytes read for one token: of experts only the used share.
    pub read: f64,
    /// Floating-point operations for one token.
    pub flops: f64,
}

/// One layer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerFootprint {
    parts: [Part; TensorClass::ALL.len()],
    /// Values of K and of V per token of context.
    cache: (u64, u64),
    window: Option<f64>,
    /// Bytes of recurrent state, read and written for each token.
    state: f64,
    /// Operations of attention per token and token of context.
    attention_flops: f64,
}

/// A model, added up.
#[derive(Debug, Clone, PartialEq)]
pub struct Footprint {
    /// Blocks, in order.
    pub layers: Vec<LayerFootprint>,
    /// The output matrix, wherever it is kept.
    pub output: Part,
    /// Bytes of the embeddings, which stay in RAM and are looked up row by row.
    pub embedding: f64,
    /// Share of the experts that one token uses; 1 for a dense model.
    pub expert_share: f64,
    /// How independently tokens choose experts, an exponent: 1 is each by itself.
    pub spread: f64,
}

impl LayerFootprint {
    /// The sums of a class.
    pub fn part(&self, class: TensorClass) -> Part {
        self.parts[class as usize]
    }

    /// Every class with its sums.
    pub fn parts(&self) -> impl Iterator<Item = (TensorClass, Part)> + '_ {
        TensorClass::ALL
            .into_iter()
            .map(|class| (class, self.part(class)))
    }

    /// Bytes of the cache read for a token with `depth` tokens before it.
    pub fn cache_read(&self, depth: f64, context: &ContextParams) -> f64 {
        let seen = self.window.map_or(depth, |w| depth.min(w));
        let (keys, values) = self.cache;
        let bytes = |kind: &str, values: u64| row_bytes(kind, values) as f64;
        seen * (bytes(&context.type_k, keys) + bytes(&context.type_v, values)) + self.state * 2.0
    }

    /// Operations of attention for a token with `depth` tokens before it.
    pub fn attention_flops(&self, depth: f64) -> f64 {
        self.attention_flops * self.window.map_or(depth, |w| depth.min(w))
    }
}

impl Footprint {
    /// Adds up `layout`.
    pub fn of(layout: &ModelLayout) -> Self {
        let expert_share = layout
            .experts
            .filter(|e| e.count > 0)
            .map_or(1.0, |e| e.used as f64 / e.count as f64);
        let mut layers: Vec<LayerFootprint> = layout.layers.iter().map(shape_of).collect();
        let mut output = Part::default();
        let mut embedding = 0.0;
        for tensor in &layout.tensors {
            let (bytes, matrix) = (tensor.bytes.0 as f64, tensor.dims[1] > 1);
            let share = match tensor.class {
                TensorClass::Experts => expert_share,
                _ => 1.0,
            };
            let flops = if matrix {
                FLOPS_PER_WEIGHT * tensor.elements() as f64 * share
            } else {
                0.0
            };
            let part = Part {
                bytes,
                read: bytes * share,
                flops,
            };
            match (tensor.layer, tensor.class) {
                (Some(layer), class) => {
                    if let Some(at) = layers.get_mut(layer as usize) {
                        at.parts[class as usize].add(part);
                    }
                }
                (None, TensorClass::Embedding) => {
                    embedding += bytes;
                    // Tied embeddings are multiplied with as the output matrix.
                    if layout.tied_embeddings && tensor.name == "token_embd.weight" {
                        output.add(part);
                    }
                }
                (None, _) => output.add(part),
            }
        }
        Self {
            layers,
            output,
            embedding,
            expert_share,
            spread: INDEPENDENT,
        }
    }

    /// The same model with what is known of how its tokens choose experts.
    #[must_use]
    pub fn with_spread(self, constants: &Constants) -> Self {
        let spread = constants.get(&Constant::ExpertSpread);
        Self {
            spread: spread.map_or(INDEPENDENT, |known| known.seconds),
            ..self
        }
    }

    /// Share of a layer's experts that `tokens` tokens use together. Tokens that choose by themselves each leave out an expert
    /// with probability `1 − used ÷ count`, and that is how the first block's do, which sees each token's own embedding.
    /// Further in, tokens of one text resemble each other and `tokens` count as fewer, `tokens^spread`; a block keeps half of
    /// what the block before it has more than that. Copies traced on an H200 show both (`tests/placement_speed.rs`).
    pub fn experts_touched(&self, tokens: f64) -> impl Fn(usize) -> f64 {
        let (left_out, spread) = (1.0 - self.expert_share, self.spread);
        let share = move |exponent: f64| 1.0 - left_out.powf(tokens.powf(exponent));
        let deep = share(spread);
        move |layer| {
            if layer >= DEEP || spread >= INDEPENDENT {
                return deep;
            }
            share(spread + (INDEPENDENT - spread) * 0.5_f64.powf(layer as f64))
        }
    }

    /// Number of blocks.
    pub fn n_layer(&self) -> u32 {
        self.layers.len() as u32
    }

    /// Bytes of weights in RAM under a placement: what must be read from disk again where RAM does not hold them.
    pub fn host_bytes(&self, homes: &Resolved) -> f64 {
        let parts = self.parts(homes).filter(|p| p.0 == Home::Host);
        self.embedding + parts.map(|(_, _, part)| part.bytes).sum::<f64>()
    }

    /// Every class of every block and the output matrix, with where it is.
    pub fn parts<'a>(
        &'a self,
        homes: &'a Resolved,
    ) -> impl Iterator<Item = (Home, TensorClass, Part)> + 'a {
        let layers = self.layers.iter().enumerate().flat_map(move |(i, layer)| {
            let here = move |(class, part)| (homes.home(i, class), class, part);
            layer.parts().map(here)
        });
        layers.chain([(homes.output, TensorClass::Output, self.output)])
    }
}

impl Part {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.read += other.read;
        self.flops += other.flops;
    }
}

fn shape_of(shape: &super::layout::LayerShape) -> LayerFootprint {
    let cache = shape.attention;
    LayerFootprint {
        parts: Default::default(),
        cache: cache.map_or((0, 0), |c| (c.keys, c.values)),
        window: cache.and_then(|c| c.window).map(|w| w as f64),
        state: shape
            .recurrent
            .map_or(0.0, |r| (r.convolution + r.state) as f64 * F32_BYTES),
        // Scores and their sum: every head multiplies a key and a value per token of context.
        attention_flops: cache.map_or(0.0, |_| {
            FLOPS_PER_WEIGHT * (shape.heads * (shape.key_length + shape.value_length)) as f64
        }),
    }
}
