//! `search-space.toml`: the owner's own search space, instead of the one that ships with Flux.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::domain::search::SearchSpace;
use crate::ports::{Notice, NoticeLevel, PortError, PortResult, SearchSpaces};

/// Its name in the data folder.
const FILE: &str = "search-space.toml";

/// The search space of one data folder.
pub struct SpaceFile {
    path: PathBuf,
    state: RwLock<State>,
}

struct State {
    space: Arc<SearchSpace>,
    is_own: bool,
}

impl State {
    fn shipped() -> Self {
        Self {
            space: Arc::default(),
            is_own: false,
        }
    }
}

impl SpaceFile {
    /// That of `data_dir`; a file that cannot be used is left as it is, and said.
    pub fn open(data_dir: &Path) -> (Self, Option<Notice>) {
        let path = data_dir.join(FILE);
        let (state, notice) = match read(&path) {
            Ok(Some((space, _))) => (own(space), None),
            Ok(None) => (State::shipped(), None),
            Err(why) => {
                let text = format!(
                    "{why}; the search space that ships with Flux is used instead of {}",
                    path.display()
                );
                let notice = Notice {
                    level: NoticeLevel::Warning,
                    code: "search-space-refused".to_owned(),
                    text,
                };
                (State::shipped(), Some(notice))
            }
        };
        let state = RwLock::new(state);
        (Self { path, state }, notice)
    }

    fn set(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn get<T>(&self, of: impl FnOnce(&State) -> T) -> T {
        of(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn own(space: SearchSpace) -> State {
    State {
        space: Arc::new(space),
        is_own: true,
    }
}

/// A file's space and its text; `None` where there is no file.
fn read(path: &Path) -> Result<Option<(SearchSpace, String)>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("the search space cannot be read: {e}")),
    };
    let space = SearchSpace::parse(&text).map_err(|e| e.to_string())?;
    Ok(Some((space, text)))
}

impl SearchSpaces for SpaceFile {
    fn current(&self) -> Arc<SearchSpace> {
        self.get(|state| Arc::clone(&state.space))
    }

    fn own_file(&self) -> Option<PathBuf> {
        self.get(|state| state.is_own.then(|| self.path.clone()))
    }

    fn install(&self, file: &Path) -> PortResult<()> {
        let refused = |why: &str| {
            PortError::new(format!("{why}: {}", file.display()))
                .hint("nothing was changed: correct the file, then install it again")
        };
        let (space, text) = read(file)
            .map_err(|why| refused(&why))?
            .ok_or_else(|| refused("there is no such file"))?;
        super::write(&self.path, &text).map_err(|e| {
            let headline = format!(
                "the search space cannot be written: {}",
                self.path.display()
            );
            PortError::caused(headline, &e).hint("allow writing there, or free space")
        })?;
        self.set(own(space));
        Ok(())
    }

    fn reset(&self) -> PortResult<()> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let headline = format!("the file cannot be deleted: {}", self.path.display());
                return Err(PortError::caused(headline, &e).hint("allow writing there"));
            }
            _ => {}
        }
        self.set(State::shipped());
        Ok(())
    }
}
