//! Sensors of captured machines, and a clock for them.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flux::domain::types::Timestamp;
use flux::ports::Clock;

/// Machines whose sensors are files of the kernel.
pub const OF_KERNEL: [&str; 5] = [
    "rx580",
    "navi21",
    "apu-phoenix",
    "arc-b580",
    "laptop-hybrid",
];

/// The folder of one machine.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/telemetry")
        .join(name)
}

/// Stands still unless it is moved; milliseconds.
#[derive(Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst).cast_signed())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}
