//! The engine's side of the protocol: its own sources over `crate::ports::sync`.

#[path = "../../src/engine/job.rs"]
pub mod job;
#[path = "../../src/engine/jobs.rs"]
pub mod jobs;

pub mod message {
    pub use flux::engine::message::*;
}

/// Which session is measured concerns the sensors alone.
pub mod watch {
    #[derive(Clone)]
    pub struct Watch;

    impl Watch {
        pub fn begin(&self, _: i64) {}

        pub fn end(&self) {}
    }
}
