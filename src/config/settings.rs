//! `settings.toml`: the owner's choices.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::domain::settings::AppSettings;
use crate::domain::text::excerpt;
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

    /// The settings in place of those that cannot be read.
    fn unreadable(&self, why: &str) -> (AppSettings, Vec<Notice>) {
        let why = excerpt(why.lines().next().unwrap_or_default());
        let what = format!(
            "the settings cannot be read ({why}): the defaults are used and no reading is erased; the next settings saved set it aside"
        );
        let notice = self.warning("settings-unreadable", &what);
        (AppSettings::instead(), vec![notice])
    }

    /// Renames a file that cannot be read, before another takes its place: it can still be repaired.
    fn set_aside(&self) -> io::Result<()> {
        let is_readable = match fs::read_to_string(&self.0) {
            Ok(text) => AppSettings::parse(&text).is_ok(),
            Err(e) => e.kind() != io::ErrorKind::InvalidData,
        };
        if is_readable {
            return Ok(());
        }
        let stamp = Timestamp::now().strftime("%Y%m%dT%H%M%S%.3fZ");
        let aside = format!("{FILE}.damaged-{stamp}");
        fs::rename(&self.0, self.0.with_file_name(aside))
    }
}

impl SettingsStore for SettingsFile {
    fn load(&self) -> (AppSettings, Vec<Notice>) {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return self.unreadable("no text"),
            Err(e) => return self.unreadable(&e.to_string()),
        };
        match AppSettings::parse(&text) {
            Ok((settings, said)) => {
                let notice = |what: &String| self.warning("setting-replaced", what);
                (settings, said.iter().map(notice).collect())
            }
            Err(e) => self.unreadable(e.message()),
        }
    }

    fn save(&self, settings: &AppSettings) -> PortResult<()> {
        const FAILED: &str = "the settings cannot be written";
        let mut settings = settings.clone();
        settings.bring_into_bounds();
        let text = toml::to_string_pretty(&settings).map_err(|e| PortError::caused(FAILED, &e))?;
        self.set_aside()
            .and_then(|()| super::write(&self.0, &text))
            .map_err(|e| PortError::of_data(FAILED, &self.0, &e))
    }
}
