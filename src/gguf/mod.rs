//! Model files: our own GGUF reader, which trusts no length, and random-weight models with real shapes
//! (design section 8, `flux models`, `flux model synth`; cases C29 to C35).

mod error;
mod header;
mod hparams;
mod keys;
mod layout;
mod list;
mod model;
mod shapes;
mod source;
mod split;
mod synth;
mod tensor_class;
mod tensor_type;
mod vocabulary;
mod weights;
mod windows;

use std::path::{Path, PathBuf};

use crate::domain::placement::layout::ModelLayout;
use crate::domain::types::{ModelInfo, ModelKind, ModelListing};
use crate::ports::{CancelToken, Models, PortResult, SynthRequest};

pub use error::HeaderError;
pub use header::{Header, Tensor, Value};
pub use model::Model;
pub use tensor_type::TensorType;

/// Model folders of llama.cpp, Hugging Face and LM Studio, below the home folder.
const USUAL: &[&str] = &[
    "models",
    ".cache/llama.cpp",
    "Library/Caches/llama.cpp",
    "AppData/Local/llama.cpp",
    ".cache/huggingface/hub",
    ".lmstudio/models",
    ".cache/lm-studio/models",
];

/// Model files on this machine's disks.
#[derive(Debug, Clone, Copy, Default)]
pub struct GgufModels;

impl Models for GgufModels {
    fn inspect(&self, path: &Path) -> PortResult<ModelInfo> {
        Model::open(path).map(|model| model.info)
    }

    fn layout(&self, path: &Path) -> PortResult<ModelLayout> {
        layout::of(&Model::open(path)?)
    }

    fn projector(&self, model: &Path) -> Option<ModelInfo> {
        let beside = split::projectors_beside(model).into_iter();
        let read = beside.filter_map(|path| self.inspect(&path).ok());
        read.filter(|info| info.kind == ModelKind::Projector)
            .max_by_key(|info| info.tensor_bytes)
    }

    fn list(&self, dir: &Path) -> PortResult<Vec<ModelListing>> {
        list::list(dir)
    }

    fn synthesise(
        &self,
        request: &SynthRequest,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(u64, u64),
    ) -> PortResult<ModelInfo> {
        synth::synthesise(request, cancel, progress)
    }

    fn shapes(&self) -> Vec<String> {
        shapes::all().into_iter().map(|shape| shape.name).collect()
    }

    fn usual_dirs(&self) -> Vec<PathBuf> {
        let home = directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned());
        home.map_or_else(Vec::new, |home| {
            USUAL.iter().map(|dir| home.join(dir)).collect()
        })
    }
}
