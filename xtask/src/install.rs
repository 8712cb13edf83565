//! `cargo xtask install --prefix DIR`: the C library where compilers, pkg-config and CMake look for it.

use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    prefix: PathBuf,
    debug: bool,
}

fn options(args: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--prefix" => options.prefix = PathBuf::from(args.next().ok_or("--prefix names no folder")?),
            "--debug" => options.debug = true,
            other => return Err(format!("install: {other:?} is no option of it: --prefix DIR, --debug")),
        }
    }
    if options.prefix.as_os_str().is_empty() {
        return Err("install: --prefix DIR is missing".into());
    }
    Ok(options)
}

/// Builds the library and installs it; `args` follow the word `install`.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let options = options(args)?;
    let built = build(root, options.debug)?;
    let at = |error: std::io::Error| format!("{}: {error}", options.prefix.display());
    let folders = ["include", "lib/pkgconfig", "lib/cmake/samedraw"].map(|folder| options.prefix.join(folder));
    for folder in &folders {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    let prefix = options.prefix.canonicalize().map_err(at)?;
    let lib = prefix.join("lib");
    std::fs::copy(root.join("ffi/samedraw.h"), prefix.join("include/samedraw.h")).map_err(at)?;
    replace(&built.join("libsamedraw_ffi.a"), &lib.join("libsamedraw.a"))?;
    let (whole, major) = (format!("libsamedraw.so.{VERSION}"), VERSION.split('.').next().unwrap_or(VERSION));
    replace(&built.join("libsamedraw_ffi.so"), &lib.join(&whole))?;
    link(&whole, &lib.join(format!("libsamedraw.so.{major}")))?;
    link(&whole, &lib.join("libsamedraw.so"))?;
    for (file, text) in [
        ("pkgconfig/samedraw.pc", pkg_config(&prefix)),
        ("cmake/samedraw/samedraw-config.cmake", cmake_config()),
        ("cmake/samedraw/samedraw-config-version.cmake", cmake_version()),
    ] {
        std::fs::write(lib.join(file), text).map_err(at)?;
    }
    println!("installed samedraw {VERSION} in {}", prefix.display());
    Ok(())
}

/// Builds the C library; the folder it lies in.
fn build(root: &Path, debug: bool) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "samedraw-ffi", "--features", "cuda,ascend"]);
    if !debug {
        command.arg("--release");
    }
    let status = command.current_dir(root).status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the library was not built".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(target.join(if debug { "debug" } else { "release" }))
}

/// Under a name of its own first, then renamed: a program that has the old library open keeps it whole.
fn replace(from: &Path, to: &Path) -> Result<(), String> {
    let temporary = to.with_extension("tmp");
    let done = std::fs::copy(from, &temporary).and_then(|_| std::fs::rename(&temporary, to));
    done.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn link(target: &str, path: &Path) -> Result<(), String> {
    if path.is_symlink() || path.exists() {
        std::fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    #[cfg(unix)]
    let done = std::os::unix::fs::symlink(target, path);
    #[cfg(not(unix))]
    let done = std::fs::copy(path.with_file_name(target), path).map(drop);
    done.map_err(|error| format!("{}: {error}", path.display()))
}

fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: samedraw\nDescription: Fused sampling kernels for LLM serving\nVersion: {VERSION}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -lsamedraw\nLibs.private: -lm -ldl -lpthread\n",
        prefix.display()
    )
}

/// Finds its files by its own place, so that a folder that was moved still works.
fn cmake_config() -> String {
    "get_filename_component(_samedraw_root \"${CMAKE_CURRENT_LIST_DIR}/../../..\" ABSOLUTE)\n\
     if(NOT TARGET samedraw::samedraw)\n\
     \x20 add_library(samedraw::samedraw SHARED IMPORTED)\n\
     \x20 set_target_properties(samedraw::samedraw PROPERTIES\n\
     \x20   IMPORTED_LOCATION \"${_samedraw_root}/lib/libsamedraw.so\"\n\
     \x20   INTERFACE_INCLUDE_DIRECTORIES \"${_samedraw_root}/include\")\n\
     \x20 add_library(samedraw::static STATIC IMPORTED)\n\
     \x20 set_target_properties(samedraw::static PROPERTIES\n\
     \x20   IMPORTED_LOCATION \"${_samedraw_root}/lib/libsamedraw.a\"\n\
     \x20   INTERFACE_INCLUDE_DIRECTORIES \"${_samedraw_root}/include\"\n\
     \x20   INTERFACE_LINK_LIBRARIES \"m;dl;pthread\")\n\
     endif()\n"
        .into()
}

/// Before 1.0 the releases of one minor number go together, from 1.0 on those of one major number.
fn cmake_version() -> String {
    let compatible = match VERSION.split_once('.') {
        Some(("0", rest)) => format!("0.{}", rest.split('.').next().unwrap_or(rest)),
        Some((major, _)) => major.into(),
        None => VERSION.into(),
    };
    format!(
        "set(PACKAGE_VERSION \"{VERSION}\")\n\
         if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION OR NOT PACKAGE_FIND_VERSION MATCHES \"^{}(\\\\.|$)\")\n\
         \x20 set(PACKAGE_VERSION_COMPATIBLE FALSE)\n\
         else()\n\
         \x20 set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         endif()\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n\
         \x20 set(PACKAGE_VERSION_EXACT TRUE)\n\
         endif()\n",
        compatible.replace('.', "\\\\.")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let found = options(&["--debug", "--prefix", "/opt/x"]).unwrap();
        assert_eq!(found, Options { prefix: "/opt/x".into(), debug: true });
        assert_eq!(options(&[]).unwrap_err(), "install: --prefix DIR is missing");
        assert_eq!(options(&["--prefix"]).unwrap_err(), "--prefix names no folder");
        assert!(options(&["--root", "x"]).unwrap_err().starts_with("install: \"--root\" is no option"));
    }
}
