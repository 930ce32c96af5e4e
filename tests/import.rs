//! Profiles that came from elsewhere: taken over, held against this machine, applied when told to, listed, forgotten.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/bench_runs.rs"]
mod bench_runs;
#[path = "support/fake_runtime.rs"]
mod fake_runtime;
#[path = "support/flux_cli.rs"]
mod flux_cli;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use flux_cli::{Bed, FLASH_WINS, ONLY_FLASH, document, refused};

/// The tuned profile's document, and a machine with another build to take it over.
fn carried() -> (Value, Bed, std::path::PathBuf) {
    let text = Bed::tuned().export(&["--format", "profile"]);
    let there = Bed::new(FLASH_WINS);
    let mut add = there.flux(&[
        "runtime", "add", "--json", "--name", "other", "--env", "HSA_X=1",
    ]);
    document(add.arg(there.fake.dir()));
    let file = there.fake.scratch().join("profile.json");
    fs::write(&file, &text).unwrap();
    (serde_json::from_str(&text).unwrap(), there, file)
}

#[test]
fn another_flux_takes_a_profile_over_and_applies_it_only_when_told_to() {
    let (profile, there, file) = carried();
    assert_eq!(profile["settings"], json!({"flash-attn": "on"}));
    let mut import = there.flux(&["import", "--json"]);
    let imported = document(import.arg(&file));
    assert_eq!(
        (&imported["id"], &imported["holds"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(imported["stock"][0]["stock"], "auto");
    assert!(!imported["differs"].as_array().unwrap().is_empty());
    let again = document(there.flux(&["import", "--json"]).arg(&file));
    assert_eq!(again["id"], 1, "the same one is there already");
    let said = there.flux(&["import"]).arg(&file).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("flash-attn=on (stock: auto)") && said.contains("--stale-ok"),
        "{said}"
    );

    let run = |more: &[&str]| {
        let mut run = there.flux(&["run", "--runtime", "other", "-m"]);
        run.arg(&there.model).args(more);
        run
    };
    let error = refused(&run(&["--print", "--json"]).output().unwrap(), 1);
    assert!(
        error.contains("was measured elsewhere; different here: "),
        "{error}"
    );
    let plan = document(&mut run(&["--print", "--json", "--stale-ok"]));
    let argv = plan["argv"].to_string();
    assert!(argv.contains(r#""--flash-attn","on""#), "{argv}");
    assert_eq!(plan["notices"][0]["code"], "stale-profile");
    let explained = run(&["--explain", "--stale-ok"]).output().unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(
        text.starts_with("Imported profile: generation goal, flash-attn=on"),
        "{text}"
    );

    // A search tries it first, and its own result takes its place.
    let result = document(
        there
            .flux(&["tune", "--json", "--runtime", "other", "-m"])
            .arg(&there.model)
            .args(ONLY_FLASH),
    );
    assert_eq!(
        result["stale_profile"]["reproduced"], true,
        "{}",
        result["stale_profile"]
    );
    let plan = document(&mut run(&["--print", "--json"]));
    assert_eq!(plan["profile"]["session"], 1);
}

#[test]
fn on_the_machine_it_came_from_a_profile_holds() {
    let bed = Bed::tuned();
    let file = bed.fake.scratch().join("profile.json");
    fs::write(&file, bed.export(&["--format", "profile"])).unwrap();
    let other = bed.fake.scratch().join("other data");
    let flux = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        command
            .env("HOME", bed.fake.scratch())
            .arg("--data-dir")
            .arg(&other)
            .args(args);
        command
    };
    document(flux(&["runtime", "add", "--json"]).arg(bed.fake.dir()));
    assert_eq!(
        document(flux(&["import", "--json"]).arg(&file))["holds"],
        true
    );
    let plan = document(flux(&["run", "--print", "--json", "-m"]).arg(&bed.model));
    assert_eq!(plan["notices"][0]["code"], "imported-profile");
    assert_eq!(plan["stock"][0]["value"], "on");
    // The fields say where it was measured, not the key beside them.
    let mut other: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    other["fingerprint"]["fields"][0][1] = json!("another");
    fs::write(&file, other.to_string()).unwrap();
    let imported = document(flux(&["import", "--json"]).arg(&file));
    assert_eq!(imported["holds"], false);
    assert_eq!(imported["differs"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_no_profile_is_refused_in_one_sentence_and_nothing_is_kept() {
    let (profile, there, file) = carried();
    let import = |text: &str| {
        fs::write(&file, text).unwrap();
        refused(&there.flux(&["import"]).arg(&file).output().unwrap(), 1)
    };
    for (key, value, why) in [
        (
            "settings",
            json!({"flash-attn": "on --host 0.0.0.0"}),
            "is not one that Flux knows",
        ),
        (
            "env",
            json!({"LD_PRELOAD": "/tmp/x.so"}),
            "unknown field `env`",
        ),
        ("schema", json!(7), "from a newer Flux"),
        ("schema", json!(0), "its schema is no number of one"),
        ("kind", json!("recipe"), "its kind is not flux-profile"),
        (
            "model",
            json!({"name": "x".repeat(1000), "digest": profile["model"]["digest"]}),
            "its model's name has not 1 to 256 characters",
        ),
    ] {
        let mut wrong = profile.clone();
        wrong[key] = value;
        let error = import(&wrong.to_string());
        assert!(error.contains(why), "{error}");
    }
    assert!(import("\u{1b}[2J").contains("no profile of Flux"));
    assert!(import(r#"{"schema": 1, "session": {}, "runs": []}"#).contains("not a profile"));
    let missing = there.flux(&["import", "no/such.json"]).output().unwrap();
    assert!(refused(&missing, 1).contains("cannot be read"));
    let mut run = there.flux(&["run", "--print", "--json", "--runtime"]);
    let plan = document(run.arg(there.fake.dir()).arg("-m").arg(&there.model));
    assert!(plan["profile"].is_null());
}

#[test]
fn imports_are_listed_and_forgotten() {
    let (_, there, file) = carried();
    let list = |there: &Bed| document(&mut there.flux(&["import", "--list", "--json"]));
    let text = |args: &[&str]| {
        let output = there.flux(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(list(&there)["imports"], json!([]));
    assert!(text(&["import", "--list"]).starts_with("Nothing was imported"));
    document(there.flux(&["import", "--json"]).arg(&file));
    let listed = list(&there);
    let [import] = &listed["imports"].as_array().unwrap()[..] else {
        panic!("{listed}")
    };
    assert_eq!(
        (&import["id"], &import["holds"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(import["profile"]["settings"], json!({"flash-attn": "on"}));
    let shown = text(&["import", "--list"]);
    assert!(
        shown.contains("generation  Flash attention on  elsewhere"),
        "{shown}"
    );

    let undone = document(&mut there.flux(&["import", "--undo", "1", "--json"]));
    assert_eq!(undone["undone"], 1);
    assert_eq!(list(&there)["imports"], json!([]));
    let mut run = there.flux(&["run", "--print", "--json", "--runtime"]);
    let plan = document(run.arg(there.fake.dir()).arg("-m").arg(&there.model));
    assert!(plan["profile"].is_null(), "nothing is applied any more");
    let again = there.flux(&["import", "--undo", "1"]).output().unwrap();
    assert_eq!(refused(&again, 1), "there is no import 1");
    for wrong in [&["import"][..], &["import", "--list", "--undo", "1"]] {
        assert_eq!(there.flux(wrong).output().unwrap().status.code(), Some(2));
    }
}
