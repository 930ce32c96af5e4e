//! Builds GGUF bytes by hand, sound or deliberately wrong.
#![allow(dead_code, reason = "each test file uses its part")]

/// Metadata value types of the GGUF specification.
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const STRING: u32 = 8;
pub const ARRAY: u32 = 9;

/// Tensor types by their number.
pub const F32: u32 = 0;
pub const Q8_0: u32 = 8;

/// Collects pairs and tensors, then writes them; every number can be made to lie.
#[derive(Clone)]
pub struct Gguf {
    pub version: u32,
    pairs: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    pub key_count: Option<u64>,
    pub tensor_count: Option<u64>,
    /// Bytes of tensor data after the padded header.
    pub data: usize,
}

pub fn string(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

impl Gguf {
    pub fn new() -> Self {
        Self {
            version: 3,
            pairs: Vec::new(),
            tensors: Vec::new(),
            key_count: None,
            tensor_count: None,
            data: 0,
        }
    }

    /// A dense model of `layers` layers without tensors.
    pub fn model(architecture: &str, layers: u32) -> Self {
        Self::new()
            .text("general.architecture", architecture)
            .u32(&format!("{architecture}.block_count"), layers)
    }

    /// A pair whose value is given as bytes.
    pub fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        let mut pair = string(key);
        pair.extend(kind.to_le_bytes());
        pair.extend(value);
        self.pairs.push(pair);
        self
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, U32, &value.to_le_bytes())
    }

    pub fn text(self, key: &str, value: &str) -> Self {
        let value = string(value);
        self.raw(key, STRING, &value)
    }

    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        let mut value = I32.to_le_bytes().to_vec();
        value.extend((values.len() as u64).to_le_bytes());
        value.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.raw(key, ARRAY, &value)
    }

    pub fn strings(self, key: &str, values: &[&str]) -> Self {
        let mut value = STRING.to_le_bytes().to_vec();
        value.extend((values.len() as u64).to_le_bytes());
        value.extend(values.iter().flat_map(|v| string(v)));
        self.raw(key, ARRAY, &value)
    }

    /// A tensor entry with `rank` as told, whatever `dims` holds.
    pub fn entry(mut self, name: &str, rank: u32, dims: &[u64], kind: u32, offset: u64) -> Self {
        let mut entry = string(name);
        entry.extend(rank.to_le_bytes());
        entry.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
        entry.extend(kind.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.tensors.push(entry);
        self
    }

    pub fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        self.entry(name, dims.len() as u32, dims, kind, offset)
    }

    pub fn data(mut self, bytes: usize) -> Self {
        self.data = bytes;
        self
    }

    /// Bytes before the padding.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        let tensors = self.tensor_count.unwrap_or(self.tensors.len() as u64);
        out.extend(tensors.to_le_bytes());
        let pairs = self.key_count.unwrap_or(self.pairs.len() as u64);
        out.extend(pairs.to_le_bytes());
        out.extend(self.pairs.concat());
        out.extend(self.tensors.concat());
        out
    }

    /// The whole file, alignment 32.
    pub fn build(&self) -> Vec<u8> {
        let mut out = self.header();
        out.resize(out.len().next_multiple_of(32) + self.data, 0);
        out
    }
}
