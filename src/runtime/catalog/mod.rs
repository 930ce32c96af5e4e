//! The llama.cpp builds Flux knows: installed, added by the user, or found in the usual places (design section 4).

mod memory;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::types::{Backend, Runtime, RuntimeDevice, RuntimeOrigin};
use crate::ports::{CancelToken, InstallProgress, NewRuntime, PortError, PortResult, Runtimes};
use crate::runtime::digest;
use crate::runtime::identify::{self, Located};
use crate::runtime::install::{Installer, Pins, REMOVING_PREFIX};

use memory::{Added, Known, Memory, Outcome, key};

pub use places::{Place, Surroundings};

/// Folder below the data folder that holds the builds Flux installed.
const INSTALLED: &str = "runtimes";
/// File below the data folder with what the catalogue remembers.
const MEMORY: &str = "runtimes.json";

/// A refusal is remembered only where finding it took this long: a missing library may be installed any time, and a
/// program that hangs must not delay every scan.
const SLOW_REFUSAL: Duration = Duration::from_secs(2);

/// A folder that may hold a build, and the variables it is used with.
struct Candidate {
    dir: PathBuf,
    origin: RuntimeOrigin,
    env: BTreeMap<String, String>,
}

impl Candidate {
    fn plain(dir: PathBuf, origin: RuntimeOrigin) -> Self {
        Self {
            dir,
            origin,
            env: BTreeMap::new(),
        }
    }
}

/// The catalogue of one data folder.
pub struct Catalog {
    memory_file: PathBuf,
    installed_dir: PathBuf,
    places: Vec<Place>,
    installer: PortResult<Installer>,
    /// One at a time: the file is read, changed and written under it.
    lock: Mutex<()>,
}

impl Catalog {
    /// The catalogue of `data_dir` on this machine.
    pub fn new(data_dir: &Path) -> Self {
        let surroundings = Surroundings::here();
        let tool_path = surroundings.path.clone().unwrap_or_default();
        Self::with(data_dir, surroundings.places(), Pins::built_in(), tool_path)
    }

    /// A catalogue that looks at `places`, installs what `pins` lists and finds build tools in `tool_path`.
    pub fn with(
        data_dir: &Path,
        places: Vec<Place>,
        pins: PortResult<Pins>,
        tool_path: OsString,
    ) -> Self {
        let data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let installed_dir = data_dir.join(INSTALLED);
        Self {
            memory_file: data_dir.join(MEMORY),
            installer: pins.map(|pins| Installer {
                runtimes_dir: installed_dir.clone(),
                pins,
                tool_path,
            }),
            installed_dir,
            places,
            lock: Mutex::new(()),
        }
    }

    /// Every build, the best first, and what was wrong with folders that should hold one.
    pub fn list_with_problems(&self) -> (Vec<Runtime>, Vec<PortError>) {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = Memory::load(&self.memory_file);
        let before = memory.clone();
        let listing = self.look(&mut memory);
        if memory != before
            && let Err(error) = memory.save(&self.memory_file)
        {
            // The list is right without it, only slower the next time.
            tracing::warn!("{error}");
        }
        listing
    }

    fn look(&self, memory: &mut Memory) -> (Vec<Runtime>, Vec<PortError>) {
        let mut found: Vec<Runtime> = Vec::new();
        let mut problems = Vec::new();
        let (mut dirs, mut digests) = (BTreeSet::new(), BTreeSet::new());
        let drivers = identify::driver_stamp();
        for Candidate { dir, origin, env } in self.candidates(memory) {
            let located = match identify::locate(&dir) {
                Ok(located) => located,
                // Most usual places hold nothing; an added or installed folder that is gone is worth a word.
                Err(_) if origin == RuntimeOrigin::Found => continue,
                Err(error) => {
                    let gone = remembered_of_added(memory)
                        .into_iter()
                        .find(|known| known.dir == dir && known.env == env);
                    let name = gone.map_or_else(|| "NAME".to_owned(), |known| known.name);
                    let hint = format!("If it is gone for good: `flux runtime remove {name}`");
                    problems.push(error.hint(hint));
                    continue;
                }
            };
            let canonical = located.dir.canonicalize();
            let canonical = canonical.unwrap_or_else(|_| located.dir.clone());
            if !dirs.insert((canonical, env.clone())) {
                continue;
            }
            match remembered(memory, &located, &env, &drivers, origin, &dir) {
                Ok(runtime) if digests.insert(runtime.digest.clone()) => found.push(runtime),
                Ok(_) => {}
                Err(error) => problems.push(error),
            }
        }
        found.sort_by_key(|runtime| {
            let is_found = runtime.origin == RuntimeOrigin::Found;
            let is_cpu = runtime.devices.is_empty();
            (
                is_found,
                is_cpu,
                !has_gpu_backend(runtime),
                u64::MAX - runtime.build_number,
                runtime.name.clone(),
            )
        });
        (found, problems)
    }

