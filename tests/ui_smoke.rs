//! The real window on a virtual screen: it opens, is clicked through on a real llama.cpp, survives, and closes cleanly.
#![cfg(all(feature = "test-support", feature = "gui", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/app.rs"]
mod app;
#[path = "support/screen.rs"]
mod screen;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use eframe::egui::{Key, Modifiers};
use flux::ports::{SessionEnd, SessionState, Store as _};
use flux::store::{Access, SqliteStore};
use flux::wiring::{self, Options};

use app::Stage;
use screen::{Screen, Window};

/// How long a tuning of the tiny model may take here.
const TUNING: Duration = Duration::from_mins(4);

fn flux(data: &Path, args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_flux"))
        .arg("--data-dir")
        .arg(data)
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
}

/// Where pictures are kept for looking at: in `FLUX_SMOKE_SHOTS`, else they go with the test.
fn album(data: &Path) -> PathBuf {
    let album =
        std::env::var_os("FLUX_SMOKE_SHOTS").map_or_else(|| data.join("shots"), PathBuf::from);
    fs::create_dir_all(&album).unwrap();
    album
}

/// Living processes of programs below a folder.
fn running(below: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let programs = processes.filter_map(|process| fs::read_link(process.path().join("exe")).ok());
    programs.filter(|exe| exe.starts_with(below)).collect()
}

/// Nothing of the database is left open, and nothing was said that frightens.
fn assert_clean(code: Option<i32>, said: &[String], data: &Path) {
    let said = said.join("\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        !said.contains("panicked") && !said.contains("ERROR"),
        "{said}"
    );
    assert!(data.join("flux.db").exists());
    assert!(
        !data.join("flux.db-wal").exists(),
        "the database was not closed"
    );
}

/// A build of llama.cpp that `.ci/test` brings: the smallest name, so the processor's.
fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-runtimes");
    let found = fs::read_dir(&root).into_iter().flatten();
    let mut builds: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    builds.sort_by_key(|path| !path.display().to_string().contains("cpu"));
    let shown = root.display();
    builds
        .into_iter()
        .next()
        .unwrap_or_else(|| panic!("no llama.cpp in {shown}: run `.ci/test` once, it brings one"))
}

/// The search space that ships with Flux, of its settings only this one: a tuning of a minute.
fn one_setting() -> String {
    let shipped = include_str!("../assets/search-space.toml");
    let mut parts = shipped.split("[[dimension]]");
    let head = parts.next().unwrap();
    let kept = parts.find(|part| part.contains("\nid = \"poll\"")).unwrap();
    format!("{head}[[dimension]]{kept}")
}

/// The real window, and the same app without one, which tells where everything is.
struct Pair<'s> {
    window: Window<'s>,
    twin: Stage,
    album: PathBuf,
}

impl<'s> Pair<'s> {
    fn open(screen: &'s Screen, data: &Path, album: PathBuf) -> Self {
        let options = Options {
            data_dir: Some(data.to_owned()),
            machine: None,
            access: Access::Look,
            flux: Some(env!("CARGO_BIN_EXE_flux").into()),
        };
        let twin = Stage::new(wiring::open(&options).unwrap().ports);
        let mut window = Window::open(screen, data, &[]);
        window.settle();
        Self {
            window,
            twin,
            album,
        }
    }

    fn photograph(&self, name: &str) {
        let to = self.album.join(format!("{name}.png"));
        self.window.screen.photograph(&to);
    }

    /// Clicks in the window where the twin has this.
    fn point_at(&mut self, label: &str) {
        self.window.click(self.twin.rect(label).center());
    }

    /// Presses it in both.
    fn press(&mut self, label: &str) {
        self.point_at(label);
        self.twin.click(label);
    }

    /// Types into this field of both.
    fn fill(&mut self, label: &str, text: &str) {
        self.point_at(label);
        self.window.types(text);
        self.twin.type_into(label, text);
    }
}

/// Waits for the end of the first session, with pictures on the way. The window is left alone: whoever moves the
/// pointer disturbs what is measured.
fn measured(pair: &Pair, store: &SqliteStore) -> SessionEnd {
    let begun = Instant::now();
    let mut seen = 0;
    loop {
        assert!(begun.elapsed() < TUNING, "the tuning takes too long");
        std::thread::sleep(Duration::from_millis(200));
        let runs = store.run_heads(1).map_or(0, |runs| runs.len());
        if runs != seen && [6, 14].contains(&runs) {
            pair.photograph(&format!("5-after-run-{runs}"));
        }
        seen = runs;
        let session = store.session(1).unwrap();
        if let Some(end) = session.and_then(|session| session.end) {
            return end;
        }
    }
}

