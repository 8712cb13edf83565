//! Versions of the interface and of the release.

/// Version of this interface. It grows when functions or fields are added; the library's file name (its SONAME) changes
/// when anything here changes its meaning.
pub const SAMEDRAW_ABI_VERSION: u32 = 1;

/// The SAMEDRAW_ABI_VERSION of the library that is running, which may be newer than the header.
#[unsafe(no_mangle)]
pub extern "C" fn samedraw_abi_version() -> u32 {
    SAMEDRAW_ABI_VERSION
}

/// The release, as "0.1.0"; never freed.
#[unsafe(no_mangle)]
pub extern "C" fn samedraw_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
