//! The simulated runtime, the kernel it compiles and a driver in C++ under AddressSanitizer and ThreadSanitizer.
//!
//! The stable compiler cannot instrument Rust code, so what the sanitizers see is the test double and the driver. The
//! driver makes the device's calls in the device's order, which is compared here; the device itself runs the same work
//! on the plain build in the other tests.

use crate::run::{Made, copy_add, load, source};
use crate::sim::{Sim, compiler, folder, installation, made, run};
use samedraw::pipeline::blocks::{BLOCKS, RowBlock};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

/// The driver and the root of the simulator, both compiled with `-fsanitize=` this.
fn driver(sanitizer: &str) -> Command {
    let name = if sanitizer.is_empty() { "plain" } else { sanitizer };
    let root = installation(name, sanitizer);
    let place = |field: &str| RowBlock::INFO.fields.iter().position(|known| known.name == field).unwrap();
    let slots: usize = BLOCKS.iter().filter(|block| block.name != "SlotBlock").map(|block| block.fields.len()).sum();
    let fields = ["logits", "tokens", "scratch", "vocab", "position_add"];
    let defines: Vec<String> = std::iter::once(format!("-DSLOTS={slots}"))
        .chain(fields.map(|field| format!("-DFIELD_{}={}", field.to_uppercase(), place(field))))
        .collect();
    let program = folder().join(format!("driver-{name}{}", defines.concat()));
    made(&program, |out| {
        let mut build = compiler(sanitizer);
        build.args(&defines).arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/ascend_sim/driver.cpp"));
        build.arg("-o").arg(out).arg("-ldl").arg("-pthread");
        run(build);
    });
    let text = source();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let kernel = folder().join(format!("copy_add-{:016x}.asc", hasher.finish()));
    made(&kernel, |out| fs::write(out, text).unwrap());
    let mut command = Command::new(program);
    command.arg(root).arg(kernel);
    if !sanitizer.is_empty() {
        command.env("ASCEND_SIM_CXXFLAGS", format!("-O1 -g -fsanitize={sanitizer}"));
    }
    // Any report ends the process with this code, in the middle of the run or at its end.
    command.env("ASAN_OPTIONS", "exitcode=99:detect_leaks=1").env("TSAN_OPTIONS", "exitcode=99:halt_on_error=1");
    command
}

fn clean(sanitizer: &str) {
    let mut command = driver(sanitizer);
    command.args(["threads", "4"]);
    let text = run(command);
    assert!(text.trim_end().ends_with("done") && !text.contains("Sanitizer"), "{text}");
}

#[test]
fn threads_and_streams_at_once_under_address_sanitizer() {
    clean("address");
}

#[test]
fn threads_and_streams_at_once_under_thread_sanitizer() {
    clean("thread");
}

/// A sanitizer that finds nothing anywhere would pass the tests above, too.
#[test]
fn the_sanitizers_find_what_is_planted() {
    let planted = [
        (
            "address",
            "int main(int one, char **) { int *volatile a = new int[4](); volatile int b = a[3 + one]; delete[] a; return b - b; }",
        ),
        ("thread", "#include <thread>\nint x; int main() { std::thread t([] { x = 1; }); x = 2; t.join(); return 0; }"),
    ];
    for (sanitizer, text) in planted {
        let (program, file) =
            (folder().join(format!("planted-{sanitizer}")), folder().join(format!("{sanitizer}.cpp")));
        fs::write(&file, text).unwrap();
        let mut build = compiler(sanitizer);
        build.arg("-o").arg(&program).arg(&file);
        run(build);
        let output =
            Command::new(program).env("ASAN_OPTIONS", "exitcode=99").env("TSAN_OPTIONS", "exitcode=99").output();
        assert_eq!(output.unwrap().status.code(), Some(99), "{sanitizer}");
    }
}

/// The driver's calls are the device's: the same names in the same order, polls of an event aside.
#[test]
fn the_driver_makes_the_devices_calls() {
    let of_driver = {
        let mut command = driver("");
        command.arg("trace");
        let text = run(command);
        without_polls(text.lines().filter(|line| *line != "done").map(str::to_owned).collect())
    };
    let of_device = {
        let sim = Sim::take();
        // Opened once before, so that what a process does once is told apart: it is looked up beforehand.
        let first = sim.open().unwrap();
        first.close().unwrap();
        sim.runtime.reset();
        sim.compiler.reset();
        let device = sim.open().unwrap();
        let cache = sim.options.cache.clone().unwrap();
        let _ = fs::remove_dir_all(cache);
        let kernel = load(&device).unwrap();
        let mut made = Made::new(&device, || 0);
        copy_add(&mut made, kernel, 7, 77, true).unwrap();
        made.release().unwrap();
        device.close().unwrap();
        let once = ["aclsysGetVersionNum", "aclsysGetVersionStr", "aclInit"].map(str::to_owned);
        let calls = sim.runtime.trace().into_iter().chain(sim.compiler.trace());
        without_polls(once.into_iter().chain(calls).collect())
    };
    assert!(of_device.len() > 100, "{of_device:?}");
    for (number, (driver, device)) in of_driver.iter().zip(&of_device).enumerate() {
        assert_eq!(driver, device, "call {number}: {:?}", &of_device[number.saturating_sub(5)..][..5]);
    }
    assert_eq!(of_driver.len(), of_device.len());
}

/// One poll for any number of them.
fn without_polls(mut calls: Vec<String>) -> Vec<String> {
    let poll = |calls: &[String], i: usize| calls[i] == "aclrtQueryEventStatus";
    let mut i = 2;
    while i < calls.len() {
        // A poll is two calls: the context is asked for, then the event.
        if poll(&calls, i) && poll(&calls, i - 2) {
            calls.drain(i - 1..=i);
        } else {
            i += 1;
        }
    }
    calls
}
