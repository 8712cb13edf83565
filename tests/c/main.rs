//! The C ABI, as C and C++ programs meet it: the library is installed, the programs in this folder are compiled against it
//! with every warning an error, and run under AddressSanitizer and valgrind.

#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../ascend/sim.rs"]
mod sim;

use samedraw::step_file::StepFile;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

const TIDY: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-pthread"];
const ADDRESS: &str = "-fsanitize=address,undefined";
const SKIPPED: i32 = 77;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a test leaves out, past the test harness, which keeps what a passing test prints to itself.
fn skipped(what: &str) {
    writeln!(std::io::stderr(), "SKIPPED {what}").expect("stderr");
}

/// The installed library, built once in this process.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{}", std::process::id()));
        let mut install = Command::new(env!("CARGO"));
        // The profile of the test, so that what a release test measures is the library as it is installed.
        let profile: &[&str] = if cfg!(debug_assertions) { &["--debug"] } else { &[] };
        install.current_dir(root()).args(["xtask", "install"]).args(profile).arg("--prefix").arg(&prefix);
        success(&mut install);
        prefix
    })
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn success(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?} gave {}:\n{}", output.status, text(&output));
    text(&output)
}

fn exists(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// What pkg-config says of the installed library.
fn pkg_config(what: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(what).arg("samedraw").env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    success(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program of this folder; `flags` come on top of those for a tidy program.
fn compiled(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = prefix().join(name);
    let cpp = source.ends_with(".cpp");
    let mut cc = Command::new(if cpp { "c++" } else { "cc" });
    cc.arg(if cpp { "-std=c++17" } else { "-std=c11" }).args(TIDY).args(flags);
    // The programs look functions up by dlsym, whose result is not a function to a pedant.
    cc.arg("-I").arg(root().join("tests/c")).arg(root().join("tests/c").join(source)).arg("-o").arg(&program);
    if exists("pkg-config") {
        cc.args(pkg_config(&["--cflags", "--libs"]));
    } else {
        skipped("pkg-config: it is not here");
        cc.arg("-I").arg(prefix().join("include")).arg("-L").arg(prefix().join("lib")).arg("-lsamedraw");
    }
    cc.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display())).args(["-lm", "-ldl"]);
    success(&mut cc);
    program
}

fn run(program: &Path, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("ASAN_OPTIONS", "detect_leaks=1").env("UBSAN_OPTIONS", "halt_on_error=1");
    command
}

fn done(command: &mut Command) -> String {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.trim_end().ends_with("done"), "{command:?}:\n{}", text(&output));
    said
}

fn valgrind(program: &Path, arguments: &[&Path]) {
    if !exists("valgrind") {
        return skipped("valgrind: it is not here");
    }
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    // A thread of the shared pool is still there at the end: its memory is possibly lost, not definitely.
    command.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
    done(command.arg(program).args(arguments));
}

/// Names declared in the header, as far as they are functions.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("ffi/samedraw.h")).expect("ffi/samedraw.h");
    let starts = ["samedraw_status samedraw_", "uint32_t samedraw_", "const char *samedraw_"];
    let name = |line: &str| {
        let start = starts.iter().find(|start| line.starts_with(**start))?;
        Some(line[start.len() - "samedraw_".len()..].split('(').next()?.to_owned())
    };
    header.lines().filter_map(name).collect()
}

