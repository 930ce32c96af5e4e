//! Threads, channels and flags of the engine's protocol (style B2), named in one place: `tests/trust_protocol.rs` builds the
//! protocol's own source with others in their stead, which try out every order of events.

pub use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
pub use std::sync::{Mutex, PoisonError};
pub use std::thread::{Builder, JoinHandle};

pub use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};
