//! One file's header: metadata and tensor table, read as a stream and checked against the file's size
//! (design section 8; cases C29, C33, C34). Large arrays are passed over, not built.

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

use sha2::Sha256;

use crate::domain::text;

use super::error::{Fault, HeaderError, corrupt, shown};
use super::source::Source;
use super::tensor_type::TensorType;

/// Bytes of a header at most: real ones have under 20 million. What a sparse file of terabytes costs nobody to claim is not
/// read.
const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Metadata keys at most; real files have under 100.
const MAX_KEYS: u64 = 100_000;
/// Tensors at most; real files have under 10,000.
const MAX_TENSORS: u64 = 10_000_000;
/// Bytes of the smallest key-value pair: name length, one letter, value type, one byte.
const MIN_PAIR_BYTES: u64 = 8 + 1 + 4 + 1;
/// Bytes of the smallest tensor entry: name length, one letter, rank, one dimension, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// Longest key or tensor name, bytes: the format's own limit for keys.
const MAX_NAME_BYTES: u64 = 65_535;
/// Longest string value that is kept, bytes; chat templates are longer and not needed.
const MAX_KEPT_STRING: u64 = 4096;
/// Longest number array that is kept; per-layer arrays are shorter, vocabularies longer.
pub(super) const MAX_KEPT_NUMBERS: u64 = 16_384;
/// Alignment of tensor data where the file names none (GGUF specification).
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
/// Largest alignment accepted, bytes.
const MAX_ALIGNMENT: u64 = 64 * 1024;
/// Most dimensions of a tensor (`GGML_MAX_DIMS`).
const MAX_DIMS: u32 = 4;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer of any width, or a truth value.
    Unsigned(u64),
    /// A signed integer of any width.
    Signed(i64),
    /// A floating-point number of any width.
    Float(f64),
    /// A string.
    Text(String),
    /// A short array of integers or truth values.
    Integers(Vec<i64>),
    /// Anything longer, of which only the number of elements (or bytes of a string) is kept.
    Skipped(u64),
}

/// One row of the tensor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// Type of its values.
    pub kind: TensorType,
    /// Dimensions, innermost first; unused ones are 1.
    pub dims: [u64; 4],
    /// First byte, from the start of the file's data section.
    pub offset: u64,
    /// Bytes; of an unknown type the distance to the next tensor or the file's end.
    pub bytes: u64,
    /// Where the row's offset stands in the file.
    pub(super) offset_at: u64,
}

impl Tensor {
    /// Number of values.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// The header of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// GGUF version, 2 or 3.
    pub version: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors in the table's order.
    pub tensors: Vec<Tensor>,
    /// Bytes of metadata and tensor table.
    pub header_bytes: u64,
    /// First byte of the data section.
    pub data_start: u64,
    /// The file's length in bytes.
    pub file_bytes: u64,
}

impl Header {
    /// Reads a header from the start of a file of `size` bytes; the bytes read go into `hash`.
    ///
    /// # Errors
    /// See [`HeaderError`]; nothing larger than the rest of the file is ever allocated, and no header is longer than
    /// 256 MiB.
    pub fn read(inner: impl Read, size: u64, hash: &mut Sha256) -> Result<Self, HeaderError> {
        let mut source = Source::new(inner, size.min(MAX_HEADER_BYTES), hash);
        let version = read_version(&mut source)?;
        let tensor_count = read_count(&mut source, "tensor count", MAX_TENSORS, MIN_TENSOR_BYTES)?;
        let key_count = read_count(&mut source, "metadata count", MAX_KEYS, MIN_PAIR_BYTES)?;
        let (metadata, alignment) = read_metadata(&mut source, key_count)?;
        let mut tensors = Vec::new();
        for index in 0..tensor_count {
            tensors.push(read_tensor(&mut source, index, alignment)?);
        }
        refuse_duplicates(&tensors)?;
        let header_bytes = source.at();
        source.finish();
        let data_start = header_bytes.next_multiple_of(alignment);
        place(&mut tensors, size.saturating_sub(data_start))?;
        Ok(Self {
            version,
            metadata,
            tensors,
            header_bytes,
            data_start,
            file_bytes: size,
        })
    }

