//! Finding, adding and removing llama.cpp builds (design section 4).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "support/shell_runtime.rs"]
mod shell_runtime;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flux::domain::types::RuntimeOrigin;
use flux::ports::{NewRuntime, Runtimes as _};

use shell_runtime::{Says, VULKAN_DEVICES, calls, catalog, runtime, temp};

/// A build as it is.
fn plain(dir: &Path) -> NewRuntime {
    NewRuntime {
        dir: dir.to_owned(),
        ..NewRuntime::default()
    }
}

#[test]
fn the_list_is_ordered_named_and_without_doubles() {
    let home = temp();
    let data = home.path().join("data");
    let dir = |name: &str| home.path().join(name);
    runtime(&dir("path-cpu"), &Says::default(), "libggml.so", "cpu");
    runtime(&dir("copy"), &Says::default(), "libggml.so", "cpu");
    let vulkan = Says {
        devices: VULKAN_DEVICES,
        ..Says::default()
    };
    runtime(&dir("path-gpu"), &vulkan, "libggml-vulkan.so", "gpu");
    runtime(&dir("clash"), &vulkan, "libggml-vulkan.so", "another");
    runtime(
        &data.join("runtimes/b11149-vulkan-ours"),
        &vulkan,
        "libggml-vulkan.so",
        "ours",
    );
    fs::create_dir_all(data.join("runtimes/.installing-x")).unwrap();
    let places = [
        dir("path-cpu"),
        dir("copy"),
        dir("path-gpu"),
        dir("clash"),
        dir("nothing"),
    ];
    let catalog = catalog(&data, &places);
    let listed: Vec<_> = catalog
        .list()
        .into_iter()
        .map(|r| (r.name, r.origin))
        .collect();
    let found = RuntimeOrigin::Found;
    assert_eq!(
        listed,
        [
            ("b11149-vulkan-ours".to_owned(), RuntimeOrigin::Installed),
            ("b11149-vulkan".to_owned(), found),
            ("b11149-vulkan-2".to_owned(), found),
            ("b11149-cpu".to_owned(), found),
        ]
    );
    assert_eq!(catalog.resolve("b11149-cpu").unwrap().dir, dir("path-cpu"));
    let unknown = catalog.resolve("b1").unwrap_err();
    assert!(unknown.hint.unwrap().contains("b11149-vulkan-2"));
}

/// Results belong to a build: a copy of it would take its name and be listed with the other folder.
#[test]
fn a_copy_of_a_known_build_is_not_added_under_another_name() {
    let home = temp();
    let dir = |name: &str| home.path().join(name);
    runtime(&dir("one"), &Says::default(), "libggml.so", "cpu");
    runtime(&dir("two"), &Says::default(), "libggml.so", "cpu");
    let catalog = catalog(&home.path().join("data"), &[]);
    let named = |at: &str, name: &str| NewRuntime {
        name: Some(name.to_owned()),
        ..plain(&dir(at))
    };
    catalog.add(&named("one", "a")).unwrap();
    let refused = catalog.add(&named("two", "c")).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("holds the build that is known as a, in "),
        "{refused}"
    );
    assert_eq!(catalog.resolve("a").unwrap().dir, dir("one"));
    // The same folder may be called otherwise.
    catalog.add(&named("one", "b")).unwrap();
    assert_eq!(catalog.resolve("b").unwrap().dir, dir("one"));
    catalog.remove("b").unwrap();
    catalog.add(&named("two", "c")).unwrap();
    assert_eq!(catalog.resolve("c").unwrap().dir, dir("two"));
}

#[test]
fn an_unchanged_build_is_neither_run_nor_hashed_again() {
    let home = temp();
    let dir = home.path().join("rt");
    runtime(&dir, &Says::default(), "libggml.so", "x");
    let look = || catalog(&home.path().join("data"), std::slice::from_ref(&dir)).list();
    let first = look();
    assert_eq!(calls(&dir).lines().count(), 3);
    assert_eq!(look(), first);
    assert_eq!(
        calls(&dir).lines().count(),
        3,
        "run again although nothing changed"
    );
    fs::write(dir.join("libggml.so"), "\x7fELFlonger").unwrap();
    let changed = look();
    assert_eq!(calls(&dir).lines().count(), 6);
    assert_ne!(changed[0].digest, first[0].digest);
}

#[test]
fn folders_are_added_for_good_and_removed_without_being_deleted() {
    let home = temp();
    let (data, dir) = (home.path().join("data"), home.path().join("mine"));
    runtime(&dir.join("bin"), &Says::default(), "libggml.so", "x");
    let added = catalog(&data, &[]).add(&plain(&dir)).unwrap();
    assert_eq!(
        (added.origin, &added.dir),
        (RuntimeOrigin::Added, &dir.join("bin"))
    );
    assert_eq!(catalog(&data, &[]).list(), std::slice::from_ref(&added));
    catalog(&data, &[]).add(&plain(&dir)).unwrap();
    assert_eq!(catalog(&data, &[]).list().len(), 1);

    // Gone for now: left out with a word, and still removable by name.
    fs::rename(&dir, home.path().join("elsewhere")).unwrap();
    let (listed, problems) = catalog(&data, &[]).list_with_problems();
    assert!(listed.is_empty());
    assert!(
        problems[0].headline.contains("no such folder"),
        "{}",
        problems[0]
    );
    assert!(
        problems[0]
            .hint
            .as_deref()
            .unwrap()
            .ends_with("`flux runtime remove b11149-cpu`")
    );
    assert_eq!(
        catalog(&data, &[]).remove(&added.name).unwrap().dir,
        added.dir
    );
    assert!(catalog(&data, &[]).list_with_problems().1.is_empty());
    assert!(home.path().join("elsewhere/bin/llama-bench").exists());
}

