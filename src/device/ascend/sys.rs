//! Bindings to CANN, generated: from our own headers in `ffi/` and committed, or, with the feature `bindgen`, from an
//! installed CANN when the crate is built.

#![allow(missing_docs, missing_debug_implementations, non_camel_case_types, non_snake_case, dead_code)]
#![allow(unsafe_op_in_unsafe_fn, clippy::all, clippy::undocumented_unsafe_blocks)]

/// The runtime: `libacl_rt.so`.
pub(super) mod acl {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/acl.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("sys/acl.rs");
}

/// The compiler: `libacl_rtc.so`.
pub(super) mod aclrtc {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/aclrtc.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("sys/aclrtc.rs");
}