    /// Folders that may hold a build, in the order in which the first of two equal builds is kept.
    fn candidates(&self, memory: &Memory) -> Vec<Candidate> {
        let installed = folders_in(&self.installed_dir)
            .into_iter()
            .map(|dir| Candidate::plain(dir, RuntimeOrigin::Installed));
        let added = memory.added.iter().map(|added| {
            let (dir, env) = added.parts();
            Candidate {
                env,
                ..Candidate::plain(dir.to_owned(), RuntimeOrigin::Added)
            }
        });
        let found = self
            .places
            .iter()
            .flat_map(Place::folders)
            .map(|dir| Candidate::plain(dir, RuntimeOrigin::Found));
        installed.chain(added).chain(found).collect()
    }

    /// The folder directly below the installed ones that holds `dir`.
    fn installed_folder(&self, dir: &Path) -> Option<PathBuf> {
        match dir
            .strip_prefix(&self.installed_dir)
            .ok()?
            .components()
            .next()?
        {
            Component::Normal(name) => Some(self.installed_dir.join(name)),
            _ => None,
        }
    }

    fn identify_dir(
        &self,
        dir: &Path,
        env: &BTreeMap<String, String>,
        origin: RuntimeOrigin,
        memory: &mut Memory,
    ) -> PortResult<Runtime> {
        let located = identify::locate(dir)?;
        // Named by the user, a folder refused before gets another chance.
        let is_refused = |known: &Known| matches!(known.outcome, Outcome::Refused { .. });
        let place = key(&located.dir, env);
        if memory.known.get(&place).is_some_and(is_refused) {
            memory.known.remove(&place);
        }
        // With variables it is the user's own build, and the installed one stays beside it.
        let installed = self.installed_folder(&located.dir);
        let installed = installed.filter(|_| env.is_empty());
        let origin = installed
            .as_ref()
            .map_or(origin, |_| RuntimeOrigin::Installed);
        let top = installed.unwrap_or_else(|| located.dir.clone());
        let drivers = identify::driver_stamp();
        remembered(memory, &located, env, &drivers, origin, &top)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Memory) -> PortResult<T>) -> PortResult<T> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = Memory::load(&self.memory_file);
        let done = change(&mut memory)?;
        memory.save(&self.memory_file)?;
        Ok(done)
    }

    fn unknown(name: &str, known: &[Runtime]) -> PortError {
        let names: Vec<_> = known.iter().map(|runtime| runtime.name.as_str()).collect();
        let error = PortError::new(format!("no llama.cpp build and no folder is called {name}"));
        if names.is_empty() {
            error.hint("None is known yet: `flux runtime install`, or `flux runtime add DIR`")
        } else {
            error.hint(format!("Known builds: {}", names.join(", ")))
        }
    }
}

impl Runtimes for Catalog {
    fn list(&self) -> Vec<Runtime> {
        let (found, problems) = self.list_with_problems();
        for problem in problems {
            tracing::warn!("{problem}");
        }
        found
    }

    fn devices_with(
        &self,
        runtime: &Runtime,
        servers: &[String],
    ) -> PortResult<Vec<RuntimeDevice>> {
        identify::remote::devices(runtime, servers)
    }

    fn resolve(&self, name_or_dir: &str) -> PortResult<Runtime> {
        let (known, _) = self.list_with_problems();
        if let Some(runtime) = known.iter().find(|runtime| runtime.name == name_or_dir) {
            return Ok(runtime.clone());
        }
        let dir = Path::new(name_or_dir);
        if !dir.exists() {
            return Err(Self::unknown(name_or_dir, &known));
        }
        let located = identify::locate(dir)?;
        // Of several in one folder, the one without variables of its own.
        let here = known.into_iter().filter(|r| r.dir == located.dir);
        if let Some(runtime) = here.min_by_key(|r| r.env.len()) {
            return Ok(runtime);
        }
        let none = BTreeMap::new();
        self.change(|memory| self.identify_dir(dir, &none, RuntimeOrigin::Found, memory))
    }

    fn add(&self, new: &NewRuntime) -> PortResult<Runtime> {
        let (known, _) = self.list_with_problems();
        self.change(|memory| {
            let mut runtime =
                self.identify_dir(&new.dir, &new.env, RuntimeOrigin::Added, memory)?;
            // Results belong to a build, wherever it lies: two folders of one would take each other's name.
            let twin = |r: &&Runtime| r.digest == runtime.digest && r.dir != runtime.dir;
            if let Some(twin) = known.iter().find(twin) {
                let (dir, name) = (runtime.dir.display(), &twin.name);
                let text = format!(
                    "{dir} holds the build that is known as {name}, in {}",
                    twin.dir.display()
                );
                return Err(PortError::new(text).hint(format!(
                    "use it as {name}; for the other folder, `flux runtime remove {name}` first"
                )));
            }
            if let Some(name) = &new.name {
                memory.rename(&runtime.digest, name)?;
                runtime.name.clone_from(name);
            }
            let added = Added::new(runtime.dir.clone(), runtime.env.clone());
            if runtime.origin == RuntimeOrigin::Added && !memory.added.contains(&added) {
                memory.added.push(added);
            }
            Ok(runtime)
        })
    }

