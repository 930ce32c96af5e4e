//! llama-server as a job: announced when it is ready, ended with its job, never beside a measurement.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;
#[path = "support/scripted_http.rs"]
mod scripted_http;
#[path = "support/shell_runtime.rs"]
mod shell_runtime;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::Receiver;
use flux::engine::Engine;
use flux::engine::message::{Command, Event, EventKind, JobId, Outcome};
use flux::engine::run::{Access, RunRequest};
use flux::ports::CancelMode;
use serde_json::json;

use bench_runs::wait_until;
use scripted_engine::{Answer, Desk, Gate, finished};
use scripted_http::{serve, times};
use shell_runtime::program;

/// Says its process id and its arguments in a file, then waits to be ended.
const WAITS: &str = "echo $$ \"$@\" > \"$0.new\"; mv \"$0.new\" \"$0.said\"; exec sleep 600";
const PATIENCE: Duration = Duration::from_secs(20);

/// A desk whose llama-server is this script.
struct Host {
    desk: Desk,
    server: PathBuf,
}

impl Host {
    fn new(script: &str) -> Self {
        Self::on(Desk::new(|_| Answer::Valid), script)
    }

    fn on(mut desk: Desk, script: &str) -> Self {
        let server = desk.bed.fake.scratch().join("llama-server.sh");
        program(&server, &format!("#!/bin/sh\n{script}\n"));
        desk.builds(|build| build.server = Some(server.clone()));
        Self { desk, server }
    }

    fn command(&self) -> Command {
        Command::Serve(RunRequest {
            model: self.desk.bed.model.clone(),
            runtime: None,
            goal: None,
            stale_ok: false,
            extra: vec!["--ctx-size".to_owned(), "512".to_owned()],
            access: Access::default(),
        })
    }

    /// Process id and arguments of the script, once it runs.
    fn said(&self) -> (u32, Vec<String>) {
        let file = self.server.with_file_name("llama-server.sh.said");
        wait_until("the server started", || file.exists());
        let words = fs::read_to_string(file).unwrap();
        let mut words = words.split_whitespace().map(str::to_owned);
        (words.next().unwrap().parse().unwrap(), words.collect())
    }

    /// Starts it, and answers for it as llama-server does when it is ready.
    fn served(&self) -> (Engine, Receiver<Event>, JobId, EventKind) {
        let (mut engine, events) = self.desk.engine();
        let job = engine.submit(self.command()).unwrap();
        let (_, args) = self.said();
        let model = self.desk.bed.model.display().to_string();
        let models = json!({"data": [{"id": "a", "owned_by": "llamacpp"}]}).to_string();
        serve(
            args.last().unwrap().parse().unwrap(),
            BTreeMap::from([
                ("/health", times(1, 200, "{}")),
                (
                    "/props",
                    times(1, 200, &json!({"model_path": model}).to_string()),
                ),
                ("/v1/models", times(1, 200, &models)),
            ]),
        );
        let serving = loop {
            let event = events.recv_timeout(PATIENCE).unwrap();
            if matches!(event.kind, EventKind::Serving { .. }) {
                break event.kind;
            }
        };
        (engine, events, job, serving)
    }
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_ready_server_is_announced_and_ends_with_either_cancel() {
    for mode in [CancelMode::AfterSample, CancelMode::Now] {
        let host = Host::new(WAITS);
        let (engine, events, job, serving) = host.served();
        let (pid, args) = host.said();
        assert_eq!(
            args[..2],
            ["-m".to_owned(), host.desk.bed.model.display().to_string()]
        );
        assert_eq!(args[2..6], ["--ctx-size", "512", "--host", "127.0.0.1"]);
        let url = format!("http://127.0.0.1:{}", args.last().unwrap());
        let model = host
            .desk
            .ports
            .models
            .inspect(&host.desk.bed.model)
            .unwrap()
            .name;
        let profile = None;
        assert_eq!(
            serving,
            EventKind::Serving {
                url,
                pid,
                model,
                profile
            }
        );
        assert!(is_there(pid));
        engine.cancel(job, mode);
        assert!(matches!(
            finished(&events, job),
            Outcome::Cancelled { session: None, .. }
        ));
        assert!(!is_there(pid), "reaped before its end is told");
    }
}

#[test]
fn a_cancel_while_it_loads_and_the_end_of_the_engine_leave_no_process() {
    let host = Host::new(WAITS);
    let (mut engine, events) = host.desk.engine();
    let job = engine.submit(host.command()).unwrap();
    let (pid, _) = host.said();
    engine.cancel(job, CancelMode::AfterSample);
    assert!(matches!(finished(&events, job), Outcome::Cancelled { .. }));
    assert!(!is_there(pid));

    let host = Host::new(WAITS);
    let (engine, _events, _, _) = host.served();
    let (pid, _) = host.said();
    drop(engine);
    assert!(!is_there(pid));
}

#[test]
fn a_server_that_ends_by_itself_fails_with_its_last_lines() {
    let gone =
        "while [ ! -e \"$0.end\" ]; do sleep 0.05; done; echo 'ggml: out of memory' >&2; exit 7";
    let host = Host::new(&WAITS.replace("exec sleep 600", gone));
    let (_engine, events, job, _) = host.served();
    fs::write(host.server.with_file_name("llama-server.sh.end"), b"").unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("not failed")
    };
    assert_eq!(error.code, "server-ended");
    assert_eq!(error.cause, ["ggml: out of memory"]);

    let host = Host::new("echo 'error loading model: bad magic' >&2; exit 1");
    let (mut engine, events) = host.desk.engine();
    let job = engine.submit(host.command()).unwrap();
    let Outcome::Failed { error } = finished(&events, job) else {
        panic!("not failed")
    };
    assert_eq!(error.code, "server-not-started");
    assert!(
        error.headline.starts_with("llama-server did not start: "),
        "{error:?}"
    );
    assert_eq!(error.cause, ["error loading model: bad magic"]);
}

#[test]
fn a_server_and_a_measurement_refuse_each_other() {
    let host = Host::new(WAITS);
    let (mut engine, events, job, _) = host.served();
    let refused = engine.submit(host.desk.tune(None)).unwrap_err();
    assert_eq!(refused.code, "busy");
    assert!(refused.headline.contains("would spoil the measurement"));
    engine.cancel(job, CancelMode::Now);
    finished(&events, job);
    let next = engine.submit(host.desk.tune(None)).unwrap();
    engine.cancel(next, CancelMode::Now);
    assert!(matches!(finished(&events, next), Outcome::Cancelled { .. }));

    let gate = Gate::new(1);
    let host = Host::on(Desk::new(gate.script()), WAITS);
    let (mut engine, events) = host.desk.engine();
    let tune = engine.submit(host.desk.tune(None)).unwrap();
    gate.pass(|| {
        let refused = engine.submit(host.command()).unwrap_err();
        assert_eq!(
            refused.headline,
            "a measurement is running: a server would spoil it"
        );
    });
    // The server of its output check would never answer.
    engine.cancel(tune, CancelMode::Now);
    assert!(matches!(finished(&events, tune), Outcome::Cancelled { .. }));
}
