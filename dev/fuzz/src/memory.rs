//! An allocator that counts what each thread holds, so that the peak of one decode can be measured
//! while other tests run.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with counters per thread. Install it in the root of a test binary:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;
/// # fn main() {
/// let (bytes, peak) = rekindle_fuzz::peak(|| vec![1u8; 5000]);
/// assert!(bytes.len() == 5000 && peak >= Some(5000));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// Thread locals without a destructor are there as long as the thread; `try_with` covers the rest.
fn count(change: i64) {
    let _ = HELD.try_with(|held| {
        let now = held.get() + change;
        held.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

fn bytes(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX / 4)
}

// SAFETY: every call goes to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout.size()));
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-bytes(layout.size()));
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are held while the bytes move.
        count(bytes(size));
        count(-bytes(layout.size()));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `work` and returns the most bytes this thread held during it beyond what it held before; nothing
/// unless [`Counting`] is installed. Memory of other threads is not counted.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    if !is_installed() {
        return (work(), None);
    }
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    (result, Some(u64::try_from(PEAK.get() - before).unwrap_or(0)))
}

fn is_installed() -> bool {
    let before = HELD.get();
    let probe = std::hint::black_box(Box::new(0u64));
    let counted = HELD.get() != before;
    drop(probe);
    counted
}
