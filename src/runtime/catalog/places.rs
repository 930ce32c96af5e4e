//! Where llama.cpp builds are usually found on each system: pure path lists, so that every system's is tested on all.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What the list of places depends on.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `std::env::consts::OS`.
    pub os: String,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// `PATH`.
    pub path: Option<OsString>,
    /// `LOCALAPPDATA` (Windows).
    pub local_app_data: Option<PathBuf>,
    /// `ProgramFiles` (Windows).
    pub program_files: Option<PathBuf>,
    /// `ProgramData` (Windows).
    pub program_data: Option<PathBuf>,
    /// `SCOOP`, where scoop is not at home (Windows).
    pub scoop: Option<PathBuf>,
}

/// One place to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This folder and its usual subfolders.
    Folder(PathBuf),
    /// Every folder in `parent` whose name starts with `prefix`, and `inside` of it.
    Each {
        /// Folder to list.
        parent: PathBuf,
        /// Start of the wanted names.
        prefix: &'static str,
        /// Path below each.
        inside: &'static str,
    },
}

impl Surroundings {
    /// Those of this process.
    pub fn here() -> Self {
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
        Self {
            os: std::env::consts::OS.to_owned(),
            home: directories::UserDirs::new().map(|dirs| dirs.home_dir().to_owned()),
            path: std::env::var_os("PATH"),
            local_app_data: folder("LOCALAPPDATA"),
            program_files: folder("ProgramFiles"),
            program_data: folder("ProgramData"),
            scoop: folder("SCOOP"),
        }
    }

    /// The places to look at, the likeliest first.
    pub fn places(&self) -> Vec<Place> {
        let mut places: Vec<_> = self.on_path().into_iter().map(Place::Folder).collect();
        match self.os.as_str() {
            "windows" => self.windows(&mut places),
            "macos" => places.extend(folders(&[
                "/opt/homebrew/bin",
                "/usr/local/bin",
                "/opt/llama.cpp",
            ])),
            _ => places.extend(folders(&[
                "/usr/local/bin",
                "/usr/bin",
                "/usr/libexec/llama.cpp",
                "/opt/llama.cpp",
                "/home/linuxbrew/.linuxbrew/bin",
            ])),
        }
        if let Some(home) = &self.home {
            places.extend(
                ["llama.cpp", ".local/bin", ".linuxbrew/bin", "src/llama.cpp"]
                    .map(|sub| Place::Folder(home.join(sub))),
            );
        }
        places
    }

    fn on_path(&self) -> Vec<PathBuf> {
        let path = self
            .path
            .as_deref()
            .unwrap_or(OsStr::new(""))
            .to_string_lossy()
            .into_owned();
        let separator = if self.os == "windows" { ';' } else { ':' };
        path.split(separator)
            .map(|folder| PathBuf::from(folder.trim_matches('"')))
            // A relative entry would mean another folder from each place Flux is started in.
            .filter(|folder| folder.has_root() || folder.to_string_lossy().contains(":\\"))
            .collect()
    }

    fn windows(&self, places: &mut Vec<Place>) {
        if let Some(local) = &self.local_app_data {
            places.push(Place::Each {
                parent: local.join("Microsoft/WinGet/Packages"),
                prefix: "ggml.llamacpp",
                inside: "",
            });
            places.push(Place::Folder(local.join("Programs/llama.cpp")));
        }
        if let Some(machine) = &self.program_files {
            places.push(Place::Each {
                parent: machine.join("WinGet/Packages"),
                prefix: "ggml.llamacpp",
                inside: "",
            });
            places.push(Place::Folder(machine.join("llama.cpp")));
        }
        let user = self
            .scoop
            .clone()
            .or_else(|| self.home.as_ref().map(|home| home.join("scoop")));
        let machine = self.program_data.as_ref().map(|data| data.join("scoop"));
        for scoop in [user, machine].into_iter().flatten() {
            places.push(Place::Each {
                parent: scoop.join("apps"),
                prefix: "llama.cpp",
                inside: "current",
            });
        }
    }
}

fn folders(paths: &[&str]) -> Vec<Place> {
    paths
        .iter()
        .map(|path| Place::Folder(PathBuf::from(path)))
        .collect()
}

impl Place {
    /// The folders of this place that exist.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::Folder(folder) => vec![folder.clone()],
            Self::Each {
                parent,
                prefix,
                inside,
            } => {
                let mut found: Vec<_> = names_in(parent)
                    .into_iter()
                    .filter(|name| name.to_string_lossy().starts_with(prefix))
                    .map(|name| parent.join(name))
                    .map(|folder| {
                        if inside.is_empty() {
                            folder
                        } else {
                            folder.join(inside)
                        }
                    })
                    .collect();
                found.sort();
                found
            }
        }
    }
}

fn names_in(folder: &Path) -> Vec<OsString> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &str) -> Place {
        Place::Folder(PathBuf::from(path))
    }

    #[test]
    fn linux_looks_on_path_then_in_the_usual_folders() {
        let places = Surroundings {
            os: "linux".to_owned(),
            home: Some("/home/ann".into()),
            path: Some("/opt/x/bin:relative:/usr/bin".into()),
            ..Surroundings::default()
        }
        .places();
        assert_eq!(places[..2], [folder("/opt/x/bin"), folder("/usr/bin")]);
        for usual in [
            "/usr/local/bin",
            "/opt/llama.cpp",
            "/home/ann/llama.cpp",
            "/home/linuxbrew/.linuxbrew/bin",
        ] {
            assert!(places.contains(&folder(usual)), "{usual}");
        }
        assert!(!places.contains(&folder("relative")));
    }

    #[test]
    fn macos_looks_in_homebrew() {
        let places = Surroundings {
            os: "macos".to_owned(),
            ..Surroundings::default()
        }
        .places();
        assert!(
            places.contains(&folder("/opt/homebrew/bin"))
                && places.contains(&folder("/usr/local/bin"))
        );
    }

    #[test]
    fn windows_looks_in_winget_and_scoop() {
        let places = Surroundings {
            os: "windows".to_owned(),
            home: Some(r"C:\Users\Ann".into()),
            path: Some(r#"C:\tools;"C:\with space""#.into()),
            local_app_data: Some(r"C:\Users\Ann\AppData\Local".into()),
            program_files: Some(r"C:\Program Files".into()),
            program_data: Some(r"C:\ProgramData".into()),
            scoop: None,
        }
        .places();
        assert_eq!(places[..2], [folder(r"C:\tools"), folder(r"C:\with space")]);
        let each = |parent: PathBuf, prefix, inside| Place::Each {
            parent,
            prefix,
            inside,
        };
        let local = PathBuf::from(r"C:\Users\Ann\AppData\Local");
        assert!(places.contains(&each(
            local.join("Microsoft/WinGet/Packages"),
            "ggml.llamacpp",
            ""
        )));
        let scoop = PathBuf::from(r"C:\Users\Ann").join("scoop").join("apps");
        assert!(places.contains(&each(scoop, "llama.cpp", "current")));
    }

    #[test]
    fn folders_by_prefix_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["llama.cpp", "llama.cpp-vulkan", "git"] {
            std::fs::create_dir_all(dir.path().join(name).join("current")).unwrap();
        }
        let place = Place::Each {
            parent: dir.path().to_owned(),
            prefix: "llama.cpp",
            inside: "current",
        };
        assert_eq!(
            place.folders(),
            [
                dir.path().join("llama.cpp/current"),
                dir.path().join("llama.cpp-vulkan/current")
            ]
        );
    }
}
