//! `cargo xtask kernels` and `cargo xtask cubins`: the CUDA kernels compiled without a GPU.

use samedraw::device::cuda::build::{Built, build, sources_hash};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The architectures every release is compiled for.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Not reported: a unit declares what its headers share and uses part of it.
const UNUSED: &str = "-diag-suppress=177";

/// What the assembler says of one kernel or function.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    name: String,
    registers: u64,
    shared: u64,
    stack: u64,
    spills: u64,
}

/// Compiles every unit for every architecture of `args`, prints what each kernel uses, and fails on an error, a
/// warning or a spill. With `cubins --out DIR` it writes the code instead.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let nvrtc = match options.nvrtc {
        Some(path) => path.to_owned(),
        None => library(root)?,
    };
    match options.out {
        Some(out) => write(root, &nvrtc, &options.archs, Path::new(out)),
        None => report(&nvrtc, &options.archs),
    }
}

struct Options<'a> {
    nvrtc: Option<&'a str>,
    archs: Vec<&'a str>,
    out: Option<&'a str>,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Self, String> {
        let mut options = Options { nvrtc: None, archs: Vec::new(), out: None };
        let mut args = args.iter();
        let writes = args.next() == Some(&"cubins");
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match *name {
                "--nvrtc" => options.nvrtc = Some(value),
                "--arch" => options.archs.push(value),
                "--out" if writes => options.out = Some(value),
                _ => return Err(format!("{name} is not an option here")),
            }
        }
        if writes && options.out.is_none() {
            return Err("cubins needs --out DIR".into());
        }
        if writes && !options.archs.is_empty() {
            return Err("cubins are made for every architecture; --arch is for `kernels`".into());
        }
        if options.archs.is_empty() {
            options.archs.extend(ARCHITECTURES);
        }
        Ok(options)
    }
}