#[test]
fn a_real_tuning_is_clicked_through() {
    let Some(screen) = Screen::open() else { return };
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let model = dir.path().join("tiny.gguf").display().to_string();
    let build = fs::canonicalize(build()).unwrap();
    flux(&data, &["runtime", "add", &build.display().to_string()]);
    flux(&data, &["model", "synth", "tiny", "-o", &model]);
    fs::write(data.join("search-space.toml"), one_setting()).unwrap();
    let mut pair = Pair::open(&screen, &data, album(dir.path()));
    pair.photograph("1-machine");
    pair.window.keys(&["ctrl+2"]);
    pair.twin.key(Modifiers::COMMAND, Key::Num2);
    pair.fill("Path of a model file", &model);
    pair.press("Use");
    pair.photograph("2-model");
    pair.press("Next");
    pair.press("Show rarely needed choices");
    // The shortest confirmation there is.
    pair.press("Processes per arm");
    pair.window.types("4");
    pair.window.keys(&["Return"]);
    pair.twin.type_into("Processes per arm", "4");
    pair.twin.key(Modifiers::NONE, Key::Enter);
    pair.photograph("3-goal");
    pair.press("Next");
    pair.photograph("4-candidates");
    pair.point_at("Start measuring");
    let store = SqliteStore::open(&data, Access::Look).unwrap();
    let end = measured(&pair, &store);
    assert_eq!(end.state, SessionState::Done, "{}", end.result);
    assert!(end.verdict.is_some());
    pair.window.settle();
    pair.photograph("6-result");
    let Pair { window, twin, .. } = pair;
    drop((store, twin));
    let (code, said) = window.quit();
    assert_clean(code, &said, &data);
    assert!(running(&build).is_empty());
}

#[test]
fn it_closes_cleanly_and_without_vulkan_draws_with_opengl() {
    let Some(screen) = Screen::open() else { return };
    let without = |name| (name, "/nonexistent");
    let no_vulkan = [without("VK_DRIVER_FILES"), without("VK_ICD_FILENAMES")];
    // wgpu itself knows OpenGL; where it may not use it, the other renderer does.
    let no_wgpu = [no_vulkan[0], no_vulkan[1], ("WGPU_BACKEND", "vulkan")];
    for (env, expected) in [(&[][..], false), (&no_vulkan, false), (&no_wgpu, true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut window = Window::open(&screen, dir.path(), env);
        window.settle();
        window.keys(&["ctrl+4"]);
        window.keys(&["ctrl+k"]);
        window.keys(&["Escape"]);
        let pid = window.process.id();
        screen.photograph(&album(dir.path()).join(format!("closing-{}.png", env.len())));
        let (code, said) = window.quit();
        assert_clean(code, &said, dir.path());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let opengl = said.iter().any(|line| line.contains("drawing with OpenGL"));
        assert_eq!(opengl, expected, "{said:?}");
    }
}

#[test]
fn a_storm_of_sizes_is_survived() {
    let Some(screen) = Screen::open() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut window = Window::open(&screen, dir.path(), &[]);
    let mut script: Vec<String> = Vec::new();
    for step in 0_u32..200 {
        let (width, height) = (900 + step * 37 % 380, 600 + step * 53 % 200);
        script.extend(["windowsize", &window.id].map(str::to_owned));
        script.extend([width.to_string(), height.to_string()]);
    }
    let script: Vec<&str> = script.iter().map(String::as_str).collect();
    screen.xdotool(&script);
    window.settle();
    // Out of sight and back: the surface is lost.
    screen.xdotool(&[
        "windowunmap",
        "--sync",
        &window.id,
        "windowmap",
        "--sync",
        &window.id,
    ]);
    screen.xdotool(&["windowfocus", "--sync", &window.id]);
    window.settle();
    let (code, said) = window.quit();
    assert_clean(code, &said, dir.path());
}

#[test]
fn without_a_display_it_says_so_in_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let run = |display: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        for name in ["DISPLAY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET"] {
            command.env_remove(name);
        }
        command.envs(display.map(|display| ("DISPLAY", display)));
        let output = command.arg("--data-dir").arg(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let dir_words = dir.path().display();
    let hint = format!(
        "hint: `flux help` lists what works without one, `flux --data-dir {dir_words} quickstart` does everything once\n"
    );
    assert_eq!(
        run(None),
        format!(
            "error: no display to open a window on: neither DISPLAY nor WAYLAND_DISPLAY is set\n{hint}"
        )
    );
    assert_eq!(
        run(Some(":65000")),
        format!("error: no display to open a window on: DISPLAY=:65000 does not answer\n{hint}")
    );
}
