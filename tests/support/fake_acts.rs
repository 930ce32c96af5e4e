//! What a simulated llama.cpp does out of the ordinary: it fails, floods, hangs, forks, is killed.

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::fake_config::Act;

/// Does what comes before any result; a status ends the process.
pub fn before_results(act: &Act) -> Option<ExitCode> {
    match act {
        Act::Fail(lines) => return Some(failed(lines)),
        Act::Abort(lines) => {
            eprintln!("{lines}");
            std::process::abort()
        }
        Act::Oom => {
            return Some(failed(
                "ggml_vulkan: Device memory allocation of size 2491323904 failed.\n\
                 ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n\
                 llama_bench: error: failed to load model 'simulated.gguf'",
            ));
        }
        Act::DeviceLost => {
            eprintln!("terminate called after throwing an instance of 'vk::DeviceLostError'");
            eprintln!("  what():  vk::Device::waitForFences: ErrorDeviceLost");
            std::process::abort()
        }
        Act::DiskFull => {
            return Some(failed(
                "ggml_vulkan: pipeline cache: No space left on device",
            ));
        }
        Act::Garbage => println!("this is not the program you are looking for"),
        Act::HeaderOnly => {
            println!("| model | size | params | backend | ngl | fa | test | t/s |");
            println!("| ----- | ---: | -----: | ------- | --: | -: | ---: | --: |");
        }
        Act::Killed => raise(9),
        Act::Hang => loop {
            std::thread::sleep(Duration::from_hours(1));
        },
        Act::SleepMs(ms) => std::thread::sleep(Duration::from_millis(*ms)),
        // The handler that replaces SIGTERM's default does nothing.
        Act::IgnoreSigterm => drop(ctrlc::set_handler(|| {})),
        Act::Grandchild => {
            let exe = std::env::current_exe();
            drop(exe.and_then(|exe| Command::new(exe).arg("--sleep").spawn()));
        }
        Act::FloodMib(mib) => flood(*mib, std::io::stderr()),
        Act::FloodStdoutMib(mib) => flood(*mib, std::io::stdout()),
        Act::Daemon => drop(
            Command::new("setsid")
                .args(["--fork", "sleep", "3600"])
                .status(),
        ),
        Act::NoGpu => {
            eprintln!("warning: no usable GPU found, --gpu-layers option will be ignored");
        }
        _ => {}
    }
    matches!(act, Act::Garbage | Act::HeaderOnly).then_some(ExitCode::SUCCESS)
}

/// Does what comes after the results.
pub fn after_results(act: &Act) -> Option<ExitCode> {
    match act {
        Act::Exit(code) => Some(ExitCode::from(*code)),
        Act::CrashAfterOutput => raise(11),
        _ => None,
    }
}

fn failed(lines: &str) -> ExitCode {
    eprintln!("{lines}");
    ExitCode::from(1)
}

fn flood(mib: u64, mut into: impl std::io::Write) {
    let line = format!("{}\n", "x".repeat(127));
    let block = line.repeat(8 * 1024);
    for _ in 0..mib {
        let _ = into.write_all(block.as_bytes());
    }
}

/// Ends by this signal. Rust's own SIGSEGV handler takes the first one, so it is sent until it works.
#[cfg(unix)]
fn raise(signal: i32) -> ! {
    use rustix::process::{Signal, getpid, kill_process};
    while let Some(signal) = Signal::from_named_raw(signal) {
        let _ = kill_process(getpid(), signal);
    }
    std::process::abort()
}

#[cfg(not(unix))]
fn raise(_: i32) -> ! {
    std::process::abort()
}
