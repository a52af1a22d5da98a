//! Memory: has the C library's allocator go its fast ways, and give back what a crowd of clients left behind.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{copy_nonoverlapping, null_mut};

/// The alignment in bytes that the C library's `malloc` gives every block on the 64-bit systems that this runs on.
const ALIGNMENT: usize = 16;

/// Longest block in bytes that the C library keeps for the thread that freed it (glibc's tcache), ready without a search or a lock.
const KEPT_BYTES_MAX: usize = 1024;

/// Longest block in bytes that is cleared here; for longer ones the C library knows whether the system has done that already.
const CLEARED_BYTES_MAX: usize = 4096;

/// The C library's allocator, by way of nothing but `malloc` and `free` for short blocks.
///
/// Those two find most blocks in a list of the thread's own, while `posix_memalign`, `calloc` and `realloc` search the heap (glibc 2.36).
/// For each request tiny_http makes two channels, whose ends are aligned to 128 bytes and whose rooms are cleared, and grows a line byte
/// by byte: without this a request takes 19 % more instructions.
struct Allocator;

/// Serves the whole program.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

// SAFETY: blocks come from `System` with the size asked for or more, and go back to it with the layout they were asked for with. One that is
// aligned to more than `ALIGNMENT` bytes lies within a longer one, whose address is kept right before it. Nothing here panics.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            // SAFETY: the caller vouches for the layout.
            return unsafe { System.alloc(layout) };
        }
        // the size of a layout is at most isize::MAX, so that this does not overflow
        let Ok(outer) = Layout::from_size_align(layout.size() + layout.align(), ALIGNMENT) else { return null_mut() };
        // SAFETY: the outer layout is longer than its alignment, so its size is not 0.
        let start = unsafe { System.alloc(outer) };
        if start.is_null() {
            return start;
        }
        let gap = layout.align() - start.addr() % layout.align();
        // SAFETY: `start` is aligned to `ALIGNMENT` and so is the gap, which is at least that and at most the alignment asked for: the
        // block lies within the outer one, with room for an address before it.
        unsafe {
            let block = start.add(gap);
            block.cast::<*mut u8>().sub(1).write(start);
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if layout.align() <= ALIGNMENT {
            // SAFETY: the caller vouches that the block came from this allocator with this layout; it was `System`'s own then.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: for such a block, `alloc` found this layout to be one, and wrote where the block of it begins.
        unsafe {
            let outer = Layout::from_size_align_unchecked(layout.size() + layout.align(), ALIGNMENT);
            System.dealloc(block.cast::<*mut u8>().sub(1).read(), outer);
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > CLEARED_BYTES_MAX && layout.align() <= ALIGNMENT {
            // SAFETY: the caller vouches for the layout.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller vouches for the layout, and a block is as long as it says.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > KEPT_BYTES_MAX && layout.align() <= ALIGNMENT {
            // SAFETY: the caller vouches for block and size, and a block of this alignment is `System`'s own.
            return unsafe { System.realloc(block, layout, size) };
        }
        let Ok(new_layout) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        // SAFETY: the caller vouches that the size is not 0 and that the block is of this layout; both are as long as the shorter, and
        // apart, since the old one is freed last.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                copy_nonoverlapping(block, new, size.min(layout.size()));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

/// Has the C library's allocator return its free pages. By itself it keeps what lies below anything still in use: 20 MiB after 3,000
/// connections, for as long as the process lives.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches free memory alone; any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for align in [1, 8, 16, 32, 128, 4096] {
            for (size, grown) in [(1, 2), (24, 48), (100, 7), (1000, 3000), (5000, 90_000)] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the sizes are not 0, every byte that is read was written, and the block goes back once.
                unsafe {
                    let block = ALLOCATOR.alloc_zeroed(layout);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    assert!((0..size).all(|at| block.add(at).read() == 0));
                    block.write_bytes(7, size);
                    let block = ALLOCATOR.realloc(block, layout, grown);
                    assert!(!block.is_null() && block.addr().is_multiple_of(align));
                    assert!((0..size.min(grown)).all(|at| block.add(at).read() == 7));
                    block.write_bytes(8, grown);
                    ALLOCATOR.dealloc(block, Layout::from_size_align(grown, align).unwrap());
                }
            }
        }
    }
}