#[test]
fn the_library_needs_the_c_library_alone_and_exports_the_header_alone() {
    let library = prefix().join("lib/libsamedraw.so");
    let dynamic = success(Command::new("readelf").arg("-dW").arg(&library));
    let names = |tag: &str| {
        let line = |line: &str| line.contains(tag).then(|| line.split(['[', ']']).nth(1).map(str::to_owned)).flatten();
        dynamic.lines().filter_map(line).collect::<Vec<String>>()
    };
    let allowed = ["libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux"];
    let needed = names("(NEEDED)");
    assert!(!needed.is_empty() && needed.iter().all(|name| allowed.iter().any(|a| name.starts_with(a))), "{needed:?}");
    assert_eq!(names("(SONAME)"), ["libsamedraw.so.0"]);
    assert!(prefix().join("lib/libsamedraw.so.0").exists());
    let symbols = success(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    assert_eq!(exported, declared());
    assert!(exported.len() >= 28, "{exported:?}");
}

#[test]
fn a_step_from_c_under_address_sanitizer_and_its_recording_replayed() {
    let recording = prefix().join("step.safetensors");
    let said = done(&mut run(&compiled("step.c", "step", &[ADDRESS]), &[&recording]));
    let tokens = said.lines().find_map(|line| line.strip_prefix("recorded ")).expect("tokens");
    let file = StepFile::read(&recording).expect("a step file");
    assert_eq!((file.requests.len(), file.logits.vocab, file.force_topk), (2, 5, 2));
    assert_eq!(file.mask.as_ref().expect("a mask").words, [0x1C, -1]);
    assert_eq!([file.requests[0].seqlen_k, file.requests[1].seqlen_k], [41, 100]);
    let cpu = Arc::new(samedraw::device::CpuDevice::open().expect("the CPU device"));
    let replayed = file.run(&cpu, None).expect("a result");
    let replayed: Vec<String> = replayed.requests.iter().map(|request| request.tokens[0].to_string()).collect();
    assert_eq!(replayed.join(" "), tokens);
}

#[test]
fn a_step_from_c_with_the_static_library_under_valgrind() {
    let mut program = Command::new("cc");
    let path = prefix().join("step-static");
    program.arg("-std=c11").args(TIDY).arg("-I").arg(root().join("tests/c")).arg("-I").arg(prefix().join("include"));
    program.arg(root().join("tests/c/step.c")).arg(prefix().join("lib/libsamedraw.a")).arg("-o").arg(&path);
    success(program.args(["-lm", "-ldl", "-lpthread"]));
    valgrind(&path, &[&prefix().join("static.safetensors")]);
}

#[test]
fn every_function_misused_under_address_sanitizer_and_valgrind() {
    done(&mut run(&compiled("misuse.c", "misuse", &[ADDRESS]), &[]));
    valgrind(&compiled("misuse.c", "misuse-plain", &[]), &[]);
}

#[test]
fn an_extension_in_cpp_on_the_cpu() {
    let said = done(&mut run(&compiled("extension.cpp", "extension-cpu", &[ADDRESS]), &["cpu".as_ref(), "".as_ref()]));
    assert!(said.contains("us a call"), "{said}");
}

/// On a GPU where there is one; everywhere on a driver whose kernels compute nothing.
#[test]
fn an_extension_in_cpp_on_cuda() {
    let program = compiled("extension.cpp", "extension-cuda", &[]);
    let output = output(&mut run(&program, &["cuda".as_ref(), "libcuda.so.1".as_ref()]));
    let said = text(&output);
    if output.status.code() == Some(SKIPPED) {
        assert!(std::env::var("SAMEDRAW_REQUIRE_CUDA").is_err(), "SAMEDRAW_REQUIRE_CUDA is set: {said}");
        skipped(&format!("the extension on a GPU: {}", said.trim()));
    } else {
        assert!(output.status.success() && said.trim_end().ends_with("done"), "{said}");
        skipped(&format!("nothing: {}", said.lines().next().unwrap_or_default()));
    }
    let double = |source: &str, name: &str| {
        let path = prefix().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-shared", "-fPIC", "-pthread", "-o"]).arg(&path);
        success(cc.arg(format!("-Wl,-soname,{name}")).arg(root().join("tests/cuda").join(source)));
        path
    };
    let (driver, nvrtc) = (double("fake_driver.c", "libcuda.so.1"), double("fake_nvrtc.c", "libnvrtc.so.13"));
    let mut command = run(&program, &["cuda".as_ref(), &driver]);
    command.env("SAMEDRAW_CUDA_DRIVER", &driver).env("SAMEDRAW_NVRTC", &nvrtc).env("SAMEDRAW_TEST_FAKE_DRIVER", "1");
    done(command.env("SAMEDRAW_CACHE_DIR", prefix().join("cache")));
}

#[test]
fn a_stack_with_an_acl_stream_on_the_simulated_runtime() {
    let root = sim::installation("plain", "");
    let (runtime, compiler) = (root.join("lib64/libacl_rt.so"), root.join("lib64/libacl_rtc.so"));
    let mut command = run(&compiled("acl_stream.cpp", "acl_stream", &[ADDRESS]), &[&runtime]);
    command.env("SAMEDRAW_ASCEND_RUNTIME", &runtime).env("SAMEDRAW_ASCEND_COMPILER", &compiler);
    // The simulated compiler keeps what it has compiled in its own globals, which are out of reach once it is unloaded.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    done(command.env("SAMEDRAW_CACHE_DIR", prefix().join("cache")));
}

#[test]
fn cmake_finds_the_installed_library() {
    if !exists("cmake") {
        return skipped("CMake: it is not here");
    }
    let folder = prefix().join("cmake-project");
    std::fs::create_dir_all(&folder).expect("a folder");
    let project = "cmake_minimum_required(VERSION 3.10)\nproject(t C)\nfind_package(samedraw 0.1 REQUIRED)\n\
                   find_package(samedraw 9.0 QUIET)\nadd_executable(t t.c)\n\
                   target_link_libraries(t samedraw::samedraw)\nadd_executable(s t.c)\n\
                   target_link_libraries(s samedraw::static)\n";
    std::fs::write(folder.join("CMakeLists.txt"), project).expect("a project");
    let program = "#include <samedraw.h>\nint main(void) { return samedraw_abi_version() != SAMEDRAW_ABI_VERSION; }\n";
    std::fs::write(folder.join("t.c"), program).expect("a program");
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&folder).arg("-B").arg(&build).arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    success(&mut configure);
    success(Command::new("cmake").arg("--build").arg(&build));
    success(&mut Command::new(build.join("t")));
    success(&mut Command::new(build.join("s")));
}

#[test]
fn the_header_is_plain_c_and_cpp() {
    for (compiler, standard, language) in
        [("cc", "-std=c99", "c"), ("cc", "-std=c11", "c"), ("c++", "-std=c++11", "c++")]
    {
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language]);
        success(command.arg(root().join("ffi/samedraw.h")));
    }
}
