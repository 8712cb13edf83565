//! With the feature `precompiled`: embeds the CUBINs of the folder SAMEDRAW_CUBIN_DIR. Otherwise does nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::exit;

include!("src/device/cuda/hash.rs");

const FOLDER: &str = "SAMEDRAW_CUBIN_DIR";
/// One for each major version of hardware: machine code runs on the minor versions above its own, too.
const ARCHITECTURES: [u32; 3] = [80, 90, 100];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_PRECOMPILED").is_some()
        && let Err(why) = embed()
    {
        eprintln!("feature `precompiled`: {why}");
        eprintln!("`cargo xtask cubins --out DIR` makes the folder that {FOLDER} names");
        exit(1);
    }
}

fn embed() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={FOLDER}");
    println!("cargo::rerun-if-changed=cuda");
    println!("cargo::rerun-if-changed=src/device/cuda");
    let folder = std::env::var_os(FOLDER).filter(|value| !value.is_empty());
    let folder = PathBuf::from(folder.ok_or(format!("the environment variable {FOLDER} is not set"))?);
    let folder = folder.canonicalize().map_err(|error| format!("{FOLDER} = {}: {error}", folder.display()))?;
    println!("cargo::rerun-if-changed={}", folder.display());
    check_sources(&folder)?;

    let mut found: BTreeSet<(String, u32)> = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
        let parts = name.strip_suffix(".cubin").and_then(|stem| stem.rsplit_once(".sm_"));
        if let Some((unit, arch)) = parts {
            found.insert((unit.to_owned(), arch.parse().map_err(|_| format!("{name}: no such architecture"))?));
        }
    }
    let units: BTreeSet<&String> = found.iter().map(|(unit, _)| unit).collect();
    let wanted = units.iter().flat_map(|unit| ARCHITECTURES.map(|arch| ((*unit).clone(), arch)));
    let lacking: Vec<String> = wanted.filter(|cubin| !found.contains(cubin)).map(|cubin| file_name(&cubin)).collect();
    if units.is_empty() || !lacking.is_empty() {
        return Err(format!(
            "{} holds no {}",
            folder.display(),
            if units.is_empty() { "CUBIN".into() } else { lacking.join(", ") }
        ));
    }

    let lines = found.iter().map(|cubin| {
        let path = folder.join(file_name(cubin));
        format!("({:?}, {}, include_bytes!({:?})),\n", cubin.0, cubin.1, path.display().to_string())
    });
    let out = std::env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let list = format!("&[\n{}]\n", lines.collect::<String>());
    std::fs::write(Path::new(&out).join("cubins.rs"), list).map_err(|error| error.to_string())
}

fn file_name((unit, arch): &(String, u32)) -> String {
    format!("{unit}.sm_{arch}.cubin")
}

/// Machine code of other sources would run with this version's argument blocks.
fn check_sources(folder: &Path) -> Result<(), String> {
    let read = |error: std::io::Error| format!("{}: {error}", folder.join("SOURCES").display());
    let made_from = std::fs::read_to_string(folder.join("SOURCES")).map_err(read)?;
    let root = std::env::var("CARGO_MANIFEST_DIR").map_err(|error| error.to_string())?;
    let here = sources_hash(Path::new(&root)).map_err(|error| error.to_string())?;
    if made_from.trim() == format!("{here:032x}") {
        return Ok(());
    }
    Err(format!("{} was made from other kernel sources", folder.display()))
}
