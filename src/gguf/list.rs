//! Every GGUF file below a folder: split sets once, broken files with what is wrong (cases C30, C34, C35).

use std::collections::HashSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, iter, panic, thread};

use super::model::Model;
use super::split::{SplitName, has_gguf_extension};
use crate::domain::types::{ModelInfo, ModelListing};
use crate::ports::{PortError, PortResult};

/// Folders below the given one that are entered; model collections are two or three deep.
const MAX_DEPTH: usize = 8;

/// See [`crate::ports::Models::list`].
pub(super) fn list(dir: &Path) -> PortResult<Vec<ModelListing>> {
    let mut walk = Walk::default();
    walk.enter(dir, 0).map_err(|error| {
        PortError::caused(format!("cannot read folder: {}", dir.display()), &error)
    })?;
    let mut sets = HashSet::new();
    walk.files.retain(|path| {
        let set = SplitName::of(path).map(|name| (name.prefix, name.count));
        set.is_none_or(|set| sets.insert(set))
    });
    let mut listings = walk.unreadable;
    listings.extend(look_at_all(&walk.files));
    listings.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listings)
}

/// Reads headers on every core: one takes milliseconds, a large collection would take many seconds.
fn look_at_all(files: &[PathBuf]) -> Vec<ModelListing> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mine = iter::from_fn(|| files.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.map(|path| look_at(path.clone())).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..cores.min(files.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let mut listings = work();
        for other in others {
            // A panic goes on in the caller, as if it had read the file itself.
            listings.extend(other.join().unwrap_or_else(|p| panic::resume_unwind(p)));
        }
        listings
    })
}

fn look_at(path: PathBuf) -> ModelListing {
    match Model::open(&path) {
        Ok(Model { info, .. }) => ModelListing {
            path: info.path.clone(),
            model: Some(info),
            problem: None,
        },
        Err(error) => {
            // The listing names the file by itself.
            let end = format!(": {}", path.display());
            let problem = error.headline.strip_suffix(&end);
            let problem = problem.unwrap_or(&error.headline).to_owned();
            listing(path, None, Some(problem))
        }
    }
}

fn listing(path: PathBuf, model: Option<ModelInfo>, problem: Option<String>) -> ModelListing {
    ModelListing {
        path,
        model,
        problem,
    }
}

#[derive(Default)]
struct Walk {
    files: Vec<PathBuf>,
    unreadable: Vec<ModelListing>,
    /// Real paths of the folders entered: a link back to one of them ends there.
    entered: HashSet<PathBuf>,
}

impl Walk {
    fn enter(&mut self, dir: &Path, depth: usize) -> std::io::Result<()> {
        if !self.entered.insert(fs::canonicalize(dir)?) {
            return Ok(());
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir)? {
            paths.push(entry?.path());
        }
        paths.sort();
        for path in paths {
            if path.is_dir() {
                if depth == MAX_DEPTH {
                    continue;
                }
                if let Err(error) = self.enter(&path, depth + 1) {
                    let problem = format!("cannot read folder ({error}): {}", path.display());
                    self.unreadable.push(listing(path, None, Some(problem)));
                }
            } else if has_gguf_extension(&path) {
                self.files.push(path);
            }
        }
        Ok(())
    }
}
