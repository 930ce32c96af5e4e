//! A GGUF file in its parts, so that a fuzzer can make each of them lie: counts, lengths, types, dimensions, offsets,
//! names, and what a split says of itself.

use fastrand::Rng;

/// Value types of the GGUF specification with the bytes of one value; 8 is a string, 9 an array.
const WIDTHS: [(u32, usize); 11] = [
    (0, 1),
    (1, 1),
    (2, 2),
    (3, 2),
    (4, 4),
    (5, 4),
    (6, 4),
    (7, 1),
    (10, 8),
    (11, 8),
    (12, 8),
];
const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Numbers at the edges of types, limits and plausibility.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    255,
    256,
    511,
    512,
    513,
    65_535,
    65_536,
    100_001,
    1 << 30,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    (1 << 42) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Keys that the layout reads, behind the architecture's name.
const KEYS: [&str; 40] = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.key_length_mla",
    "attention.value_length_mla",
    "attention.kv_lora_rank",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.shared_kv_layers",
    "attention.recurrent_layers",
    "attention.indexer.key_length",
    "attention.indexer.top_k",
    "attention.indexer.types",
    "full_attention_interval",
    "nextn_predict_layers",
    "leading_dense_block_count",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "vocab_size",
    "ssm.conv_kernel",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.group_count",
    "ssm.time_step_rank",
    "wkv.head_size",
    "token_shift_count",
    "shortconv.l_cache",
    "kda.head_dim",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.freq_base",
    "decoder_block_count",
];

const ARCHITECTURES: [&str; 26] = [
    "llama",
    "qwen3",
    "gemma2",
    "gemma3",
    "gemma3n",
    "gemma4",
    "gpt-oss",
    "llama4",
    "cohere2moe",
    "exaone4",
    "smallthinker",
    "mimo2",
    "lfm2",
    "qwen3next",
    "minimax-01",
    "minimax-m3",
    "nemotron_h_moe",
    "falcon-h1",
    "mamba2",
    "rwkv7",
    "kimi-linear",
    "deepseek2",
    "deepseek4",
    "glm-dsa",
    "bert",
    "clip",
];

const TENSORS: [&str; 16] = [
    "attn_q.weight",
    "attn_qkv.weight",
    "attn_k_b.weight",
    "attn_norm.weight",
    "ffn_down.weight",
    "ffn_down.3.weight",
    "ffn_down_exps.weight",
    "ffn_down_shexp.weight",
    "ffn_gate_inp.weight",
    "ssm_conv1d.weight",
    "ssm_a",
    "shortconv.conv.weight",
    "time_mix_key.weight",
    "indexer.proj.weight",
    "nextn.eh_proj.weight",
    "",
];

/// A metadata pair; `value` is what follows the type.
#[derive(Clone)]
struct Pair {
    key: Vec<u8>,
    key_length: Option<u64>,
    kind: u32,
    value: Vec<u8>,
}

