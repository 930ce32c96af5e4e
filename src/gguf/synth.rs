//! Writes a random-weight model (`flux model synth`): beside its target first, then renamed, so that a failed or
//! cancelled one leaves nothing behind.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use fastrand::Rng;
use tempfile::NamedTempFile;

use super::header::DEFAULT_ALIGNMENT;
use super::model::Model;
use super::shapes::{self, Field, Plan, Shape};
use super::tensor_type::TensorType;
use super::weights;
use crate::domain::types::{Bytes, ModelInfo};
use crate::ports::{CancelToken, PortError, PortResult, SynthRequest};

/// Bytes generated, written and reported at a time.
const CHUNK_BYTES: u64 = 4 * 1024 * 1024;
/// GGUF version written.
const VERSION: u32 = 3;
/// Value types of the GGUF specification.
const TYPE_U32: u32 = 4;
const TYPE_I32: u32 = 5;
const TYPE_F32: u32 = 6;
const TYPE_STRING: u32 = 8;
const TYPE_ARRAY: u32 = 9;

/// See [`crate::ports::Models::synthesise`]. The same shape and seed give the same file.
pub(super) fn synthesise(
    request: &SynthRequest,
    cancel: &CancelToken,
    progress: &mut dyn FnMut(u64, u64),
) -> PortResult<ModelInfo> {
    let output = &request.output;
    let shape = find(&request.shape)?;
    if fs::symlink_metadata(output).is_ok() {
        return Err(exists(output));
    }
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let plans = shape.tensors();
    let header = encode(&shape, &plans);
    let total = header.len() as u64 + plans.iter().map(padded).sum::<u64>();
    // Elsewhere a longer file takes its room at once.
    let on_disk = if request.sparse && cfg!(unix) {
        header.len() as u64
    } else {
        total
    };
    room_for(on_disk, free_bytes(folder), folder)?;

    let fail = |e: &io::Error| {
        PortError::caused(format!("cannot write model file: {}", output.display()), e)
    };
    let mut file = temporary(folder).map_err(|e| fail(&e))?;
    file.write_all(&header).map_err(|e| fail(&e))?;
    if request.sparse {
        file.as_file().set_len(total).map_err(|e| fail(&e))?;
        progress(total, total);
    } else {
        let mut report = |done| {
            progress(header.len() as u64 + done, total);
            !cancel.is_cancelled()
        };
        let whole = write_data(&shape, &plans, request.seed, &mut file, &mut report)
            .map_err(|e| fail(&e))?;
        if !whole {
            return Err(PortError::new(format!(
                "cancelled, nothing kept: {}",
                output.display()
            )));
        }
    }
    file.persist_noclobber(output)
        .map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => exists(output),
            _ => fail(&e.error),
        })?;
    Model::open(output).map(|model| model.info)
}

fn find(name: &str) -> PortResult<Shape> {
    let shapes = shapes::all();
    let known: Vec<_> = shapes.iter().map(|shape| shape.name.clone()).collect();
    shapes
        .into_iter()
        .find(|shape| shape.name == name)
        .ok_or_else(|| {
            PortError::new(format!("no model shape is named {name}"))
                .hint(format!("the shapes are {}", known.join(", ")))
        })
}

fn exists(output: &Path) -> PortError {
    if !output.is_file() {
        return PortError::new(format!(
            "not a place for a model file: {}",
            output.display()
        ))
        .hint("name a file that does not exist yet");
    }
    PortError::new(format!("file exists already: {}", output.display()))
        .hint("choose another name, or move it away")
}

/// A file that deletes itself unless it is given its name; readable as any other new file.
fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".flux-synth-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

fn room_for(need: u64, free: Option<u64>, folder: &Path) -> PortResult<()> {
    match free {
        Some(free) if free < need => Err(PortError::new(format!(
            "not enough disk space, {} needed and {} free: {}",
            Bytes(need),
            Bytes(free),
            folder.display()
        ))
        .hint("free some space, choose another folder, or use --sparse for planning only")),
        _ => Ok(()),
    }
}

/// Bytes that this user may still write below `folder`; nothing where the system does not tell.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

/// Bytes free on the disk of `folder`; nothing where the system does not tell.
#[cfg(not(unix))]
fn free_bytes(folder: &Path) -> Option<u64> {
    // Not canonical: that would be verbatim on Windows, and begin with no disk.
    let folder = std::path::absolute(folder).ok()?;
    let disks = sysinfo::Disks::new_with_refreshed_list().ok()?;
    disks
        .iter()
        .filter(|disk| folder.starts_with(disk.mount_point()))
        .max_by_key(|disk| disk.mount_point().as_os_str().len())
        .map(sysinfo::Disk::available_space)
}

