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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[derive(Clone, Default)]
    pub struct Watch(Arc<AtomicI64>);

    impl Watch {
        pub fn begin(&self, session: i64) {
            self.0.store(session, Ordering::SeqCst);
        }

        pub fn end(&self) {
            self.0.store(0, Ordering::SeqCst);
        }
    }
}
