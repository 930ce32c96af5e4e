//! What a profile is handed over as, given to real llama.cpp builds. `.ci/test` brings them.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flux::domain::handover::{Form, Handover, Word};
use flux::domain::types::Backend;
use serde_json::Value;

/// Every option that a search space or a placement sets, as a profile writes it, and as llama-server calls it.
const OPTIONS: [(&[&str], &[&str]); 17] = [
    (&["-ngl", "24"], &["--n-gpu-layers", "24"]),
    (
        &["-ot", "^blk\\.(0|1)\\.(ffn_down)\\.weight$=CPU"],
        &[
            "--override-tensor",
            "^blk\\.(0|1)\\.(ffn_down)\\.weight$=CPU",
        ],
    ),
    (&["-c", "4096"], &["--ctx-size", "4096"]),
    (&["-np", "1"], &["--parallel", "1"]),
    (&["-b", "2048"], &["--batch-size", "2048"]),
    (&["--ubatch-size", "1024"], &["--ubatch-size", "1024"]),
    (&["-ctk", "q8_0"], &["--cache-type-k", "q8_0"]),
    (&["-ctv", "q8_0"], &["--cache-type-v", "q8_0"]),
    (&["--flash-attn", "on"], &["--flash-attn", "on"]),
    (&["-nkvo"], &["--no-kv-offload"]),
    (&["--fit", "off"], &["--fit", "off"]),
    (&["--threads", "2"], &["--threads", "2"]),
    (&["--cpu-strict", "0"], &["--cpu-strict", "0"]),
    (&["--poll", "50"], &["--poll", "50"]),
    (&["--no-host"], &["--no-host"]),
    (&["--no-op-offload"], &["--no-op-offload"]),
    (&["--no-repack"], &["--no-repack"]),
];
const MODEL: &str = "/no/such folder/it's a \"model\" 100% $HOME 模型.gguf";

/// llama-server of every build, with the folder of its libraries.
fn servers() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-runtimes");
    let listed = std::fs::read_dir(&root).map(|dir| dir.map(|e| e.unwrap().path()).collect());
    let builds: Vec<PathBuf> = listed.unwrap_or_default();
    assert!(
        !builds.is_empty(),
        "no llama.cpp in {}: run `.ci/test` once, it brings one",
        root.display()
    );
    builds
        .into_iter()
        .map(|dir| dir.join("llama-server"))
        .collect()
}

fn handed(server: &Path) -> Handover {
    let args = OPTIONS.iter().flat_map(|(given, _)| given.iter());
    Handover {
        about: vec!["a profile".to_owned()],
        name: "Tiny".to_owned(),
        server: Word::exact(server.to_str().unwrap()),
        model: vec![Word::exact(MODEL)],
        args: args.map(|a| Word::exact(*a)).collect(),
        env: BTreeMap::from([("GGML_VK_ALLOW_GRAPHICS_QUEUE".to_owned(), Word::exact("1"))]),
        backend: Backend::Cpu,
        is_nvidia: false,
        port: 8080,
    }
}

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is reaped all the same.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a router and returns once it says that it listens.
fn router(server: &Path, preset: &Path, port: u16) -> Running {
    let mut child = Command::new(server)
        .arg("--models-preset")
        .arg(preset)
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let running = Running(child);
    while !said.contains("listening") {
        let before = said.len();
        lines.read_line(&mut said).unwrap();
        assert!(said.len() > before, "it ended: {said}");
    }
    // It must not stop at a full pipe.
    let reader = std::thread::Builder::new().name("server-log".to_owned());
    let drained = reader.spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    drained.unwrap();
    running
}

fn models(port: u16) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let from = answer.find('{').unwrap();
    let to = answer.rfind('}').unwrap();
    serde_json::from_str(&answer[from..=to]).unwrap()
}

#[test]
fn a_preset_is_taken_with_every_option_and_an_odd_path() {
    let dir = tempfile::tempdir().unwrap();
    let preset = dir.path().join("models.ini");
    for server in servers() {
        std::fs::write(&preset, handed(&server).write(Form::Preset).unwrap()).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let _router = router(&server, &preset, port);
        let listed = models(port);
        let model = &listed["data"][0];
        assert_eq!(model["id"], "tiny", "{listed}");
        let args: Vec<&str> = model["status"]["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| a.as_str().unwrap())
            .collect();
        let own = OPTIONS.iter().map(|(_, read)| *read);
        for option in own.chain([&["--model", MODEL][..]]) {
            assert!(
                args.windows(option.len()).any(|w| w == option),
                "{option:?} in {args:?}"
            );
        }
    }
}

#[test]
fn a_scripts_arguments_are_ones_that_llama_server_knows() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("start.sh");
    for server in servers() {
        std::fs::write(&script, handed(&server).write(Form::Bash).unwrap()).unwrap();
        // All arguments are read before this last one ends the program.
        let output = Command::new("bash")
            .arg(&script)
            .arg("--version")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", server.display());
        let wrong = Command::new("bash")
            .arg(&script)
            .args(["--no-such", "--version"])
            .output();
        assert!(!wrong.unwrap().status.success(), "an unknown one is told");
    }
}

/// What systemd says of a user unit, and whether it takes it. `.ci/test` brings systemd-analyze; no manager has to run.
#[cfg(target_os = "linux")]
fn verified(dir: &Path, unit: &str) -> (bool, String) {
    let file = dir.join("llama-server-tiny.service");
    std::fs::write(&file, unit).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["--user", "verify", "--man=no"])
        .arg(&file)
        .env("XDG_RUNTIME_DIR", dir)
        .output()
        .unwrap_or_else(|e| panic!("systemd-analyze: {e}: run `.ci/test` once, it brings it"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), said)
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_takes_the_user_unit() {
    let dir = tempfile::tempdir().unwrap();
    for server in servers() {
        let unit = handed(&server).write(Form::Systemd).unwrap();
        assert_eq!(verified(dir.path(), &unit), (true, String::new()));
        // It looks: a key and a program that are none are told.
        let key = unit.replace("RestartSec=", "RestartSecs=");
        let (_, said) = verified(dir.path(), &key);
        assert!(said.contains("Unknown key 'RestartSecs'"), "{said}");
        let program = unit.replace(server.to_str().unwrap(), "/no/such/llama-server");
        let (taken, said) = verified(dir.path(), &program);
        assert!(!taken && said.contains("is not executable"), "{said}");
    }
}