    /// A string value.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.metadata.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A value that is an integer ≥ 0.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match self.metadata.get(key)? {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}

fn read_version(source: &mut Source<'_, impl Read>) -> Result<u32, HeaderError> {
    /// Start of a Git LFS pointer, `version https://git-lfs…`.
    const LFS: [u8; 4] = *b"vers";
    let magic: [u8; 4] = match source.left() {
        0 => return Err(HeaderError::NotGguf("it is empty".to_owned())),
        1..4 => return Err(HeaderError::NotGguf("it has under 4 bytes".to_owned())),
        _ => source.array().map_err(|f| f.field("magic"))?,
    };
    if magic == LFS {
        let why = "it looks like a Git LFS pointer, fetch the real file with `git lfs pull`";
        return Err(HeaderError::NotGguf(why.to_owned()));
    }
    if magic != *b"GGUF" {
        let [a, b, c, d] = magic;
        let why = format!("it begins with {a:02x} {b:02x} {c:02x} {d:02x}");
        return Err(HeaderError::NotGguf(why));
    }
    let version = source.u32().map_err(|f| f.field("version"))?;
    match (version, version.swap_bytes()) {
        (0, _) => Err(corrupt("version", 4, "it is 0")),
        (1, _) => Err(HeaderError::TooOld(version)),
        (2 | 3, _) => Ok(version),
        (_, swapped @ 1..=3) => Err(HeaderError::BigEndian(swapped)),
        _ => Err(HeaderError::TooNew(version)),
    }
}

/// A count that the rest of the file can hold.
fn read_count(
    source: &mut Source<'_, impl Read>,
    field: &str,
    most: u64,
    bytes_each: u64,
) -> Result<u64, HeaderError> {
    let at = source.at();
    let count = source.u64().map_err(|f| f.field(field))?;
    if count > most {
        return Err(corrupt(field, at, format!("{count} is more than {most}")));
    }
    if count * bytes_each > source.left() {
        let left = text::count(source.left(), "byte");
        return Err(corrupt(
            field,
            at,
            format!("{count} do not fit into the {left} left"),
        ));
    }
    Ok(count)
}

fn read_metadata(
    source: &mut Source<'_, impl Read>,
    count: u64,
) -> Result<(BTreeMap<String, Value>, u64), HeaderError> {
    let mut metadata = BTreeMap::new();
    let mut alignment = DEFAULT_ALIGNMENT;
    for index in 0..count {
        let at = source.at();
        let key = read_name(source, || format!("name of key {}", index + 1))?;
        let value_at = source.at();
        let keep = !key.starts_with("tokenizer.") || key == "tokenizer.ggml.model";
        let value =
            read_value(source, keep).map_err(|f| f.field(format!("value of {}", shown(&key))))?;
        if key == "general.alignment" {
            alignment = match value {
                Value::Unsigned(n) if n.is_power_of_two() && n <= MAX_ALIGNMENT => n,
                _ => {
                    return Err(corrupt(
                        key,
                        value_at,
                        format!("it must be a power of two up to {MAX_ALIGNMENT}"),
                    ));
                }
            };
        }
        if metadata.contains_key(&key) {
            return Err(corrupt(
                format!("key {}", shown(&key)),
                at,
                "it appears twice",
            ));
        }
        metadata.insert(key, value);
    }
    Ok((metadata, alignment))
}

/// A key or tensor name.
fn read_name(
    source: &mut Source<'_, impl Read>,
    field: impl Fn() -> String,
) -> Result<String, HeaderError> {
    let at = source.at();
    match source
        .string(MAX_NAME_BYTES)
        .map_err(|f| f.field(field()))?
    {
        (0, _) => Err(corrupt(field(), at, "it is empty")),
        (_, Some(name)) => Ok(name),
        (len, None) => Err(corrupt(
            field(),
            at,
            format!("length {len} is more than {MAX_NAME_BYTES}"),
        )),
    }
}

/// Bytes of one element of a fixed-width value type.
fn width(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

fn read_value(source: &mut Source<'_, impl Read>, keep: bool) -> Result<Value, Fault> {
    let at = source.at();
    let kind = source.u32()?;
    match kind {
        STRING => {
            let keep = if keep { MAX_KEPT_STRING } else { 0 };
            let (len, text) = source.string(keep)?;
            Ok(text.map_or(Value::Skipped(len), Value::Text))
        }
        ARRAY => read_array(source, keep),
        _ if width(kind).is_some() => read_number(source, kind),
        _ => Err(Fault::bad(at, format!("value type {kind} does not exist"))),
    }
}

fn read_number(source: &mut Source<'_, impl Read>, kind: u32) -> Result<Value, Fault> {
    Ok(match kind {
        0 | 7 => Value::Unsigned(u8::from_le_bytes(source.array()?).into()),
        1 => Value::Signed(i8::from_le_bytes(source.array()?).into()),
        2 => Value::Unsigned(u16::from_le_bytes(source.array()?).into()),
        3 => Value::Signed(i16::from_le_bytes(source.array()?).into()),
        4 => Value::Unsigned(source.u32()?.into()),
        5 => Value::Signed(i32::from_le_bytes(source.array()?).into()),
        6 => Value::Float(f32::from_le_bytes(source.array()?).into()),
        10 => Value::Unsigned(source.u64()?),
        11 => Value::Signed(i64::from_le_bytes(source.array()?)),
        _ => Value::Float(f64::from_le_bytes(source.array()?)),
    })
}

fn read_array(source: &mut Source<'_, impl Read>, keep: bool) -> Result<Value, Fault> {
    let at = source.at();
    let kind = source.u32()?;
    let count = source.u64()?;
    let fits = |each: u64, left: u64| {
        let total = count.checked_mul(each).filter(|n| *n <= left);
        total.ok_or_else(|| {
            Fault::bad(
                at,
                format!(
                    "{count} elements do not fit into the {} left",
                    text::count(left, "byte")
                ),
            )
        })
    };
    if kind == ARRAY {
        return Err(Fault::bad(at, "arrays of arrays are not in use"));
    }
    if kind == STRING {
        fits(8, source.left())?;
        source.skip_strings(count)?;
        return Ok(Value::Skipped(count));
    }
    let Some(each) = width(kind) else {
        return Err(Fault::bad(at, format!("value type {kind} does not exist")));
    };
    let total = fits(each, source.left())?;
    if !keep || count > MAX_KEPT_NUMBERS {
        source.skip(total)?;
        return Ok(Value::Skipped(count));
    }
    let mut numbers = Vec::with_capacity(count as usize);
    let mut whole = true;
    for _ in 0..count {
        match read_number(source, kind)? {
            Value::Signed(n) => numbers.push(n),
            Value::Unsigned(n) => match i64::try_from(n) {
                Ok(n) => numbers.push(n),
                Err(_) => whole = false,
            },
            _ => whole = false,
        }
    }
    Ok(if whole {
        Value::Integers(numbers)
    } else {
        Value::Skipped(count)
    })
}

fn read_tensor(
    source: &mut Source<'_, impl Read>,
    index: u64,
    alignment: u64,
) -> Result<Tensor, HeaderError> {
    let name = read_name(source, || format!("name of tensor {}", index + 1))?;
    let of = |what: &str| format!("{what} of tensor {}", shown(&name));
    let rank_at = source.at();
    let rank = source.u32().map_err(|f| f.field(of("rank")))?;
    if rank == 0 || rank > MAX_DIMS {
        let why = format!("{rank} is not 1 to {MAX_DIMS}");
        return Err(corrupt(of("rank"), rank_at, why));
    }
    let mut dims = [1; 4];
    // The number of values must fit into an i64, as in ggml.
    let mut room = i64::MAX as u64;
    for dim in dims.iter_mut().take(rank as usize) {
        let at = source.at();
        *dim = source.u64().map_err(|f| f.field(of("dimension")))?;
        if *dim == 0 || *dim > room {
            let why = format!("{dim} is not 1 to {room}");
            return Err(corrupt(of("dimension"), at, why));
        }
        room /= *dim;
    }
    let kind_at = source.at();
    let kind = TensorType(source.u32().map_err(|f| f.field(of("type")))?);
    let offset_at = source.at();
    let offset = source.u64().map_err(|f| f.field(of("offset")))?;
    if !offset.is_multiple_of(alignment) {
        let why = format!("{offset} is no multiple of {alignment}");
        return Err(corrupt(of("offset"), offset_at, why));
    }
    let bytes = match kind.block() {
        None => 0,
        Some((values, _)) if !dims[0].is_multiple_of(values) => {
            let why = format!("rows of {} are not whole blocks of {kind}", dims[0]);
            return Err(corrupt(of("type"), kind_at, why));
        }
        Some((values, bytes)) => (dims.iter().product::<u64>() / values)
            .checked_mul(bytes)
            .ok_or_else(|| corrupt(of("dimension"), rank_at, "its size overflows"))?,
    };
    Ok(Tensor {
        name,
        kind,
        dims,
        offset,
        bytes,
        offset_at,
    })
}

fn refuse_duplicates(tensors: &[Tensor]) -> Result<(), HeaderError> {
    let mut seen = HashSet::new();
    match tensors.iter().find(|t| !seen.insert(t.name.as_str())) {
        Some(twice) => {
            let field = format!("tensor {}", shown(&twice.name));
            Err(corrupt(field, twice.offset_at, "it appears twice"))
        }
        None => Ok(()),
    }
}

/// Sizes unknown tensors by distance (case C33); refuses overlaps and data beyond the file's end.
fn place(tensors: &mut [Tensor], data_bytes: u64) -> Result<(), HeaderError> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| tensors[i].offset);
    let mut end = 0;
    for (nth, &index) in order.iter().enumerate() {
        let next = order.get(nth + 1).map(|&i| tensors[i].offset);
        let tensor = &mut tensors[index];
        let field = || format!("offset of tensor {}", shown(&tensor.name));
        if tensor.offset < end {
            let why = format!("{} lies inside the tensor before it", tensor.offset);
            return Err(corrupt(field(), tensor.offset_at, why));
        }
        if tensor.kind.block().is_none() {
            tensor.bytes = next.unwrap_or(data_bytes).saturating_sub(tensor.offset);
        }
        end = tensor
            .offset
            .checked_add(tensor.bytes)
            .ok_or_else(|| corrupt(field(), tensor.offset_at, "its end overflows"))?;
    }
    match end.saturating_sub(data_bytes) {
        0 => Ok(()),
        missing => Err(HeaderError::Short { missing }),
    }
}
