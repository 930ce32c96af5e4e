//! Files of the data folder that people write themselves, and every kind of mistake in them.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::fs;
use std::path::PathBuf;

use flux::config::{SettingsFile, SpaceFile};
use flux::domain::search::SearchSpace;
use flux::domain::settings::{AppSettings, MemoryUnits, RECENT_MODELS, Theme};
use flux::domain::types::Bytes;
use flux::ports::{NoticeLevel, SearchSpaces as _, SettingsStore as _};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn settings(&self) -> SettingsFile {
        SettingsFile::new(self.0.path())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("settings.toml")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

#[test]
fn settings_come_back_as_they_were_saved() {
    let folder = Folder::new();
    assert_eq!(folder.settings().load(), (AppSettings::default(), vec![]));
    assert_eq!(folder.names(), [""; 0], "reading writes nothing");
    let mut settings = AppSettings {
        theme: Theme::Light,
        zoom: 1.1,
        reduce_motion: true,
        memory_units: MemoryUnits::Decimal,
        vram_reserve: Bytes::gib(1),
        time_limit_secs: Some(1_800),
        telemetry_interval_ms: 500,
        store_telemetry: false,
        telemetry_days: 90,
        model_folders: vec![PathBuf::from("/models/it's 100% – 模型")],
        runtime: Some("b11149-vulkan".to_owned()),
        window_size: [1_600, 900],
        show_raw_output: true,
        ..AppSettings::default()
    };
    settings.remember_model(PathBuf::from("/models/a.gguf"));
    folder.settings().save(&settings).unwrap();
    assert_eq!(folder.settings().load(), (settings.clone(), vec![]));
    // What is taken back is gone from the file too.
    settings.time_limit_secs = None;
    settings.runtime = None;
    folder.settings().save(&settings).unwrap();
    assert_eq!(folder.settings().load(), (settings, vec![]));
    assert_eq!(
        folder.names(),
        ["settings.toml"],
        "no temporary file is left"
    );
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let defaults = AppSettings::default();
    assert_eq!(defaults.vram_reserve, Bytes(536_870_912));
    assert_eq!(
        (defaults.telemetry_interval_ms, defaults.time_limit_secs),
        (250, None)
    );
    let mut same = defaults.clone();
    assert_eq!(same.bring_into_bounds(), [""; 0]);
    assert_eq!(same, defaults);
}

#[test]
fn keys_of_a_later_flux_are_kept() {
    let folder = Folder::new();
    fs::write(
        folder.path(),
        "theme = \"dark\"\nsound = \"off\"\n[shortcuts]\nscan = \"F6\"\n",
    )
    .unwrap();
    let (mut settings, notices) = folder.settings().load();
    assert_eq!((settings.theme, notices), (Theme::Dark, vec![]));
    settings.theme = Theme::Light;
    folder.settings().save(&settings).unwrap();
    let file: toml::Table = fs::read_to_string(folder.path()).unwrap().parse().unwrap();
    assert_eq!(file["theme"].as_str(), Some("light"));
    assert_eq!(file["sound"].as_str(), Some("off"));
    assert_eq!(file["shortcuts"]["scan"].as_str(), Some("F6"));
}

#[test]
fn one_wrong_value_costs_only_itself_and_is_named() {
    let folder = Folder::new();
    let text = "theme = \"sepia\"\nzoom = 9.5\nreduce_motion = true\ntelemetry_interval_ms = 5\n\
                vram_reserve_bytes = -1\ntime_limit_secs = 10\nwindow_size = [1, 900]\nruntime = 7\n";
    fs::write(folder.path(), text).unwrap();
    let (settings, notices) = folder.settings().load();
    let expected = AppSettings {
        zoom: 3.0,
        reduce_motion: true,
        telemetry_interval_ms: 100,
        time_limit_secs: Some(60),
        window_size: [800, 900],
        ..AppSettings::default()
    };
    assert_eq!(settings, expected);
    let path = folder.path().display().to_string();
    let mut texts: Vec<&str> = notices
        .iter()
        .map(|n| n.text.strip_suffix(&path).unwrap())
        .collect();
    texts.sort_unstable();
    assert_eq!(
        texts,
        [
            "runtime has no such value: the default is used: ",
            "telemetry_interval_ms is 5, which is not from 100 to 10000: 100 is used: ",
            "theme has no such value: the default is used: ",
            "time_limit_secs is 10, which is not from 60 to 604800: 60 is used: ",
            "vram_reserve_bytes has no such value: the default is used: ",
            "window_size is 1, which is not from 800 to 16384: 800 is used: ",
            "zoom is 9.5, which is not from 0.5 to 3: 3 is used: ",
        ]
    );
    assert_eq!(
        fs::read_to_string(folder.path()).unwrap(),
        text,
        "not touched"
    );
}

#[test]
fn a_broken_file_erases_nothing_and_is_set_aside_when_another_takes_its_place() {
    for bytes in [
        &b"telemetry_days = 0\ntheme = dark\n"[..],
        b"\xff\xfe",
        b"\0",
    ] {
        let folder = Folder::new();
        fs::write(folder.path(), bytes).unwrap();
        let (settings, notices) = folder.settings().load();
        let expected = AppSettings {
            telemetry_days: 0,
            ..AppSettings::default()
        };
        assert_eq!(settings, expected, "readings are kept for ever");
        let [notice] = notices.as_slice() else {
            panic!("{notices:?}")
        };
        assert_eq!(notice.level, NoticeLevel::Warning);
        assert_eq!(notice.code, "settings-unreadable");
        assert!(notice.text.ends_with(&folder.path().display().to_string()));
        assert_eq!(folder.settings().load().1, notices, "it is left as it is");
        folder.settings().save(&settings).unwrap();
        let [_, aside] = &folder.names()[..] else {
            panic!("{:?}", folder.names())
        };
        assert!(aside.starts_with("settings.toml.damaged-"));
        assert_eq!(fs::read(folder.0.path().join(aside)).unwrap(), bytes);
        assert_eq!(folder.settings().load(), (settings, vec![]));
    }
}

/// The reader of TOML stops at 80 levels, of dotted keys sooner than of tables inside each other: what one run of Flux saved
/// must not be unreadable to the next.
#[test]
fn what_is_nested_too_deep_is_left_out_and_all_else_is_read_again() {
    let dotted = format!("[new{}]\nx = 1\n", ".a".repeat(60));
    let joined = format!(
        "[new{}]\nx{} = {{ y = 1 }}\n",
        ".a".repeat(50),
        ".b".repeat(50)
    );
    let listed = format!("new = {}1{}\n", "[".repeat(40), "]".repeat(40));
    for text in [dotted, joined, listed] {
        let folder = Folder::new();
        fs::write(folder.path(), format!("telemetry_days = 7\n{text}")).unwrap();
        let (settings, notices) = folder.settings().load();
        assert_eq!(settings.telemetry_days, 7);
        assert!(
            notices[0]
                .text
                .starts_with("new is nested too deep: it is left out: ")
        );
        folder.settings().save(&settings).unwrap();
        assert_eq!(folder.settings().load(), (settings, vec![]));
    }
}

#[test]
fn days_that_are_none_erase_nothing() {
    for value in ["-1", "\"x\"", "1.5", "[30]"] {
        let folder = Folder::new();
        fs::write(folder.path(), format!("telemetry_days = {value}\n")).unwrap();
        let (settings, notices) = folder.settings().load();
        assert_eq!(settings.telemetry_days, 0, "{value}");
        let said = "telemetry_days has no such value: readings are kept for ever: ";
        assert!(notices[0].text.starts_with(said), "{notices:?}");
    }
}

#[test]
fn what_cannot_be_written_is_one_sentence() {
    let folder = Folder::new();
    fs::write(folder.0.path().join("file"), "").unwrap();
    let settings = SettingsFile::new(&folder.0.path().join("file"));
    let error = settings.save(&AppSettings::default()).unwrap_err();
    let path = folder.0.path().join("file").join("settings.toml");
    assert_eq!(
        error.headline,
        format!("the settings cannot be written: {}", path.display())
    );
}

#[test]
fn the_ten_models_used_last_are_remembered() {
    let mut settings = AppSettings::default();
    let model = |n: usize| PathBuf::from(format!("/models/{n}.gguf"));
    for n in 0..12 {
        settings.remember_model(model(n));
    }
    settings.remember_model(model(5));
    assert_eq!(settings.recent_models.len(), RECENT_MODELS);
    let expected: Vec<PathBuf> = [5, 11, 10, 9, 8, 7, 6, 4, 3, 2].map(model).to_vec();
    assert_eq!(settings.recent_models, expected);
}

/// A space of one dimension.
fn space(value: &str) -> String {
    format!(
        "[[dimension]]\nid = \"x\"\ntitle = \"X\"\nsummary = \"s\"\naffects = \"both\"\n[[dimension.value]]\nid = \"{value}\"\n\
         env = {{ GGML_VK_DISABLE_F16 = \"1\" }}\n"
    )
}

fn dimensions(file: &SpaceFile) -> Vec<String> {
    let current = file.current();
    current.dimensions().iter().map(|d| d.id.clone()).collect()
}

#[test]
fn a_search_space_of_one_s_own_is_checked_copied_and_taken_back() {
    let folder = Folder::new();
    let (file, notice) = SpaceFile::open(folder.0.path());
    assert_eq!((notice, file.own_file()), (None, None));
    assert_eq!(*file.current(), SearchSpace::default());

    let mine = folder.0.path().join("mine.toml");
    fs::write(&mine, space("on")).unwrap();
    file.install(&mine).unwrap();
    assert_eq!(dimensions(&file), ["x"]);
    let path = folder.0.path().join("search-space.toml");
    assert_eq!(file.own_file(), Some(path.clone()));
    fs::remove_file(&mine).unwrap();
    let (again, notice) = SpaceFile::open(folder.0.path());
    assert_eq!((notice, dimensions(&again)), (None, vec!["x".to_owned()]));

    // What breaks a rule changes nothing.
    fs::write(&mine, space("on").replace("GGML_VK_DISABLE_F16", "PATH")).unwrap();
    let error = file.install(&mine).unwrap_err();
    assert_eq!(
        error.headline,
        format!(
            "the search space is wrong at x=on: PATH is no variable of llama.cpp that Flux knows: {}",
            mine.display()
        )
    );
    let missing = file.install(&folder.0.path().join("none")).unwrap_err();
    assert!(missing.headline.starts_with("there is no such file: "));
    assert_eq!(dimensions(&file), ["x"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), space("on"));

    file.reset().unwrap();
    file.reset().unwrap();
    assert_eq!((*file.current()).clone(), SearchSpace::default());
    assert!(!path.exists() && file.own_file().is_none());
}

#[test]
fn a_search_space_that_cannot_be_used_is_said_and_left_alone() {
    for (bytes, why) in [
        (
            space("a b").into_bytes(),
            "the search space is wrong at x=a b: a value's id is plain and used once; ",
        ),
        (
            b"dimension = 1".to_vec(),
            "the search space cannot be read: ",
        ),
        (b"\xff".to_vec(), "the search space cannot be read: "),
    ] {
        let folder = Folder::new();
        let path = folder.0.path().join("search-space.toml");
        fs::write(&path, &bytes).unwrap();
        let (file, notice) = SpaceFile::open(folder.0.path());
        let notice = notice.unwrap();
        assert_eq!(notice.level, NoticeLevel::Warning);
        assert!(notice.text.starts_with(why), "{}", notice.text);
        let end = format!(
            "; the search space that ships with Flux is used instead of {}",
            path.display()
        );
        assert!(
            notice.text.ends_with(&end) && !notice.text.contains('\n'),
            "{}",
            notice.text
        );
        assert_eq!((*file.current()).clone(), SearchSpace::default());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
