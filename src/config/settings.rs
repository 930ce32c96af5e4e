//! `settings.toml`: the owner's choices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::domain::settings::AppSettings;
use crate::ports::{Notice, NoticeLevel, PortError, PortResult, SettingsStore};

/// Its name in the data folder.
const FILE: &str = "settings.toml";

/// The settings of one data folder.
#[derive(Debug, Clone)]
pub struct SettingsFile(PathBuf);

impl SettingsFile {
    /// Those of `data_dir`.
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join(FILE))
    }

    fn warning(&self, code: &str, what: &str) -> Notice {
        Notice {
            level: NoticeLevel::Warning,
            code: code.to_owned(),
            text: format!("{what}: {}", self.0.display()),
        }
    }

    /// Renames what cannot be read, so that it can still be repaired.
    fn set_aside(&self, why: &str) -> Notice {
        let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ");
        let aside = self.0.with_file_name(format!("{FILE}.damaged-{stamp}"));
        let why = why.lines().next().unwrap_or_default();
        match fs::rename(&self.0, &aside) {
            Ok(()) => Self(aside).warning(
                "settings-set-aside",
                &format!("the settings cannot be read ({why}): they were set aside and the defaults are used"),
            ),
            Err(_) => self.warning(
                "settings-unreadable",
                &format!("the settings cannot be read ({why}): the defaults are used"),
            ),
        }
    }
}

impl SettingsStore for SettingsFile {
    fn load(&self) -> (AppSettings, Vec<Notice>) {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return (AppSettings::default(), vec![self.set_aside("no text")]);
            }
            Err(e) => {
                let what = format!("the settings cannot be read ({e}): the defaults are used");
                let notice = self.warning("settings-unreadable", &what);
                return (AppSettings::default(), vec![notice]);
            }
        };
        match AppSettings::parse(&text) {
            Ok((settings, said)) => {
                let notice = |what: &String| self.warning("setting-replaced", what);
                (settings, said.iter().map(notice).collect())
            }
            Err(e) => (AppSettings::default(), vec![self.set_aside(e.message())]),
        }
    }

    fn save(&self, settings: &AppSettings) -> PortResult<()> {
        const FAILED: &str = "the settings cannot be written";
        let mut settings = settings.clone();
        settings.bring_into_bounds();
        let text = toml::to_string_pretty(&settings).map_err(|e| PortError::caused(FAILED, &e))?;
        super::write(&self.0, &text).map_err(|e| PortError::of_data(FAILED, &self.0, &e))
    }
}