fn padded(plan: &Plan) -> u64 {
    plan.bytes().next_multiple_of(DEFAULT_ALIGNMENT)
}

/// Header with its padding.
fn encode(shape: &Shape, plans: &[Plan]) -> Vec<u8> {
    let fields = shape.metadata();
    let mut out = Vec::new();
    out.extend(b"GGUF");
    out.extend(VERSION.to_le_bytes());
    out.extend((plans.len() as u64).to_le_bytes());
    out.extend((fields.len() as u64).to_le_bytes());
    for (key, field) in &fields {
        put_text(&mut out, key);
        put_field(&mut out, field);
    }
    let mut offset = 0;
    for plan in plans {
        put_text(&mut out, &plan.name);
        out.extend((plan.dims.len() as u32).to_le_bytes());
        for dim in &plan.dims {
            out.extend(dim.to_le_bytes());
        }
        out.extend(plan.kind.0.to_le_bytes());
        out.extend(u64::to_le_bytes(offset));
        offset += padded(plan);
    }
    out.resize(out.len().next_multiple_of(DEFAULT_ALIGNMENT as usize), 0);
    out
}

fn put_field(out: &mut Vec<u8>, field: &Field) {
    let mut kind = |kind: u32, count: Option<usize>| {
        if let Some(count) = count {
            out.extend(TYPE_ARRAY.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((count as u64).to_le_bytes());
        } else {
            out.extend(kind.to_le_bytes());
        }
    };
    match field {
        Field::U32(value) => {
            kind(TYPE_U32, None);
            out.extend(value.to_le_bytes());
        }
        Field::F32(value) => {
            kind(TYPE_F32, None);
            out.extend(value.to_le_bytes());
        }
        Field::Text(value) => {
            kind(TYPE_STRING, None);
            put_text(out, value);
        }
        Field::Texts(values) => {
            kind(TYPE_STRING, Some(values.len()));
            for value in values {
                put_text(out, value);
            }
        }
        Field::F32s(values) => {
            kind(TYPE_F32, Some(values.len()));
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Field::I32s(values) => {
            kind(TYPE_I32, Some(values.len()));
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// The value of tensors that are not random.
fn constant(plan: &Plan) -> Option<f32> {
    let (_, last) = plan.name.rsplit_once('.').unwrap_or_default();
    match last {
        "bias" => Some(0.0),
        // A state that decays: e to the power of this times a step.
        "ssm_a" => Some(-1.0),
        _ if plan.kind == TensorType::F32 && plan.dims.len() == 1 => Some(1.0),
        _ => None,
    }
}

/// Writes every tensor's data; `report` gets the bytes done and answers whether to go on.
/// Returns whether all was written.
fn write_data(
    shape: &Shape,
    plans: &[Plan],
    seed: u64,
    out: &mut impl Write,
    report: &mut dyn FnMut(u64) -> bool,
) -> io::Result<bool> {
    let mut rng = Rng::with_seed(seed);
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut done = 0;
    for plan in plans {
        let (_, block) = plan.kind.block().unwrap_or((1, 1));
        let whole_blocks = CHUNK_BYTES / block * block;
        let mut left = plan.bytes();
        while left > 0 {
            if !report(done) {
                return Ok(false);
            }
            let step = left.min(whole_blocks);
            let chunk = &mut buffer[..step as usize];
            match constant(plan) {
                Some(value) => weights::fill_with(value, chunk),
                None => weights::fill(plan.kind, shape.spread(plan), &mut rng, chunk),
            }
            out.write_all(chunk)?;
            left -= step;
            done += step;
        }
        let padding = (padded(plan) - plan.bytes()) as usize;
        out.write_all(&[0; DEFAULT_ALIGNMENT as usize][..padding])?;
        done += padding as u64;
    }
    Ok(report(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_before_the_first_byte() {
        let folder = Path::new("/models");
        let error = room_for(3 << 30, Some(1 << 30), folder).unwrap_err();
        let told = "not enough disk space, 3.00 GiB needed and 1.00 GiB free: /models";
        assert_eq!(error.headline, told);
        assert!(room_for(3 << 30, Some(3 << 30), folder).is_ok());
        assert!(room_for(3 << 30, None, folder).is_ok());
    }
}
