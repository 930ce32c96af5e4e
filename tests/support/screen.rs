//! A virtual screen, and the real window on it, moved by xdotool.
#![allow(dead_code, reason = "not every user needs all of it")]
#![allow(clippy::print_stderr, reason = "it says why a test is skipped")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long one waits for the window before giving up: a software renderer on a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is needed.
const TOOLS: [&str; 3] = ["Xvfb", "xdotool", "import"];

/// A screen that goes away with the value.
pub struct Screen {
    server: Child,
    name: String,
    runtime_dir: tempfile::TempDir,
}

impl Screen {
    /// Of the target screens' size; `None`, with the reason printed, where a tool is missing and may be.
    pub fn open() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |tool: &&str| std::env::split_paths(&path).any(|dir| dir.join(tool).exists());
        if let Some(missing) = TOOLS.iter().find(|tool| !there(tool)) {
            let required = std::env::var_os("FLUX_REQUIRE_DISPLAY").is_some();
            assert!(
                !required,
                "FLUX_REQUIRE_DISPLAY is set, and there is no {missing}"
            );
            eprintln!("skipped: there is no {missing} on this machine");
            return None;
        }
        let mut server = Command::new("Xvfb")
            .args([
                "-displayfd",
                "1",
                "-screen",
                "0",
                "1280x800x24",
                "-nolisten",
                "tcp",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut number = String::new();
        let mut told = BufReader::new(server.stdout.take().unwrap());
        told.read_line(&mut number).unwrap();
        Some(Self {
            server,
            name: format!(":{}", number.trim()),
            runtime_dir: tempfile::tempdir().unwrap(),
        })
    }

    /// A program on this screen.
    pub fn on(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("DISPLAY", &self.name)
            .env_remove("WAYLAND_DISPLAY")
            .env_remove("WAYLAND_SOCKET")
            .env("XDG_RUNTIME_DIR", self.runtime_dir.path());
        command
    }

    /// xdotool's answer.
    pub fn xdotool(&self, args: &[&str]) -> String {
        let Output { status, stdout, .. } = self.on("xdotool").args(args).output().unwrap();
        assert!(status.success(), "xdotool {args:?}");
        String::from_utf8(stdout).unwrap().trim().to_owned()
    }

    /// What is on it, into a file.
    pub fn photograph(&self, to: &Path) {
        let mut camera = self.on("import");
        assert!(
            camera
                .args(["-window", "root"])
                .arg(to)
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// `flux` without a command.
pub struct Window<'s> {
    pub screen: &'s Screen,
    pub process: Child,
    pub id: String,
    /// Milliseconds from opening to the first frame on screen, as the app says.
    pub first_frame_ms: u64,
    log: Receiver<String>,
    heard: Vec<String>,
}

impl<'s> Window<'s> {
    /// Over this data folder, with these variables.
    pub fn open(screen: &'s Screen, data: &Path, env: &[(&str, &str)]) -> Self {
        let mut process = screen
            .on(env!("CARGO_BIN_EXE_flux"))
            .arg("-v")
            .arg("--data-dir")
            .arg(data)
            .env("FLUX_LOG", "flux::ui::start=trace")
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = lines(process.stderr.take().unwrap());
        let mut window = Self {
            screen,
            process,
            id: String::new(),
            first_frame_ms: 0,
            log,
            heard: Vec::new(),
        };
        let first = window.hear_of("first frame after ");
        let ms = first.split("first frame after ").nth(1).unwrap();
        window.first_frame_ms = ms.split(' ').next().unwrap().parse().unwrap();
        let id = screen.xdotool(&["search", "--sync", "--name", "^Flux$"]);
        id.lines().next().unwrap().clone_into(&mut window.id);
        screen.xdotool(&["windowfocus", "--sync", &window.id]);
        window
    }

    /// Waits for a line of the log.
    pub fn hear_of(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.log.recv_timeout(PATIENCE) else {
                panic!("never said: {text}\n{}", self.heard.join("\n"));
            };
            self.heard.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits until every question of the pages is answered and shown.
    pub fn settle(&mut self) {
        self.frames();
        let mut quiet = 0;
        while quiet < 4 {
            // Every move of the pointer is a frame.
            self.screen.xdotool(&["mousemove_relative", "--", "1", "0"]);
            let frame = self.hear_of(" frame ");
            quiet = if frame.contains("unanswered=0") {
                quiet + 1
            } else {
                0
            };
            self.screen
                .xdotool(&["mousemove_relative", "--", "-1", "0"]);
        }
    }

    /// Frames drawn since the last look.
    pub fn frames(&mut self) -> usize {
        let new: Vec<String> = self.log.try_iter().collect();
        let frames = new.iter().filter(|line| line.contains(" frame ")).count();
        self.heard.extend(new);
        frames
    }

    /// Presses keys, one after the other.
    pub fn keys(&mut self, keys: &[&str]) {
        self.screen.xdotool(&[&["key"], keys].concat());
        self.settle();
    }

    /// Types.
    pub fn types(&mut self, text: &str) {
        self.screen.xdotool(&["type", "--delay", "1", text]);
        self.settle();
    }

    /// Clicks at a point of the window.
    pub fn click(&mut self, at: eframe::egui::Pos2) {
        let (x, y) = (at.x.round().to_string(), at.y.round().to_string());
        self.screen.xdotool(&["mousemove", &x, &y]);
        self.settle();
        self.screen.xdotool(&["mousemove", &x, &y, "click", "1"]);
        self.settle();
    }

    /// Quits by key; its exit code and all it said.
    pub fn quit(mut self) -> (Option<i32>, Vec<String>) {
        self.screen.xdotool(&["key", "ctrl+q"]);
        let code = self.process.wait().unwrap().code();
        self.heard.extend(self.log.iter());
        (code, std::mem::take(&mut self.heard))
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(from: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::Builder::new()
        .spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        })
        .unwrap();
    lines
}
