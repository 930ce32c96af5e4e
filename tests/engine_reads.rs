//! What the engine answers without a job: scan, models, doctor, what can be gone on with, a plan.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;
#[path = "support/scripted_engine.rs"]
mod scripted_engine;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flux::domain::doctor::Facts;
use flux::domain::types::{Host, Machine, Runtime};
use flux::engine::message::{Command, Outcome, USAGE};
use flux::engine::models::named;
use flux::engine::report::DryRun;
use flux::engine::resume::resumable;
use flux::engine::scan::scan;
use flux::engine::{doctor, prepare};
use flux::ports::{CancelMode, MachineProbe, PortResult, SessionKind};
use serde_json::json;

use scripted_engine::{Answer, Desk, finished};

fn desk() -> Desk {
    Desk::new(|_| Answer::Valid)
}

#[test]
fn a_scan_is_remembered_and_the_next_says_what_changed() {
    let mut desk = desk();
    let first = scan(&desk.ports);
    assert_eq!(first.changes, None);
    assert_eq!(first.runtimes.len(), first.runtime_fingerprints.len());
    assert_eq!(scan(&desk.ports).changes, Some(Vec::new()));
    desk.moves_to("rtx-4070");
    let moved = scan(&desk.ports);
    assert_ne!(moved.fingerprint, first.fingerprint);
    let changes = moved.changes.unwrap();
    assert!(changes.iter().any(|c| c.field.starts_with("CPU")));
    assert_eq!(moved.notices, []);
}

/// A machine with a key in its environment, and a shader cache that is switched off.
struct Careless(Arc<dyn MachineProbe>);

impl MachineProbe for Careless {
    fn machine(&self) -> Machine {
        let mut machine = self.0.machine();
        let set = [("LLAMA_API_KEY", "hunter2"), ("GGML_VK_DISABLE_F16", "1")];
        machine.inherited_env = set.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        machine
    }

    fn host(&self) -> Host {
        self.0.host()
    }

    fn facts(&self, _: &Path) -> Facts {
        Facts {
            shader_cache_disabled: Some("1".to_owned()),
            ..Facts::default()
        }
    }

    fn export(&self, machine: &Machine, runtimes: &[Runtime], dir: &Path) -> PortResult<PathBuf> {
        self.0.export(machine, runtimes, dir)
    }
}

#[test]
fn a_scan_holds_no_secret_and_doctor_asks_for_the_facts() {
    let mut desk = desk();
    desk.ports.probe = Arc::new(Careless(desk.ports.probe.clone()));
    let env = scan(&desk.ports).machine.inherited_env;
    assert_eq!(env["LLAMA_API_KEY"], "(hidden)");
    assert_eq!(env["GGML_VK_DISABLE_F16"], "1");
    let found = doctor::findings(Some(&desk.bed.model), &desk.ports).unwrap();
    let codes: Vec<&str> = found.iter().map(|f| f.code.as_str()).collect();
    assert!(codes.contains(&"shader-cache-disabled"), "{codes:?}");
    let missing = doctor::findings(Some(Path::new("missing.gguf")), &desk.ports);
    assert!(missing.is_err());
}

#[test]
fn a_model_named_twice_is_listed_once_and_a_missing_one_is_an_error() {
    let desk = desk();
    let folder = desk.bed.model.parent().unwrap().to_owned();
    let listed = named(&[desk.bed.model.clone(), folder], &desk.ports).unwrap();
    let models = listed.iter().filter(|l| l.model.is_some());
    assert_eq!(models.count(), 1);
    assert!(named(&["missing.gguf".into()], &desk.ports).is_err());
}

#[test]
fn a_cancelled_search_can_be_gone_on_with_by_number_model_or_alone() {
    let desk = Desk::new(|asked| {
        asked.cancel.cancel(CancelMode::AfterSample);
        Answer::Valid
    });
    let model = desk.bed.model.clone();
    let none = resumable(SessionKind::Tune, None, None, &desk.ports).unwrap_err();
    assert_eq!(none.headline, "no unfinished session to go on with");
    let (mut engine, events) = desk.engine();
    let job = engine.submit(desk.tune(None)).unwrap();
    assert!(matches!(finished(&events, job), Outcome::Cancelled { .. }));
    for (named, given) in [(None, None), (Some(1), None), (None, Some(model.clone()))] {
        let found = resumable(SessionKind::Tune, named, given, &desk.ports).unwrap();
        assert_eq!(found, (model.clone(), 1));
    }
    let other = resumable(
        SessionKind::Tune,
        Some(1),
        Some("other.gguf".into()),
        &desk.ports,
    )
    .unwrap_err();
    assert_eq!(other.code, USAGE);
    let unknown = resumable(SessionKind::Tune, Some(7), None, &desk.ports).unwrap_err();
    assert_eq!(unknown.headline, "no session 7 here");
}

#[test]
fn a_dry_run_is_typed_and_reads_back_from_its_json() {
    let desk = desk();
    let Command::Tune(request) = desk.tune(None) else {
        panic!("no search")
    };
    let plan = prepare::dry_run(&request, &desk.ports).unwrap();
    // Flash attention has three values, and `auto` is stock.
    assert_eq!(plan.candidates.len(), 2);
    assert!(plan.summary().starts_with("2 candidates, about "));
    assert_eq!(plan.expected_secs, None, "nothing was measured here yet");
    let keys = json!(plan);
    assert_eq!(keys["candidates"][0]["args"][0], "--flash-attn");
    let back: DryRun = serde_json::from_value(keys).unwrap();
    assert_eq!(back, plan);
}
