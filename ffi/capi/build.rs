//! The shared library's name, and no dependency on libgcc_s.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|found| found == value);
    if !is("CARGO_CFG_TARGET_OS", "linux") {
        return;
    }
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libsamedraw.so.{major}");
    if is("CARGO_CFG_TARGET_ENV", "gnu") {
        // The unwinder that catches panics comes along, so that the C library is all a host must have. It is the only
        // one that our frames meet: no exception crosses the ABI.
        println!("cargo::rustc-link-arg-cdylib=-Wl,--whole-archive,-lgcc_eh,--no-whole-archive");
    }
}
