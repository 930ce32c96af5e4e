//! Why a run gave no valid samples. A failed run is data: never a zero, never a slow sample.

use serde::{Deserialize, Serialize};

/// Failure classes, each with its advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// The program could not be started.
    NotStarted,
    /// Ran out of device or host memory.
    OutOfMemory,
    /// Device lost with signs of memory over-commit (case C13).
    MemoryOverCommit,
    /// Device lost with signs of a watchdog (case C14).
    DeviceLostTimeout,
    /// Device lost, cause unknown.
    DeviceLost,
    /// The device could not be created (case C15).
    DeviceCreation,
    /// The model file could not be loaded.
    ModelLoad,
    /// The tool refused an argument.
    InvalidArgument,
    /// Results were printed, then the process crashed (case C01).
    CrashAtExit,
    /// Ended by a signal before finishing.
    Crashed,
    /// Ended by a signal that somebody sent.
    Killed,
    /// Ended with a non-zero status.
    ExitStatus,
    /// Ran past its time limit.
    TimedOut,
    /// No result rows (case C04).
    NoResults,
    /// Output that is no llama-bench record.
    Unparsable,
    /// A sample was non-finite or not positive (case C03).
    InvalidSample,
    /// Other tests came back than were asked for (case C06).
    WrongTests,
    /// The effective settings are not the ones asked for (case C37).
    EffectiveMismatch,
    /// A GPU run that did not use the GPU (case C21).
    GpuNotUsed,
    /// Ran on another device than asked (case C18).
    WrongDevice,
    /// The disk refused a write.
    DiskFull,
    /// Another program answers on the server's port (case C08).
    AnotherServer,
    /// A request ended before enough tokens, or those asked for, were processed (case C09).
    TooFewTokens,
    /// The prompt was not computed but remembered (case C09).
    PromptFromCache,
    /// llama-server did not take a request.
    RequestRefused,
    /// An answer that is none of llama-server's.
    AnswerUnreadable,
    /// An answer that ended before its end.
    AnswerBroken,
    /// Every drafted token was accepted: an old answer said again (paper section 6).
    AnswerReplayed,
    /// The energy goal was asked for and no sensor told of it.
    NoEnergy,
}

impl FailureClass {
    /// The class in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotStarted => "could not be started",
            Self::OutOfMemory => "out of memory",
            Self::MemoryOverCommit => "device lost: memory over-commit",
            Self::DeviceLostTimeout => "device lost: timeout",
            Self::DeviceLost => "device lost",
            Self::DeviceCreation => "device could not be created",
            Self::ModelLoad => "model could not be loaded",
            Self::InvalidArgument => "argument refused",
            Self::CrashAtExit => "crash at exit",
            Self::Crashed => "crashed",
            Self::Killed => "killed from outside",
            Self::ExitStatus => "ended with an error",
            Self::TimedOut => "timed out",
            Self::NoResults => "no results",
            Self::Unparsable => "unreadable output",
            Self::InvalidSample => "invalid sample",
            Self::WrongTests => "wrong test set",
            Self::EffectiveMismatch => "other settings took effect",
            Self::GpuNotUsed => "GPU was not used",
            Self::WrongDevice => "ran on the wrong GPU",
            Self::DiskFull => "disk full",
            Self::AnotherServer => "wrong server",
            Self::TooFewTokens => "too few tokens",
            Self::PromptFromCache => "prompt served from cache",
            Self::RequestRefused => "request refused",
            Self::AnswerUnreadable => "unreadable answer",
            Self::AnswerBroken => "answer broken off",
            Self::AnswerReplayed => "answer replayed",
            Self::NoEnergy => "no energy reading",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NotStarted => "check that the runtime's folder still holds its binaries",
            Self::OutOfMemory => "fewer layers on the GPU, a smaller context or a smaller model",
            Self::MemoryOverCommit => "fewer layers on the GPU or a smaller context",
            Self::DeviceLostTimeout => "a smaller micro-batch, or fewer graph nodes per submission",
            Self::DeviceLost => "check the driver's log; update or roll back the driver",
            Self::DeviceCreation => {
                "stock asks for a queue family this driver refuses: the graphics queue may work"
            }
            Self::ModelLoad => "check the file with `flux models`; the build may be too old for it",
            Self::InvalidArgument => "this build does not know the option: choose another build",
            Self::CrashAtExit => "the samples are kept as evidence only; try another build",
            Self::TimedOut => "raise --time-limit per run, or choose a smaller model",
            Self::Crashed | Self::ExitStatus | Self::NoResults => {
                "read the last lines of its log in `flux show`"
            }
            Self::Killed => {
                "look for who ended it: another user, a service manager, a memory guard such as systemd-oomd"
            }
            Self::Unparsable => "this build's output is not llama-bench's: choose another build",
            Self::InvalidSample => "repeat; if it stays, this setting does not work here",
            Self::WrongTests => "the tool read an argument as several tests: report this",
            Self::EffectiveMismatch => "turn automatic fitting off, or choose a smaller setting",
            Self::GpuNotUsed => "check the driver, /dev/dri and the render group",
            Self::WrongDevice => "choose the device with --device",
            Self::DiskFull => "free space in the data folder, then resume",
            Self::AnotherServer => "end the other program, or try again on another port",
            Self::TooFewTokens => "generate at least 32 tokens, with the end token ignored",
            Self::PromptFromCache => "send prompts with the cache off, or a new one each time",
            Self::RequestRefused => "read what llama-server said; a longer context may be needed",
            Self::AnswerUnreadable => {
                "this is not llama-server as Flux knows it: choose another build"
            }
            Self::AnswerBroken => "read the last lines of the server's log; try again",
            Self::AnswerReplayed => "ask something new each time, with nothing kept from before",
            Self::NoEnergy => "see with `flux doctor` why the power sensor is silent",
        }
    }
}

/// A failed run: class, and the evidence in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class.
    pub class: FailureClass,
    /// What was seen, e.g. the log line that told.
    pub detail: String,
}

impl Failure {
    /// A failure of `class` with its evidence.
    pub fn new(class: FailureClass, detail: impl Into<String>) -> Self {
        Self {
            class,
            detail: detail.into(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.class.words(), self.detail)
    }
}
