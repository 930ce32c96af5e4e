//! Which class of failure an ended llama-bench belongs to, from its exit status, signal and stderr, with the telling
//! line as evidence (paper section 3, "valid samples only"; cases C04, C13–C15, C21).

use crate::domain::types::{Failure, FailureClass};

use super::process::Ended;

/// Lines that look like a failure and are none: a fallback follows them.
const HARMLESS: [&str; 2] = ["pinned memory", "failed to mlock"];

/// Words that decide a class wherever they stand, strongest first; lower case.
const SIGNS: &[(FailureClass, &[&str])] = &[
    (
        FailureClass::GpuNotUsed,
        &["errorincompatibledriver", "vk_error_incompatible_driver"],
    ),
    (
        FailureClass::DeviceCreation,
        &[
            "vkcreatedevice",
            "createdevice:",
            "errorinitializationfailed",
            "vk_error_initialization_failed",
        ],
    ),
    (
        FailureClass::MemoryOverCommit,
        &[
            "not enough memory for command submission",
            "amdgpu_vm_validate",
        ],
    ),
    (
        FailureClass::OutOfMemory,
        &[
            "out of memory",
            "failed to allocate",
            "unable to allocate",
            "erroroutofdevicememory",
            "erroroutofhostmemory",
            "vk_error_out_of_device_memory",
            "vk_error_out_of_host_memory",
            "cannot allocate memory",
            "std::bad_alloc",
        ],
    ),
    (FailureClass::DiskFull, &["no space left on device"]),
    (
        FailureClass::AnotherServer,
        &["couldn't bind http server socket"],
    ),
];

/// Words of a lost device.
const LOST: [&str; 5] = [
    "devicelost",
    "device_lost",
    "device lost",
    "context is lost",
    "gpu is lost",
];
/// Words that say a lost device was the watchdog's doing (case C14).
const WATCHDOG: [&str; 5] = [
    "waitforfences",
    "the cs has been cancelled",
    "timeout",
    "timed out",
    "cudaerrorlaunchtimeout",
];

/// Words that decide only when nothing above did: they follow from many causes.
const WEAK_SIGNS: &[(FailureClass, &[&str])] = &[
    (
        FailureClass::InvalidArgument,
        &[
            "invalid parameter for argument",
            "invalid argument",
            "unknown argument",
            "unrecognized argument",
            "invalid device",
        ],
    ),
    (
        FailureClass::ModelLoad,
        &[
            "unknown model architecture",
            "error loading model",
            "failed to load model",
        ],
    ),
];

/// The class of a process that ended by itself without giving its results.
pub fn classify(ended: &Ended) -> Failure {
    if let Some(failure) = from_text(&ended.stderr) {
        return failure;
    }
    let last = last_line(&ended.stderr);
    match (ended.signal, ended.exit_code) {
        // Flux's own kills end with another reason than `Exited`, so this one was the kernel's.
        (Some(SIGKILL), _) => killed(ended.memory_ran_out),
        (Some(signal), _) => Failure::new(
            FailureClass::Crashed,
            format!("ended with {}{last}", signal_name(signal)),
        ),
        (None, Some(0)) => Failure::new(
            FailureClass::NoResults,
            format!("ended with status 0 and no results{last}"),
        ),
        (None, None) => Failure::new(
            FailureClass::ExitStatus,
            format!("ended without a status{last}"),
        ),
        (None, Some(code)) => match exception(code) {
            Some((class, name)) => Failure::new(class, format!("ended with {name}{last}")),
            None => Failure::new(
                FailureClass::ExitStatus,
                format!("ended with status {code}{last}"),
            ),
        },
    }
}

/// What a status of Windows says that is an exception's (`NTSTATUS` of severity "error" from the system, ntstatus.h; the
/// one of C++). Statuses of other systems are too small to be one.
fn exception(status: i32) -> Option<(FailureClass, String)> {
    let code = status.cast_unsigned();
    let (class, name) = match code {
        0xC000_0005 => (FailureClass::Crashed, "an access violation"),
        0xC000_001D => (
            FailureClass::Crashed,
            "an instruction that this processor does not know",
        ),
        0xC000_00FD => (FailureClass::Crashed, "a stack overflow"),
        0xC000_0409 => (FailureClass::Crashed, "an abort"),
        0xC000_0135 => (FailureClass::NotStarted, "a library (DLL) missing"),
        0xC000_0139 | 0xC000_0142 => (
            FailureClass::NotStarted,
            "a library (DLL) of another version",
        ),
        0xC000_013A => (FailureClass::Killed, "Ctrl-C"),
        0xE06D_7363 => (FailureClass::Crashed, "an uncaught C++ exception"),
        0xC000_0000..=0xCFFF_FFFF => (FailureClass::Crashed, "an exception"),
        _ => return None,
    };
    Some((class, format!("{name} (0x{code:08X})")))
}

