//! The floating-point mode the semantics need: round to nearest, subnormals kept.
//!
//! A host process may have switched flush-to-zero on (a library linked with -ffast-math does so at load time, and
//! frameworks offer it as a setting). Work on the CPU device sets the mode for its own duration and puts it back.

/// Holds the thread's floating-point mode at the default until dropped.
#[derive(Debug)]
pub(super) struct ExactMode {
    saved: u64,
}

impl ExactMode {
    pub(super) fn enter() -> Self {
        let saved = imp::read();
        if saved & imp::MODE_BITS != imp::DEFAULT {
            imp::write((saved & !imp::MODE_BITS) | imp::DEFAULT);
        }
        ExactMode { saved }
    }
}

impl Drop for ExactMode {
    fn drop(&mut self) {
        if self.saved & imp::MODE_BITS != imp::DEFAULT {
            imp::write(self.saved);
        }
    }
}

// Miri runs no assembly, and computes in the default mode whatever the register says.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    use std::arch::asm;

    /// MXCSR: denormals-are-zero, rounding control, flush-to-zero.
    pub const MODE_BITS: u64 = 0xE040;
    pub const DEFAULT: u64 = 0;

    pub fn read() -> u64 {
        let mut mode = 0u32;
        // SAFETY: stmxcsr stores four bytes to the address given.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack, preserves_flags)) };
        u64::from(mode)
    }

    pub fn write(mode: u64) {
        let mode = mode as u32;
        // SAFETY: the value was read from MXCSR with only mode bits changed, so no reserved bit is set.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, preserves_flags)) };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod imp {
    use std::arch::asm;

    /// FPCR: flush-to-zero, rounding mode, default NaN left alone.
    pub const MODE_BITS: u64 = 0x01C0_0000;
    pub const DEFAULT: u64 = 0;

    pub fn read() -> u64 {
        let mode: u64;
        // SAFETY: reads a register that user code may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) mode, options(nomem, nostack, preserves_flags)) };
        mode
    }

    pub fn write(mode: u64) {
        // SAFETY: the value was read from FPCR with only mode bits changed.
        unsafe { asm!("msr fpcr, {}", in(reg) mode, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    pub const MODE_BITS: u64 = 0;
    pub const DEFAULT: u64 = 0;

    pub fn read() -> u64 {
        0
    }

    pub fn write(_mode: u64) {}
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_flush_to_zero_is_suspended_and_put_back() {
        let default = imp::read();
        let flushing = default | 0x8040;
        imp::write(flushing);
        let kept = {
            let _mode = ExactMode::enter();
            imp::read() & imp::MODE_BITS
        };
        let after = imp::read();
        imp::write(default);
        assert_eq!(kept, 0);
        assert_eq!(after & imp::MODE_BITS, flushing & imp::MODE_BITS);
    }
}
