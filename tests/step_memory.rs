//! What a hostile step file costs in memory: a bounded multiple of its own size, whatever its JSON is made of.

use samedraw::step_file::StepFile;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system allocator as it came; the rest is counting.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(HELD.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that reading `file` held at most, beyond those held before.
fn peak(file: &[u8]) -> usize {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    StepFile::parse(file).expect_err("a hostile file");
    PEAK.load(Relaxed) - before
}

/// Most bytes held for each byte of a file.
const MOST: usize = 64;

#[test]
fn json_of_small_pieces_grows_by_a_bounded_factor() {
    // One test: the counters are the process's.
    for piece in [r#"{"":0},"#, r#"{"a":{}},"#, "[],", "[0],", "[[]],", "0,", r#""","#, "null,"] {
        let header = format!("{{\"logits\":[{}0]}}", piece.repeat((1 << 20) / piece.len()));
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        let (peak, most) = (peak(&file), MOST * file.len());
        assert!(peak <= most, "{piece}: {peak} bytes for a file of {}", file.len());
    }
}
