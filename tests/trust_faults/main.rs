//! Flux ended, hindered and robbed at random moments of a tune (issue "Trust", part 1). Whatever happens, seen from the
//! outside: no process of it is left, every run that it announced is in the database, the database is sound, the history
//! does not say that it still runs, and it can be gone on with.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

#[path = "../support/bench_runs.rs"]
mod bench_runs;
#[path = "../support/fake_runtime.rs"]
mod fake_runtime;
#[path = "../support/flux_cli.rs"]
mod flux_cli;
#[path = "../support/running_tune.rs"]
mod running_tune;

mod disk;
mod power;
mod signals;
mod storage;
mod storm;
mod world;

const _: () = assert!(
    4 * storm::EACH + power::CUTS + 2 * disk::EACH + storage::DISTURBANCES >= 200,
    "as many as the issue asks for"
);