/// The NVRTC the environment names, else the one `.ci/nvrtc.sh` brings.
fn library(root: &Path) -> Result<String, String> {
    if let Ok(path) = std::env::var("SAMEDRAW_NVRTC") {
        return Ok(path);
    }
    let script = root.join(".ci").join("nvrtc.sh");
    let output = Command::new("sh").arg(&script).output().map_err(|error| format!("{}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", script.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// `sm_103` as (10, 3).
fn compute(arch: &str) -> Result<(u32, u32), String> {
    let number = arch.strip_prefix("sm_").and_then(|digits| digits.parse::<u32>().ok());
    let number = number.ok_or_else(|| format!("{arch} is not an architecture as sm_90 is"))?;
    Ok((number / 10, number % 10))
}

fn compile(nvrtc: &str, arch: &str, more: &[&str]) -> Result<Vec<Built>, String> {
    let built = build(nvrtc, compute(arch)?, more).map_err(|error| format!("{arch}: {error}"))?;
    if built.is_empty() { Err("there are no kernels to compile".into()) } else { Ok(built) }
}

fn report(nvrtc: &str, archs: &[&str]) -> Result<(), String> {
    println!(
        "{:<8} {:<12} {:<40} {:>9} {:>7} {:>6} {:>7}",
        "arch", "unit", "kernel", "registers", "shared", "stack", "spills"
    );
    let mut faults = String::new();
    let built: Vec<_> = std::thread::scope(|scope| {
        let compile = |arch: &'_ str| compile(nvrtc, arch, &["--ptxas-options=-v", UNUSED]);
        let threads: Vec<_> = archs.iter().map(|arch| scope.spawn(move || compile(arch))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a compilation")).collect()
    });
    for (arch, units) in archs.iter().zip(built) {
        for unit in units? {
            let (used, other) = parse(&unit.log);
            for usage in &used {
                let Usage { name, registers, shared, stack, spills } = usage;
                // Functions within a kernel are counted in it; their own line matters where they use the stack.
                if *registers > 0 || stack + spills > 0 {
                    println!(
                        "{arch:<8} {:<12} {name:<40} {registers:>9} {shared:>7} {stack:>6} {spills:>7}",
                        unit.unit
                    );
                }
                // Stack alone is what calls of functions that are not inlined save; the rare, general paths make them.
                if *spills > 0 {
                    let _ = writeln!(faults, "{arch} {name}: {spills} bytes of spills");
                }
            }
            if used.is_empty() {
                let _ = writeln!(faults, "{arch} {}: the assembler reports no kernel", unit.unit);
            }
            for line in other {
                let _ = writeln!(faults, "{arch} {}: {line}", unit.unit);
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.trim_end().to_owned()) }
}

/// What each kernel and function uses, and the lines that say something else.
fn parse(log: &str) -> (Vec<Usage>, Vec<&str>) {
    let (mut used, mut other): (Vec<Usage>, Vec<&str>) = (Vec::new(), Vec::new());
    let before = |line: &str, unit: &str| -> u64 {
        let words: Vec<&str> = line.split_inclusive(unit).collect();
        let count =
            |part: &&str| part.trim_end_matches(unit).split_whitespace().last().and_then(|n| n.parse::<u64>().ok());
        words.iter().filter(|part| part.ends_with(unit)).filter_map(count).sum()
    };
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            used.push(Usage { name: name.to_owned(), ..Usage::default() });
        } else if line.contains("bytes stack frame") {
            if let Some(last) = used.last_mut() {
                last.stack = before(line, " bytes stack frame");
                last.spills = before(line, " bytes spill stores") + before(line, " bytes spill loads");
            }
        } else if line.contains("Used ") && line.contains(" registers") {
            if let Some(last) = used.last_mut() {
                last.registers = before(line, " registers");
                last.shared = before(line, " bytes smem");
            }
        } else if !line.starts_with("ptxas info") {
            other.push(line);
        }
    }
    (used, other)
}

fn write(root: &Path, nvrtc: &str, archs: &[&str], out: &Path) -> Result<(), String> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    fs::create_dir_all(out).map_err(failed(out))?;
    for arch in archs {
        for unit in compile(nvrtc, arch, &[])? {
            let path = out.join(format!("{}.{arch}.cubin", unit.unit));
            fs::write(&path, &unit.cubin).map_err(failed(&path))?;
            println!("{} {} bytes", path.display(), unit.cubin.len());
        }
    }
    // Written last: a folder that was not finished is refused by the build.
    let hash = sources_hash(root).map_err(|error| error.to_string())?;
    let path = out.join("SOURCES");
    fs::write(&path, format!("{hash:032x}\n")).map_err(failed(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 48 registers, used 1 barriers, 4096 bytes smem, 480 bytes cmem[0]
ptxas info    : Compile time = 62.566 ms
ptxas info    : Function properties for two
    160 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 160 bytes cumulative stack size
sample(3): warning #177-D: variable \"x\" was declared but never referenced
";

    #[test]
    fn the_assemblers_report_is_read() {
        let (used, other) = parse(LOG);
        let one = Usage { name: "one".into(), registers: 48, shared: 4096, stack: 0, spills: 0 };
        let two = Usage { name: "two".into(), registers: 255, shared: 0, stack: 160, spills: 20 };
        assert_eq!(used, [one, two]);
        assert_eq!(other, ["sample(3): warning #177-D: variable \"x\" was declared but never referenced"]);
    }

    #[test]
    fn options_are_honoured_or_refused() {
        let parsed = Options::parse(&["kernels", "--arch", "sm_90", "--nvrtc", "lib"]).unwrap();
        assert_eq!((parsed.nvrtc, parsed.archs, parsed.out), (Some("lib"), vec!["sm_90"], None));
        assert_eq!(Options::parse(&["kernels"]).unwrap().archs, ARCHITECTURES);
        for refused in
            [&["kernels", "--out", "x"][..], &["cubins"], &["kernels", "--arch"], &["kernels", "--fast", "1"]]
        {
            assert!(Options::parse(refused).is_err(), "{refused:?}");
        }
        assert!(Options::parse(&["cubins", "--out", "x", "--arch", "sm_80"]).is_err());
        assert_eq!(compute("sm_103"), Ok((10, 3)));
        assert!(compute("90").is_err());
    }
}
