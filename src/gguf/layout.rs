//! The planner's view of a model from its headers: every tensor with its block and class, what each block keeps
//! (cases C31, C32).

use super::header::{Header, Tensor, Value};
use super::hparams::{self, Blocks};
use super::keys::Keys;
use super::model::Model;
use super::tensor_class::{of_layer, of_model, split_layer};
use crate::domain::placement::layout::{
    ExpertShape, LayerShape, ModelLayout, TensorClass, TensorEntry,
};
use crate::domain::types::{Bytes, ModelKind};
use crate::ports::{PortError, PortResult};

/// See [`crate::ports::Models::layout`].
pub(super) fn of(model: &Model) -> PortResult<ModelLayout> {
    let info = &model.info;
    let place = || format!(": {}", info.path.display());
    let layers = info.layers.filter(|_| info.kind == ModelKind::Model);
    let Some(layers) = layers else {
        let text = format!("no model with layers, nothing to place{}", place());
        return Err(PortError::new(text).hint("give the language model itself"));
    };
    let first = &model.headers[0];
    let wrong =
        |why: String| PortError::new(format!("{why}{}", place())).hint("download the file again");
    let keys = Keys::new(first, &info.architecture, layers).map_err(wrong)?;
    let mut blocks = Blocks::read(keys).map_err(wrong)?;
    let loaded = blocks.layers.len() as u64 - blocks.predicted;
    let mut tensors = entries(&model.headers, &info.architecture, &blocks.layers);
    tensors.retain(|t| t.layer.is_none_or(|layer| u64::from(layer) < loaded));
    for tensor in &tensors {
        add_width(&mut blocks.layers, tensor);
    }
    let named = |name: &str| tensors.iter().find(|t| t.name == name);
    let table = named("output.weight").or(named("token_embd.weight"));
    let tied_embeddings = named("output.weight").is_none()
        && named("token_embd.weight").is_some()
        && !hparams::is_encoder(&info.architecture);
    Ok(ModelLayout {
        embedding: keys.number("embedding_length").unwrap_or(0),
        vocabulary: table.map_or_else(|| told_vocabulary(first, keys), |t| t.dims[1]),
        experts: experts(keys, &tensors).map_err(wrong)?,
        tied_embeddings,
        layers: blocks.layers,
        notices: blocks.notices,
        tensors,
        info: info.clone(),
    })
}

fn entries(headers: &[Header], architecture: &str, layers: &[LayerShape]) -> Vec<TensorEntry> {
    let all = headers.iter().flat_map(|header| &header.tensors);
    all.map(|tensor| entry(tensor, architecture, layers))
        .collect()
}

fn entry(tensor: &Tensor, architecture: &str, layers: &[LayerShape]) -> TensorEntry {
    let (number, name) = split_layer(&tensor.name);
    let shape = number.and_then(|n| layers.get(n as usize));
    let class = match shape {
        Some(shape) => {
            let linear = shape.recurrent.is_some() && shape.attention.is_none();
            of_layer(name, linear)
        }
        None => of_model(&tensor.name, architecture),
    };
    TensorEntry {
        name: tensor.name.clone(),
        layer: number.filter(|_| shape.is_some()),
        class,
        kind: tensor.kind.to_string(),
        dims: tensor.dims,
        bytes: Bytes(tensor.bytes),
    }
}

/// The down projections say how wide the dense part and the shared experts are: the header's number stands also in
/// files whose layers have no such part.
fn add_width(layers: &mut [LayerShape], tensor: &TensorEntry) {
    let (_, name) = split_layer(&tensor.name);
    let shape = tensor.layer.and_then(|n| layers.get_mut(n as usize));
    if let (Some(shape), "ffn_down.weight" | "ffn_down_shexp.weight") = (shape, name) {
        shape.feed_forward = shape.feed_forward.saturating_add(tensor.dims[0]);
    }
}

fn told_vocabulary(header: &Header, keys: Keys<'_>) -> u64 {
    let tokens = match header.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Skipped(count)) => Some(*count),
        _ => None,
    };
    header
        .unsigned(&format!("{}.vocab_size", keys.architecture))
        .or(tokens)
        .unwrap_or(0)
}

fn experts(keys: Keys<'_>, tensors: &[TensorEntry]) -> Result<Option<ExpertShape>, String> {
    let Some((count, used)) = keys.experts()? else {
        return Ok(None);
    };
    let down = tensors
        .iter()
        .find(|t| t.class == TensorClass::Experts && t.name.ends_with("ffn_down_exps.weight"));
    let told = || keys.largest("expert_feed_forward_length");
    Ok(Some(ExpertShape {
        count,
        used,
        feed_forward: down
            .map(|t| t.dims[0])
            .or_else(told)
            .or_else(|| keys.largest("feed_forward_length"))
            .unwrap_or(0),
    }))
}