/// Ended by SIGKILL from outside: for memory only where the kernel says so.
fn killed(memory_ran_out: Option<bool>) -> Failure {
    let (class, known) = match memory_ran_out {
        Some(true) => (
            FailureClass::OutOfMemory,
            "the kernel ended a process for lack of memory meanwhile",
        ),
        Some(false) => (
            FailureClass::Killed,
            "the kernel ended nothing for lack of memory meanwhile",
        ),
        None => (
            FailureClass::Killed,
            "whether for lack of memory this system does not tell",
        ),
    };
    Failure::new(
        class,
        format!("ended by SIGKILL, which Flux did not send; {known}"),
    )
}

/// May a log of the same failure tell more? Without `-v` a build says "failed to load model" also when memory ran out.
pub fn is_vague(failure: &Failure) -> bool {
    matches!(
        failure.class,
        FailureClass::ModelLoad | FailureClass::ExitStatus
    )
}

fn from_text(stderr: &str) -> Option<Failure> {
    strongest(stderr, SIGNS)
        .or_else(|| lost_device(stderr))
        .or_else(|| strongest(stderr, WEAK_SIGNS))
}

/// The first class of `signs` of which a line speaks, with that line.
fn strongest(stderr: &str, signs: &[(FailureClass, &[&str])]) -> Option<Failure> {
    signs
        .iter()
        .find_map(|(class, words)| Some(Failure::new(*class, first_line_with(stderr, words)?)))
}

fn lost_device(stderr: &str) -> Option<Failure> {
    let line = first_line_with(stderr, &LOST)?;
    let class = if first_line_with(stderr, &WATCHDOG).is_some() {
        FailureClass::DeviceLostTimeout
    } else {
        FailureClass::DeviceLost
    };
    Some(Failure::new(class, line))
}

fn first_line_with<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    text.lines().map(str::trim).find(|line| {
        let lower = line.to_ascii_lowercase();
        words.iter().any(|w| lower.contains(w)) && !HARMLESS.iter().any(|w| lower.contains(w))
    })
}

/// Starts of lines in which the library gives its reason, before the tool's own "failed to create context".
const REASON: &str = "llama_init_from_model:";

/// `: <the library's reason, else the last line>`, or nothing.
fn last_line(stderr: &str) -> String {
    let mut lines = stderr.lines().rev().map(str::trim);
    let reason = lines.clone().find(|l| l.starts_with(REASON));
    let line = reason.or_else(|| lines.find(|l| !l.is_empty()));
    line.map(|l| format!(": {l}")).unwrap_or_default()
}

/// The kernel's unconditional kill.
const SIGKILL: i32 = 9;

