//! An allocator that knows the largest allocation of each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// Remembers the largest allocation of each thread.
struct Watched;

fn seen(bytes: usize) {
    // Fails only while the thread ends, when nothing is measured.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

#[expect(unsafe_code, reason = "an allocator is unsafe by signature")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        seen(layout.size());
        // SAFETY: the caller's promise is the same as `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        seen(size);
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

/// Runs `job`; its answer and the bytes of its largest single allocation.
pub fn largest_allocation<T>(job: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    let answer = job();
    (answer, LARGEST.get())
}