#[test]
fn the_same_folder_with_variables_is_another_build() {
    let home = temp();
    let (data, dir) = (home.path().join("data"), home.path().join("rt"));
    runtime(&dir, &Says::default(), "libggml.so", "x");
    let first = catalog(&data, &[]).add(&plain(&dir)).unwrap();
    let variable = ("GGML_VK_VISIBLE_DEVICES".to_owned(), "0".to_owned());
    let new = NewRuntime {
        dir: dir.clone(),
        name: Some("lavapipe".to_owned()),
        env: BTreeMap::from([variable]),
    };
    let second = catalog(&data, &[]).add(&new).unwrap();
    assert_eq!((second.name.as_str(), &second.env), ("lavapipe", &new.env));
    assert_ne!(second.digest, first.digest);
    // Asked three times without it, three times with it.
    let calls = calls(&dir);
    let asked: Vec<&str> = calls.lines().collect();
    let with = "GGML_VK_VISIBLE_DEVICES=0";
    let expected = ["--version", with, "--help", with, "--list-devices", with];
    assert_eq!(asked[..3], ["--version", "--help", "--list-devices"]);
    assert_eq!(asked[3..], expected);

    let again = catalog(&data, &[]);
    assert_eq!(again.list(), [first.clone(), second.clone()]);
    assert_eq!(again.resolve("lavapipe").unwrap(), second);
    assert_eq!(again.resolve(dir.to_str().unwrap()).unwrap(), first);
    let taken = NewRuntime {
        name: Some("lavapipe".to_owned()),
        ..plain(&dir)
    };
    let error = again.add(&taken).unwrap_err();
    assert_eq!(error.headline, "another llama.cpp build is called lavapipe");
    assert_eq!(again.remove("lavapipe").unwrap(), second);
    assert_eq!(catalog(&data, &[]).list(), [first]);
}

#[test]
fn what_an_installed_build_is_with_variables_is_the_users_own() {
    let home = temp();
    let data = home.path().join("data");
    let dir = data.join("runtimes/b7-cpu/bin");
    runtime(&dir, &Says::default(), "libggml.so", "ours");
    let new = NewRuntime {
        env: BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned())]),
        ..plain(&dir)
    };
    let added = catalog(&data, &[]).add(&new).unwrap();
    assert_eq!(added.origin, RuntimeOrigin::Added);
    catalog(&data, &[]).remove(&added.name).unwrap();
    assert_eq!(catalog(&data, &[]).list()[0].name, "b7-cpu");
}

/// The file as Flux wrote it before builds had variables.
#[test]
fn an_earlier_list_is_read_and_not_asked_anew() {
    let home = temp();
    let (data, dir) = (home.path().join("data"), home.path().join("rt"));
    runtime(&dir, &Says::default(), "libggml.so", "x");
    let added = catalog(&data, &[]).add(&plain(&dir)).unwrap();
    let file = data.join("runtimes.json");
    let written = fs::read_to_string(&file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(json["added"], serde_json::json!([dir]));
    let known = &json["known"][dir.to_str().unwrap()];
    assert_eq!(known["outcome"]["runtime"].get("env"), None);
    assert_eq!(json["names"][&added.digest], "b11149-cpu");
    assert_eq!(catalog(&data, &[]).list(), [added]);
    assert_eq!(calls(&dir).lines().count(), 3);
}

#[test]
fn only_what_flux_installed_is_deleted() {
    let home = temp();
    let (data, found) = (home.path().join("data"), home.path().join("found"));
    runtime(
        &data.join("runtimes/b7-cpu/bin"),
        &Says::default(),
        "libggml.so",
        "ours",
    );
    runtime(&found, &Says::default(), "libggml.so", "theirs");
    let catalog = catalog(&data, std::slice::from_ref(&found));
    let theirs = catalog.remove("b11149-cpu").unwrap_err();
    assert!(theirs.headline.contains("left alone"), "{theirs}");
    assert!(found.join("llama-bench").exists());
    assert_eq!(
        catalog.remove("b7-cpu").unwrap().origin,
        RuntimeOrigin::Installed
    );
    assert_eq!(fs::read_dir(data.join("runtimes")).unwrap().count(), 0);
    assert!(
        catalog
            .remove("b7-cpu")
            .unwrap_err()
            .headline
            .contains("b7-cpu")
    );
}

#[test]
fn a_folder_can_be_resolved_without_being_added() {
    let home = temp();
    let (data, dir) = (home.path().join("data"), home.path().join("other"));
    runtime(&dir, &Says::default(), "libggml.so", "x");
    let catalog = catalog(&data, &[]);
    let known = catalog.resolve(dir.to_str().unwrap()).unwrap();
    assert_eq!(
        (known.name.as_str(), known.origin),
        ("b11149-cpu", RuntimeOrigin::Found)
    );
    assert!(catalog.list().is_empty());
    let none = catalog.resolve("b11149-vulkan").unwrap_err();
    assert!(none.hint.unwrap().contains("flux runtime install"));
}