    fn remove(&self, name: &str) -> PortResult<Runtime> {
        let (known, _) = self.list_with_problems();
        self.change(|memory| {
            // An added folder that is gone is no longer listed, yet must be removable.
            let runtime = known
                .iter()
                .chain(&remembered_of_added(memory))
                .find(|runtime| runtime.name == name)
                .cloned()
                .ok_or_else(|| Self::unknown(name, &known))?;
            match (runtime.origin, self.installed_folder(&runtime.dir)) {
                (RuntimeOrigin::Installed, Some(folder)) => delete(&folder)?,
                (RuntimeOrigin::Added, _) => {
                    let gone = Added::new(runtime.dir.clone(), runtime.env.clone());
                    memory.added.retain(|added| *added != gone);
                }
                _ => {
                    return Err(PortError::new(format!(
                        "{name} was not installed or added by Flux, so it is left alone: {}",
                        runtime.dir.display()
                    ))
                    .hint("Flux finds it in a usual folder; uninstall it with what installed it"));
                }
            }
            memory.known.remove(&key(&runtime.dir, &runtime.env));
            memory.names.remove(&runtime.digest);
            Ok(runtime)
        })
    }

    fn install(
        &self,
        backend: Backend,
        cancel: &CancelToken,
        progress: &mut dyn FnMut(InstallProgress),
    ) -> PortResult<Runtime> {
        let installer = self.installer.as_ref().map_err(Clone::clone)?;
        let dir = installer.install(backend, cancel, progress)?;
        let none = BTreeMap::new();
        self.change(|memory| self.identify_dir(&dir, &none, RuntimeOrigin::Installed, memory))
    }
}

/// The identification of `located` from memory, or a new one where files or drivers have changed since.
fn remembered(
    memory: &mut Memory,
    located: &Located,
    env: &BTreeMap<String, String>,
    drivers: &str,
    origin: RuntimeOrigin,
    folder: &Path,
) -> PortResult<Runtime> {
    let files = digest::runtime_files(&located.dir)
        .map_err(|e| PortError::caused(format!("cannot read {}", located.dir.display()), &e))?;
    let stamp = format!("{}-{drivers}", digest::stamp(&files));
    let place = key(&located.dir, env);
    let known = memory
        .known
        .get(&place)
        .filter(|known| known.stamp == stamp);
    let outcome = if let Some(known) = known {
        known.outcome.clone()
    } else {
        let begun = Instant::now();
        let outcome = match identify::identify_located(located, env) {
            Ok(runtime) => Outcome::Runtime(Box::new(runtime)),
            Err(PortError { headline, hint, .. }) => Outcome::Refused { headline, hint },
        };
        let is_refused = matches!(outcome, Outcome::Refused { .. });
        if !is_refused || begun.elapsed() > SLOW_REFUSAL {
            let known = Known {
                stamp,
                outcome: outcome.clone(),
            };
            memory.known.insert(place, known);
        }
        outcome
    };
    match outcome {
        Outcome::Refused { headline, hint } => Err(PortError {
            headline,
            hint,
            cause: Vec::new(),
        }),
        Outcome::Runtime(runtime) => {
            let mut runtime = *runtime;
            let folder_name = folder
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let proposed = match (origin, folder_name) {
                (RuntimeOrigin::Installed, Some(name)) => name,
                _ => runtime.name.clone(),
            };
            runtime.name = memory.name_for(&runtime.digest, &proposed);
            runtime.origin = origin;
            Ok(runtime)
        }
    }
}

fn remembered_of_added(memory: &Memory) -> Vec<Runtime> {
    let known = |added: &Added| match &memory.known.get(&added.key())?.outcome {
        Outcome::Runtime(runtime) => {
            let mut runtime = (**runtime).clone();
            runtime.name = memory.names.get(&runtime.digest)?.clone();
            runtime.origin = RuntimeOrigin::Added;
            Some(runtime)
        }
        Outcome::Refused { .. } => None,
    };
    memory.added.iter().filter_map(known).collect()
}

fn has_gpu_backend(runtime: &Runtime) -> bool {
    runtime
        .backends
        .iter()
        .any(|backend| !matches!(backend, Backend::Cpu | Backend::Rpc))
}

/// Folders in `dir` whose names do not start with a dot, sorted.
fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

/// Deletes a folder; renamed first, so that a deletion cut short leaves no build with half its files.
fn delete(folder: &Path) -> PortResult<()> {
    let error = |e: std::io::Error| {
        PortError::caused(
            format!("the build's folder cannot be deleted: {}", folder.display()),
            &e,
        )
        .hint("End every program that uses it, then try again")
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let hidden = folder.with_file_name(format!("{REMOVING_PREFIX}{name}"));
    fs::rename(folder, &hidden).map_err(error)?;
    fs::remove_dir_all(&hidden).map_err(error)
}