/// A signal by name, as a shell user knows it; the numbers are those all Unix systems share, and SIGBUS of Linux.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 if cfg!(target_os = "linux") => "SIGBUS",
        8 => "SIGFPE",
        SIGKILL => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::process::EndReason;
    use super::*;

    fn ended(code: Option<i32>, signal: Option<i32>, stderr: &str) -> Ended {
        Ended {
            reason: EndReason::Exited,
            exit_code: code,
            signal,
            memory_ran_out: None,
            stdout: String::new(),
            stderr: stderr.to_owned(),
            wall: Duration::ZERO,
        }
    }

    /// Class of a process that wrote `stderr` and ended with status 1.
    fn class(stderr: &str) -> FailureClass {
        classify(&ended(Some(1), None, stderr)).class
    }

    #[test]
    fn out_of_memory_wins_over_the_load_failure_that_follows_it() {
        let log = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9216.00 MiB on device 0: cudaMalloc failed: out of memory\n\
                   alloc_tensor_range: failed to allocate CUDA0 buffer of size 9663676416\n\
                   llama_model_load: error loading model: unable to allocate CUDA0 buffer\n\
                   llama_bench: error: failed to load model '/m.gguf'\n";
        let failure = classify(&ended(Some(1), None, log));
        assert_eq!(failure.class, FailureClass::OutOfMemory);
        assert!(failure.detail.contains("cudaMalloc failed: out of memory"));
        assert_eq!(
            class(
                "ggml_vulkan: Device memory allocation of size 1 failed.\nvk::Device::allocateMemory: ErrorOutOfDeviceMemory"
            ),
            FailureClass::OutOfMemory
        );
    }

    #[test]
    fn a_pinned_memory_warning_is_not_out_of_memory() {
        let log = "ggml_cuda_host_malloc: failed to allocate 304.28 MiB of pinned memory: out of memory\n\
                   warning: failed to mlock 39813120-byte buffer: Cannot allocate memory\n\
                   llama_model_load: error loading model: unknown model architecture: 'clip'\n";
        assert_eq!(class(log), FailureClass::ModelLoad);
    }

    #[test]
    fn c13_lost_device_with_over_commit_is_a_memory_failure() {
        let log = "radv/amdgpu: Not enough memory for command submission.\n\
                   terminate called after throwing an instance of 'vk::DeviceLostError'\n\
                   what():  vk::Queue::submit: ErrorDeviceLost\n";
        let failure = classify(&ended(None, Some(6), log));
        assert_eq!(failure.class, FailureClass::MemoryOverCommit);
        assert!(failure.class.advice().contains("smaller context"));
    }

    #[test]
    fn c14_lost_device_with_a_watchdog_is_a_timeout() {
        let log = "radv/amdgpu: The CS has been cancelled because the context is lost. This context is innocent.\n\
                   what():  vk::Device::waitForFences: ErrorDeviceLost\n";
        assert_eq!(class(log), FailureClass::DeviceLostTimeout);
        assert_eq!(
            class("vk::Queue::submit: ErrorDeviceLost"),
            FailureClass::DeviceLost
        );
    }

    #[test]
    fn c15_lost_at_device_creation_is_its_own_class() {
        let log = "terminate called after throwing an instance of 'vk::DeviceLostError'\n\
                   what():  vk::PhysicalDevice::createDevice: ErrorDeviceLost\n";
        let failure = classify(&ended(None, Some(6), log));
        assert_eq!(failure.class, FailureClass::DeviceCreation);
        assert!(failure.detail.contains("createDevice"));
        assert!(failure.class.advice().contains("graphics queue"));
        assert_eq!(
            class("vkCreateDevice failed: VK_ERROR_DEVICE_LOST"),
            FailureClass::DeviceCreation
        );
    }

    /// Statuses as a 32-bit shell of Windows shows them: 0xC0000005, 0xC0000135.
    #[test]
    fn an_exception_of_windows_is_a_crash_or_a_missing_library() {
        let of = |status| classify(&ended(Some(status), None, ""));
        let crash = of(-1_073_741_819);
        assert_eq!(crash.class, FailureClass::Crashed);
        assert_eq!(crash.detail, "ended with an access violation (0xC0000005)");
        assert_eq!(of(-1_073_741_515).class, FailureClass::NotStarted);
        assert_eq!(of(-1_073_741_510).class, FailureClass::Killed);
        assert_eq!(of(-1_073_740_791).class, FailureClass::Crashed);
        for status in [1, 3, 255, -1] {
            assert_eq!(of(status).class, FailureClass::ExitStatus, "{status}");
        }
    }

    #[test]
    fn no_driver_is_no_gpu() {
        assert_eq!(
            class("vk::createInstance: ErrorIncompatibleDriver"),
            FailureClass::GpuNotUsed
        );
    }

    #[test]
    fn arguments_and_models_are_told_apart() {
        assert_eq!(
            class("error: invalid parameter for argument: --nope"),
            FailureClass::InvalidArgument
        );
        assert_eq!(
            class("llama_bench: error: failed to load model '/nope.gguf'"),
            FailureClass::ModelLoad
        );
    }

    #[test]
    fn the_librarys_reason_is_preferred_to_the_tools_summary() {
        // Seen with `-v -ctv q8_0 -fa off`.
        let log = ".\nllama_init_from_model: quantized V cache requires flash_attn to be enabled\n\
                   llama_bench: error: failed to create context with model '/m.gguf'\n";
        assert_eq!(
            classify(&ended(Some(1), None, log)).detail,
            "ended with status 1: llama_init_from_model: quantized V cache requires flash_attn to be enabled"
        );
    }

    #[test]
    fn a_good_runs_log_has_no_sign_of_failure() {
        let log = include_str!("../../tests/fixtures/logs/llama-bench-v-cuda-b11149.txt");
        assert_eq!(from_text(log), None);
    }

    #[test]
    fn without_a_telling_line_the_end_decides() {
        for (memory_ran_out, class, known) in [
            (
                Some(true),
                FailureClass::OutOfMemory,
                "ended a process for lack of memory",
            ),
            (
                Some(false),
                FailureClass::Killed,
                "ended nothing for lack of memory",
            ),
            (None, FailureClass::Killed, "does not tell"),
        ] {
            let killed = classify(&Ended {
                memory_ran_out,
                ..ended(None, Some(9), "")
            });
            assert_eq!(killed.class, class);
            assert!(killed.detail.contains(known), "{killed}");
        }
        let crashed = classify(&ended(None, Some(11), "some line\n"));
        assert_eq!(crashed.class, FailureClass::Crashed);
        assert_eq!(crashed.detail, "ended with SIGSEGV: some line");
        assert_eq!(class("weird"), FailureClass::ExitStatus);
    }
}