/// A row of the tensor table.
#[derive(Clone)]
struct Row {
    name: Vec<u8>,
    name_length: Option<u64>,
    rank: Option<u32>,
    dims: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// A whole file.
#[derive(Clone)]
pub struct Draft {
    version: u32,
    pairs: Vec<Pair>,
    rows: Vec<Row>,
    key_count: Option<u64>,
    tensor_count: Option<u64>,
    data: usize,
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

fn small(rng: &mut Rng) -> u64 {
    match rng.u32(..4) {
        0 => pick(rng, &EDGES),
        1 => rng.u64(..),
        _ => rng.u64(..64),
    }
}

fn number(kind: u32, value: u64) -> Vec<u8> {
    let width = WIDTHS.iter().find(|(k, _)| *k == kind).map_or(4, |w| w.1);
    value.to_le_bytes()[..width].to_vec()
}

fn array(rng: &mut Rng, kind: u32, len: u64) -> Vec<u8> {
    let mut value = kind.to_le_bytes().to_vec();
    value.extend(len.to_le_bytes());
    for _ in 0..len {
        if kind == STRING {
            value.extend(3u64.to_le_bytes());
            value.extend(b"abc");
        } else {
            let n = if rng.u32(..8) == 0 {
                small(rng)
            } else {
                rng.u64(..9)
            };
            value.extend(number(kind, n));
        }
    }
    value
}

impl Draft {
    /// A sound model of some architecture with plausible numbers.
    pub fn sound(rng: &mut Rng) -> Self {
        let architecture = pick(rng, &ARCHITECTURES);
        let layers = rng.u64(1..12);
        let mut draft = Self {
            version: rng.u32(2..=3),
            pairs: Vec::new(),
            rows: Vec::new(),
            key_count: None,
            tensor_count: None,
            data: 0,
        };
        let mut name = (architecture.len() as u64).to_le_bytes().to_vec();
        name.extend(architecture.as_bytes());
        draft.pair("general.architecture", STRING, name);
        draft.own(architecture, "block_count", U32, number(U32, layers));
        for key in &KEYS[1..] {
            if rng.bool() {
                let (kind, value) = if rng.u32(..4) == 0 {
                    let of = pick(rng, &[0, 4, 5, 7, 10]);
                    (ARRAY, array(rng, of, layers))
                } else {
                    (U32, number(U32, rng.u64(..600)))
                };
                draft.own(architecture, key, kind, value);
            }
        }
        let words = rng.u64(..40);
        draft.pair("tokenizer.ggml.tokens", ARRAY, array(rng, STRING, words));
        draft.tensor(rng, "token_embd.weight".to_owned());
        for layer in 0..layers {
            for _ in 0..rng.u32(1..5) {
                let name = pick(rng, &TENSORS);
                draft.tensor(rng, format!("blk.{layer}.{name}"));
            }
        }
        if rng.bool() {
            draft.tensor(rng, "output.weight".to_owned());
        }
        // Twice the same name is no sound file.
        draft.rows.sort_by(|a, b| a.name.cmp(&b.name));
        draft.rows.dedup_by(|a, b| a.name == b.name);
        draft.place();
        draft
    }

    fn pair(&mut self, key: &str, kind: u32, value: Vec<u8>) {
        let key = key.as_bytes().to_vec();
        self.pairs.push(Pair {
            key,
            key_length: None,
            kind,
            value,
        });
    }

    fn own(&mut self, architecture: &str, key: &str, kind: u32, value: Vec<u8>) {
        self.pair(&format!("{architecture}.{key}"), kind, value);
    }

    fn tensor(&mut self, rng: &mut Rng, name: String) {
        let rank = rng.usize(1..=4);
        let mut dims: Vec<u64> = (0..rank).map(|_| rng.u64(1..4)).collect();
        dims[0] = pick(rng, &[1, 8, 32, 64]);
        self.rows.push(Row {
            name: name.into_bytes(),
            name_length: None,
            rank: None,
            dims,
            kind: 0,
            offset: 0,
        });
    }

    /// Offsets one after the other, and the data they need.
    fn place(&mut self) {
        let mut at = 0u64;
        for row in &mut self.rows {
            row.offset = at;
            at += (row.dims.iter().product::<u64>() * 4).next_multiple_of(32);
        }
        self.data = at as usize;
    }

    /// Says that it is part `no` of `count`.
    pub fn split(&mut self, rng: &mut Rng, no: u64, count: u64) {
        for (key, value) in [("split.no", no), ("split.count", count)] {
            let value = if rng.u32(..12) == 0 {
                small(rng)
            } else {
                value
            };
            self.pair(key, U32, number(U32, value));
        }
        if rng.bool() {
            let all = if rng.bool() {
                self.rows.len() as u64
            } else {
                small(rng)
            };
            self.pair("split.tensors.count", U32, number(U32, all));
        }
        if no > 0 && rng.bool() {
            for row in &mut self.rows {
                row.name.push(b'x');
            }
        }
    }

    /// Makes one thing of it lie.
    pub fn mutate(&mut self, rng: &mut Rng) {
        match rng.u32(..16) {
            0 => self.version = small(rng) as u32,
            1 => self.key_count = Some(lie(rng, self.pairs.len())),
            2 => self.tensor_count = Some(lie(rng, self.rows.len())),
            3..=8 => self.mutate_pair(rng),
            9..=14 => self.mutate_row(rng),
            _ => self.data = small(rng).min(9000) as usize,
        }
    }

