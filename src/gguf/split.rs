//! Names of split models (`NAME-00001-of-00003.gguf`) and the set of parts a path stands for (case C30).

use std::fs;
use std::path::{Path, PathBuf};

use crate::ports::{PortError, PortResult};

/// Digits of a part's number in a file name, as llama.cpp writes them (`%05d`).
const DIGITS: usize = 5;

/// What a file name says about splitting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SplitName {
    /// The name without the part numbers, with its folder.
    pub(super) prefix: PathBuf,
    /// This part's number, from 1.
    pub(super) part: u32,
    /// Number of parts, at least 2.
    pub(super) count: u32,
}

impl SplitName {
    /// Reads `PREFIX-PPPPP-of-NNNNN.gguf`; nothing for a whole model, also one of a single part.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, part) = rest.rsplit_once('-')?;
        let number = |text: &str| {
            let digits = text.len() == DIGITS && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (part, count) = (number(part)?, number(count)?);
        (count > 1 && (1..=count).contains(&part)).then(|| Self {
            prefix: path.with_file_name(prefix),
            part,
            count,
        })
    }

    /// Path of the part with this number.
    pub(super) fn path(&self, part: u32) -> PathBuf {
        let count = self.count;
        let mut name = self.prefix.clone().into_os_string();
        name.push(format!("-{part:05}-of-{count:05}.gguf"));
        name.into()
    }

    /// Every part, in order.
    ///
    /// # Errors
    /// A part is missing.
    pub(super) fn parts(&self) -> PortResult<Vec<PathBuf>> {
        let (there, missing): (Vec<_>, Vec<_>) =
            (1..=self.count).partition(|&part| self.path(part).is_file());
        let Some(&first) = missing.first() else {
            return Ok(there.into_iter().map(|part| self.path(part)).collect());
        };
        let what = match missing.len() {
            1 => format!("part {first} of {} is missing", self.count),
            n => format!(
                "part {first} of {} and {} more are missing",
                self.count,
                n - 1
            ),
        };
        let path = self.path(first);
        Err(PortError::new(format!("{what}: {}", path.display()))
            .hint("download it into the same folder, under this name"))
    }
}

/// Is it named like a GGUF file?
pub(super) fn has_gguf_extension(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

/// The parts of the model that `path`, a file or a folder with one model, stands for.
///
/// # Errors
/// Nothing there, a missing part, a folder with no model or several.
pub(super) fn parts_of(path: &Path) -> PortResult<Vec<PathBuf>> {
    let shown = path.display();
    let meta = fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => PortError::new(format!("no such model file: {shown}"))
            .hint("list the models of a folder with `flux models DIR`"),
        _ => PortError::caused(format!("cannot read model file: {shown}"), &e),
    })?;
    if meta.is_dir() {
        return only_model_in(path);
    }
    if !meta.is_file() {
        return Err(PortError::new(format!("not a regular file: {shown}")));
    }
    match SplitName::of(path) {
        Some(name) => name.parts(),
        None => Ok(vec![path.to_owned()]),
    }
}

/// The one model of a folder; projectors belong to it and do not count (case C35).
fn only_model_in(dir: &Path) -> PortResult<Vec<PathBuf>> {
    let shown = dir.display();
    let entries = fs::read_dir(dir)
        .map_err(|e| PortError::caused(format!("cannot read folder: {shown}"), &e))?;
    let mut found: Vec<PathBuf> = ggufs(entries)
        .filter(|path| !named_projector(path))
        .collect();
    found.sort();
    let mut seen = Vec::new();
    found.retain(|path| match SplitName::of(path) {
        Some(name) => {
            let set = (name.prefix, name.count);
            let new = !seen.contains(&set);
            seen.push(set);
            new
        }
        None => true,
    });
    match found.as_slice() {
        [] => Err(PortError::new(format!("no GGUF file in folder: {shown}"))),
        [one] => match SplitName::of(one) {
            Some(name) => name.parts(),
            None => Ok(found),
        },
        many => Err(PortError::new(format!(
            "folder holds {} models, name one of them: {shown}",
            many.len()
        ))
        .hint(format!("for example {}", many[0].display()))),
    }
}

/// Files named as projectors in the folder of `model` (case C35); none where it holds several models, which could be any's.
pub(super) fn projectors_beside(model: &Path) -> Vec<PathBuf> {
    let folder = if model.is_dir() {
        Some(model)
    } else {
        model.parent()
    };
    // The folder of a bare file name is the working folder.
    let folder = folder.map(|f| {
        if f.as_os_str().is_empty() {
            Path::new(".")
        } else {
            f
        }
    });
    let lone = folder.filter(|folder| only_model_in(folder).is_ok());
    let entries = lone.and_then(|folder| fs::read_dir(folder).ok());
    entries
        .map(|entries| {
            ggufs(entries)
                .filter(|path| named_projector(path))
                .collect()
        })
        .unwrap_or_default()
}

fn ggufs(entries: fs::ReadDir) -> impl Iterator<Item = PathBuf> {
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| has_gguf_extension(path) && path.is_file())
}

/// llama.cpp's naming of projector files.
fn named_projector(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.to_ascii_lowercase().contains("mmproj"))
}
