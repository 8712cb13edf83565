//! `cargo xtask header [--check]`: `ffi/samedraw.h` from the C ABI's Rust.

use std::path::Path;

/// What to do with the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Write,
    Check,
}

/// The generator is not in this program unless asked for: it runs itself again with it.
#[cfg(not(feature = "cbindgen"))]
pub fn run(root: &Path, mode: Mode) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["run", "--quiet", "--package", "xtask", "--features", "cbindgen", "--", "header"]);
    if mode == Mode::Check {
        command.arg("--check");
    }
    let status = command.current_dir(root).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("the header was not generated, or differs".into()) }
}

#[cfg(feature = "cbindgen")]
pub fn run(root: &Path, mode: Mode) -> Result<(), String> {
    const HEADER: &str = "ffi/samedraw.h";
    let package = root.join("ffi/capi");
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml"))?;
    // File by file, so that the declarations stand in the order a reader wants them in.
    let order = ["version", "status", "device", "table", "step", "verify", "sampler", "capture", "prompt", "record"];
    let sources = order.map(|name| package.join("src").join(name).with_extension("rs"));
    let builder = sources.iter().fold(cbindgen::Builder::new().with_config(config), |b, path| b.with_src(path));
    let mut text = Vec::new();
    builder.generate().map_err(|error| error.to_string())?.write(&mut text);
    let path = root.join(HEADER);
    if mode == Mode::Write {
        std::fs::write(&path, text).map_err(|error| format!("{HEADER}: {error}"))?;
        println!("wrote {HEADER}");
        return Ok(());
    }
    let committed = std::fs::read(&path).map_err(|error| format!("{HEADER}: {error}"))?;
    if committed == text {
        println!("{HEADER} matches ffi/capi");
        return Ok(());
    }
    let (committed, text) = (String::from_utf8_lossy(&committed), String::from_utf8_lossy(&text));
    let line = committed.lines().zip(text.lines()).take_while(|(a, b)| a == b).count() + 1;
    Err(format!(
        "{HEADER} is not what ffi/capi gives, from line {line} on\nrun `cargo xtask header` and commit the result"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The generator is told the files one by one; a file it is not told of would be missing without a word.
    #[test]
    fn every_exported_function_is_in_the_header() {
        let root = crate::root();
        let header = std::fs::read_to_string(root.join("ffi/samedraw.h")).unwrap();
        let mut exported = BTreeSet::new();
        for entry in std::fs::read_dir(root.join("ffi/capi/src")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for (at, found) in text.match_indices("extern \"C\" fn samedraw_") {
                let name = &text[at + found.len() - "samedraw_".len()..];
                exported.extend(name.split('(').next().map(str::to_owned));
            }
        }
        assert!(exported.len() >= 28, "{exported:?}");
        let missing: Vec<_> = exported.iter().filter(|name| !header.contains(&format!("{name}("))).collect();
        assert_eq!(missing, [""; 0]);
    }
}