    fn mutate_pair(&mut self, rng: &mut Rng) {
        if rng.u32(..8) == 0 {
            let value = number(U32, small(rng));
            self.pair("general.alignment", U32, value);
            return;
        }
        let index = rng.usize(..self.pairs.len());
        if rng.u32(..12) == 0 {
            let copy = self.pairs[index].clone();
            self.pairs.push(copy);
            return;
        }
        let pair = &mut self.pairs[index];
        match rng.u32(..10) {
            0 => pair.key_length = Some(lie(rng, pair.key.len())),
            1 => pair.key = vec![b'k'; rng.usize(..70_000)],
            2 => pair.kind = small(rng) as u32,
            3 => pair.value.truncate(rng.usize(..=pair.value.len())),
            4 | 5 => {
                let kind = pick(rng, &[0, 4, 5, 6, 7, 8, 10, 11, ARRAY]);
                pair.kind = ARRAY;
                let len = if rng.bool() {
                    rng.u64(..20)
                } else {
                    rng.u64(..3000)
                };
                pair.value = array(rng, kind, len);
            }
            // The length of an array or a string.
            6 if pair.value.len() >= 12 => {
                let at = if pair.kind == ARRAY { 4 } else { 0 };
                pair.value[at..at + 8].copy_from_slice(&small(rng).to_le_bytes());
            }
            // The type of an array.
            7 if pair.kind == ARRAY && pair.value.len() >= 4 => {
                pair.value[..4].copy_from_slice(&(small(rng) as u32).to_le_bytes());
            }
            _ => {
                pair.kind = pick(rng, &WIDTHS).0;
                pair.value = number(pair.kind, small(rng));
            }
        }
    }

    fn mutate_row(&mut self, rng: &mut Rng) {
        let index = rng.usize(..self.rows.len());
        if rng.u32(..12) == 0 {
            let copy = self.rows[index].clone();
            self.rows.push(copy);
            return;
        }
        let last = rng.usize(..self.rows.len());
        let row = &mut self.rows[index];
        match rng.u32(..9) {
            0 => row.name_length = Some(lie(rng, row.name.len())),
            1 => row.name = format!("blk.{}.attn_q.weight", small(rng)).into_bytes(),
            2 => row.rank = Some(small(rng) as u32),
            3 | 4 => {
                let at = rng.usize(..row.dims.len());
                row.dims[at] = small(rng);
            }
            5 => row.kind = rng.u32(..48),
            6 => row.kind = small(rng) as u32,
            7 => row.offset = small(rng) & !31,
            _ => self.rows.swap(index, last),
        }
    }

    /// The file's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        let count = |told: Option<u64>, real: usize| told.unwrap_or(real as u64).to_le_bytes();
        out.extend(count(self.tensor_count, self.rows.len()));
        out.extend(count(self.key_count, self.pairs.len()));
        for pair in &self.pairs {
            out.extend(count(pair.key_length, pair.key.len()));
            out.extend(&pair.key);
            out.extend(pair.kind.to_le_bytes());
            out.extend(&pair.value);
        }
        for row in &self.rows {
            out.extend(count(row.name_length, row.name.len()));
            out.extend(&row.name);
            out.extend(row.rank.unwrap_or(row.dims.len() as u32).to_le_bytes());
            out.extend(row.dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(row.kind.to_le_bytes());
            out.extend(row.offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }
}

/// A count beside the real one, or any.
fn lie(rng: &mut Rng, real: usize) -> u64 {
    match rng.u32(..3) {
        0 => (real as u64).wrapping_add(rng.u64(..3)).wrapping_sub(1),
        _ => small(rng),
    }
}

/// Damages bytes wherever they are, or cuts the file.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    match rng.u32(..3) {
        0 => bytes.truncate(rng.usize(..=bytes.len())),
        1 => {
            for _ in 0..rng.u32(1..4) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
        }
        _ if bytes.len() > 8 => {
            let at = rng.usize(..bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&small(rng).to_le_bytes());
        }
        _ => {}
    }
}
