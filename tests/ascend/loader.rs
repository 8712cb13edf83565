//! What is found, what is refused, and by which words.

use crate::sim::{Double, Sim, compiler_without, folder, installation, options_of, refusal, runtime_without, says};
use samedraw::device::ascend::kernels::{Unit, listing};
use samedraw::device::ascend::{AscendDevice, Options};
use samedraw::device::{Device, Platform};
use samedraw::{Error, device};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the test a child process is to run.
const CHILD: &str = "SAMEDRAW_TEST_CHILD";
/// What may name a library, or a place of one.
const VARIABLES: [&str; 6] = [
    "SAMEDRAW_ASCEND_RUNTIME",
    "SAMEDRAW_ASCEND_COMPILER",
    "SAMEDRAW_ASCEND_KERNELS",
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "LD_LIBRARY_PATH",
];

/// Runs `body` in a process of its own with this environment alone: what a process has open, the next search finds.
fn in_child(name: &str, env: &[(&str, &Path)], body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let full = format!("loader::{name}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &full, "--nocapture"]).env(CHILD, name).env("HOME", "/no/home");
    VARIABLES.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn ascend_probe() -> device::Probe {
    device::probe().into_iter().find(|probe| probe.platform == Platform::Ascend).unwrap()
}

/// A copy of the runtime for this test alone, at `path` below a folder of its own.
fn copy(name: &str, path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend-loader-{name}"));
    let target = root.join(path);
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    // Under another name first: a process may have the file open.
    let temporary = target.with_extension(std::process::id().to_string());
    fs::copy(installation("plain", "").join("lib64/libacl_rt.so"), &temporary).unwrap();
    fs::rename(&temporary, &target).unwrap();
    root
}

fn explicit(path: &Path) -> Options {
    Options { runtime: Some(path.to_owned()), ..options_of(&installation("plain", "")) }
}

#[test]
fn without_cann_every_place_looked_at_is_told() {
    let env = [("ASCEND_HOME_PATH", Path::new("/no/cann")), ("HOME", Path::new("/no/home"))];
    in_child("without_cann_every_place_looked_at_is_told", &env, || {
        if Path::new("/usr/local/Ascend").exists() {
            println!("SKIPPED: this machine has CANN in its default place");
            return;
        }
        let why = ascend_probe().state.unwrap_err();
        let places = [
            "/no/cann/lib64/libacl_rt.so",
            "/no/cann/lib64/libascendcl.so",
            "/usr/local/Ascend/cann/lib64/libacl_rt.so",
            "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so",
            "/no/home/Ascend/cann/lib64/libacl_rt.so",
            "/no/home/Ascend/ascend-toolkit/latest/lib64/libacl_rt.so",
            "libacl_rt.so",
            "libascendcl.so",
        ];
        for place in places {
            assert!(why.tried.iter().any(|tried| tried == place), "{place} is not in {:?}", why.tried);
        }
        assert_eq!(why.tried.len(), 12, "{:?}", why.tried);
        says(&why.to_string(), &["ascend is unavailable", "no CANN runtime was found", "SAMEDRAW_ASCEND_RUNTIME"]);
        says(&refusal(device::open("ascend")), &["no CANN runtime was found"]);
    });
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    let env = [("SAMEDRAW_ASCEND_RUNTIME", Path::new("/no/such/runtime.so"))];
    in_child("a_path_that_leads_nowhere_is_named", &env, || {
        says(&refusal(device::open("ascend:0")), &["/no/such/runtime.so", "cannot be opened"]);
    });
    let text = folder().join("not_a_library.so");
    fs::write(&text, "text").unwrap();
    says(&refusal(AscendDevice::open_with(0, explicit(&text))), &["not_a_library.so", "cannot be opened"]);
}

#[test]
fn the_root_of_the_environment_is_used() {
    let root = copy("home_path", "lib64/libacl_rt.so");
    in_child("the_root_of_the_environment_is_used", &[("ASCEND_HOME_PATH", &root)], || {
        says(
            &ascend_probe().state.unwrap().name,
            &["Ascend910B3", "CANN 8.5.0", "arithmetic not tested", "no CANN compiler"],
        );
    });
}

#[test]
fn the_other_root_of_the_environment_is_used() {
    let root = copy("toolkit_home", "lib64/libacl_rt.so");
    let env = [("ASCEND_TOOLKIT_HOME", &*root), ("ASCEND_HOME_PATH", Path::new("/no/cann"))];
    in_child("the_other_root_of_the_environment_is_used", &env, || {
        ascend_probe().state.unwrap();
    });
}

#[test]
fn an_installation_in_a_users_home_is_used() {
    let root = copy("user", "Ascend/cann/lib64/libacl_rt.so");
    in_child("an_installation_in_a_users_home_is_used", &[("HOME", &root)], || {
        ascend_probe().state.unwrap();
    });
}

#[test]
fn the_linkers_own_places_come_last() {
    let root = copy("linker", "lib64/libascendcl.so");
    in_child("the_linkers_own_places_come_last", &[("LD_LIBRARY_PATH", &root.join("lib64"))], || {
        ascend_probe().state.unwrap();
    });
}

#[test]
fn the_older_name_serves_where_the_newer_is_missing_or_incomplete() {
    let root = copy("older_name", "lib64/libascendcl.so");
    runtime_without(&root.join("lib64/libacl_rt.so"), &["aclInit"]);
    in_child("the_older_name_serves_where_the_newer_is_missing_or_incomplete", &[("ASCEND_HOME_PATH", &root)], || {
        ascend_probe().state.unwrap();
    });
}

#[test]
fn a_named_installation_that_is_no_good_is_told_and_no_other_is_used() {
    let good = copy("other_good", "lib64/libacl_rt.so");
    let bad = copy("named_bad", "lib64/unused.so");
    runtime_without(&bad.join("lib64/libacl_rt.so"), &["aclrtMalloc"]);
    let env = [("ASCEND_HOME_PATH", &*bad), ("ASCEND_TOOLKIT_HOME", &*good)];
    in_child("a_named_installation_that_is_no_good_is_told_and_no_other_is_used", &env, || {
        says(&refusal(device::open("ascend")), &["named_bad", "lacks aclrtMalloc"]);
    });
}

#[test]
fn a_runtime_the_process_has_open_is_preferred() {
    let root = copy("open_now", "lib64/libacl_rt.so");
    let env = [("ASCEND_HOME_PATH", Path::new("/no/cann")), ("OPEN_NOW", &root)];
    in_child("a_runtime_the_process_has_open_is_preferred", &env, || {
        let path = Path::new(&std::env::var_os("OPEN_NOW").unwrap()).join("lib64/libacl_rt.so");
        let double = Double::open(&path);
        ascend_probe().state.unwrap();
        // By its path it is the same library, and initialised already.
        AscendDevice::open_with(0, Options { runtime: Some(path), ..Options::default() }).unwrap();
        assert_eq!(double.count("aclInit"), 1);
    });
}

/// An undefined symbol after an update of CANN (Ascend/pytorch#99, triton-ascend#328, vllm-ascend#117): one symbol fewer,
/// for every symbol.
#[test]
fn every_missing_symbol_is_named_with_the_versions() {
    let required = [
        "aclInit",
        "aclGetRecentErrMsg",
        "aclGetDeviceCapability",
        "aclrtGetDeviceCount",
        "aclrtSetDevice",
        "aclrtResetDevice",
        "aclrtGetCurrentContext",
        "aclrtSetCurrentContext",
        "aclrtGetSocName",
        "aclrtGetMemInfo",
        "aclrtMalloc",
        "aclrtFree",
        "aclrtMallocHost",
        "aclrtFreeHost",
        "aclrtMemcpyAsync",
        "aclrtMemsetAsync",
        "aclrtCreateStream",
        "aclrtDestroyStream",
        "aclrtSynchronizeStream",
        "aclrtCreateEventExWithFlag",
        "aclrtDestroyEvent",
        "aclrtRecordEvent",
        "aclrtQueryEventStatus",
        "aclrtSynchronizeEvent",
        "aclrtEventElapsedTime",
        "aclrtBinaryLoadFromData",
        "aclrtBinaryGetFunction",
        "aclrtBinaryUnLoad",
        "aclrtLaunchKernelWithHostArgs",
    ];
    for symbol in required {
        let path = folder().join(format!("without/{symbol}.so"));
        runtime_without(&path, &[symbol]);
        let why = refusal(AscendDevice::open_with(0, explicit(&path)));
        says(&why, &[&format!("lacks {symbol};"), "of CANN 8.5.0", "CANN 8.5.0 or newer is needed", "without/"]);
        let double = Double::open(&path);
        assert_eq!(double.count("aclInit"), 0, "refused before it is initialised");
        // The same of an old version.
        double.set("VERSION", "80200000");
        double.set("VERSION_TEXT", "8.2.RC1");
        let why = refusal(AscendDevice::open_with(0, explicit(&path)));
        says(&why, &[&format!("lacks {symbol};"), "of CANN 8.2.RC1", "CANN 8.5.0 or newer is needed"]);
        double.reset();
    }
}

#[test]
fn optional_symbols_are_done_without() {
    let optional = [
        "aclsysGetVersionNum",
        "aclsysGetVersionStr",
        "aclrtGetDeviceInfo",
        "aclmdlRICaptureBegin",
        "aclmdlRICaptureEnd",
        "aclmdlRICaptureGetInfo",
        "aclmdlRIExecuteAsync",
        "aclmdlRIDestroy",
    ];
    for symbol in optional {
        let path = folder().join(format!("without/{symbol}.so"));
        runtime_without(&path, &[symbol]);
        let device = AscendDevice::open_with(0, explicit(&path)).unwrap();
        assert_eq!(device.vector_cores(), 48);
        let stream = device.create_stream().unwrap();
        // SAFETY: the stream is alive.
        unsafe {
            device.synchronize(stream).unwrap();
            let captures = device.begin_capture(stream);
            if symbol.starts_with("aclmdlRI") {
                says(&captures.unwrap_err().to_string(), &["begin_capture", symbol, "8.5.0", "not supported"]);
            } else {
                captures.unwrap();
                device.destroy_graph(device.end_capture(stream).unwrap()).unwrap();
            }
            device.destroy_stream(stream).unwrap();
        }
        device.close().unwrap();
    }
}

/// A name, settings of the simulated runtime, and what the refusal says.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

/// Rows of the table: a setting of the simulated runtime, and what is then said. A chip of another kind is found out when
/// the device is opened, not in the first decode step (vllm-ascend#11999).
#[test]
fn versions_chips_stubs_and_counts_are_refused_by_name() {
    let rows: [Row; 12] = [
        ("old", &[("VERSION", "80200000"), ("VERSION_TEXT", "8.2.RC1")], &["CANN 8.2.RC1", "CANN 8.5.0 or newer"]),
        ("older", &[("VERSION", "80300000"), ("VERSION_TEXT", "")], &["CANN 8.3.0", "CANN 8.5.0 or newer"]),
        ("stub", &[("STUB", "1")], &["is a stub", "100039", "devlib"]),
        ("310p", &[("SOC", "Ascend310P3")], &["Ascend310P3", "310P", "dav-2201"]),
        ("310b", &[("SOC", "Ascend310B1")], &["Ascend310B1", "310B", "dav-2201"]),
        ("910a", &[("SOC", "Ascend910A")], &["Ascend910A", "first generation", "dav-2201"]),
        ("910b", &[("SOC", "Ascend910B")], &["Ascend910B", "first generation", "dav-2201"]),
        ("950", &[("SOC", "Ascend950PR_9599")], &["Ascend950PR_9599", "dav-3510", "dav-2201"]),
        ("new", &[("SOC", "Ascend2000")], &["Ascend2000", "does not know", "dav-2201"]),
        ("none", &[("DEVICES", "0")], &["there is no NPU 0", "the runtime has 0"]),
        ("cores", &[("VECTOR_CORES", "0")], &["Ascend910B3 reports 0 vector cores"]),
        ("negative", &[("VECTOR_CORES", "-1")], &["Ascend910B3 reports -1 vector cores"]),
    ];
    for (name, settings, words) in rows {
        let path = copy(&format!("row-{name}"), "lib64/libacl_rt.so").join("lib64/libacl_rt.so");
        let double = Double::open(&path);
        settings.iter().for_each(|(key, value)| double.set(key, value));
        says(&refusal(AscendDevice::open_with(0, explicit(&path))), words);
        assert!(double.live().iter().all(|(_, count)| *count == 0), "{name}: {:?}", double.live());
    }
    let sim = Sim::take();
    says(&refusal(AscendDevice::open_with(2, sim.options.clone())), &["there is no NPU 2", "the runtime has 2"]);
    says(&refusal(AscendDevice::open_with(usize::MAX, sim.options.clone())), &["there is no NPU", "the runtime has 2"]);
    for soc in ["Ascend910B1", "Ascend910B2C", "Ascend910B4-1", "Ascend910_9392"] {
        sim.runtime.set("SOC", soc);
        assert!(sim.open().unwrap().info().name.starts_with(soc));
    }
    // Newer than anything known is taken.
    let path = copy("row-newer", "lib64/libacl_rt.so").join("lib64/libacl_rt.so");
    let double = Double::open(&path);
    double.set("VERSION", "120000000");
    double.set("VERSION_TEXT", "12.0.0");
    says(&AscendDevice::open_with(0, explicit(&path)).unwrap().info().name, &["CANN 12.0.0"]);
}

fn unit(source: &str) -> Unit<'_> {
    Unit { name: "unit", source, entries: &[c"nothing"] }
}

#[test]
fn compilers_that_are_missing_incomplete_or_moved_are_told() {
    let sim = Sim::take();
    let with = |compiler: &Path| {
        let cache = Some(PathBuf::from("/dev/null/no_cache"));
        AscendDevice::open_with(0, Options { compiler: Some(compiler.into()), cache, ..sim.options.clone() }).unwrap()
    };
    let source = crate::run::source();
    says(
        &refusal(with(Path::new("/no/libacl_rtc.so")).load(&unit(&source))),
        &["/no/libacl_rtc.so", "cannot be opened"],
    );
    for symbol in [
        "aclrtcCreateProg",
        "aclrtcCompileProg",
        "aclrtcDestroyProg",
        "aclrtcGetBinDataSize",
        "aclrtcGetBinData",
        "aclrtcGetCompileLogSize",
        "aclrtcGetCompileLog",
    ] {
        let path = folder().join(format!("without/{symbol}.so"));
        compiler_without(&path, &[symbol]);
        says(&refusal(with(&path).load(&unit(&source))), &[&format!("lacks {symbol}")]);
    }
    // A copy outside of its toolkit cannot find its parts.
    let moved = folder().join("moved/libacl_rtc.so");
    compiler_without(&moved, &[]);
    let error = with(&moved).load(&unit(&source)).unwrap_err().to_string();
    says(&error, &["aclrtcCreateProg", "576000", "outside its toolkit", "moved/libacl_rtc.so"]);
}

#[test]
fn sources_and_kernels_that_are_no_good_are_told() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let error = device.load(&unit("this is no C++;")).unwrap_err().to_string();
    says(&error, &["compile", "aclrtcCompileProg", "176003", "does not compile", "error: ", "libacl_rtc.so"]);
    sim.compiler.fail_next("aclrtcGetCompileLogSize", 576_000);
    let error = device.load(&unit("neither is this;")).unwrap_err().to_string();
    says(&error, &["aclrtcCompileProg", "176003", "no log", "aclrtcGetCompileLogSize", "576000"]);
    let error = device.load(&unit("a zero\0byte")).unwrap_err().to_string();
    says(&error, &["zero byte in source at = 6"]);
    let error = device.load(&unit(&crate::run::source())).unwrap_err().to_string();
    says(&error, &["aclrtBinaryGetFunction", "507027", "\"nothing\"", "compiled by"]);
    // A kernel whose arguments are not whole slots.
    let narrow = "#include \"kernel_operator.h\"\nextern \"C\" __global__ void nothing(uint32_t a) {}";
    says(&device.load(&unit(narrow)).unwrap_err().to_string(), &["176003", "slots of 8 bytes"]);
    drop(device);
    assert!(sim.live().iter().all(|(_, count)| *count == 0), "{:?}", sim.live());
}

#[test]
fn compiled_kernels_are_kept_and_a_prebuilt_object_needs_no_compiler() {
    let sim = Sim::take();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend-kept-{}", std::process::id()));
    let _ = fs::remove_dir_all(&cache);
    let options = Options { cache: Some(cache.clone()), ..sim.options.clone() };
    let open = |options: &Options| AscendDevice::open_with(0, options.clone()).unwrap();
    let compiled = || sim.compiler.count("aclrtcCompileProg");

    let first = open(&options);
    crate::run::load(&first).unwrap();
    says(&first.kernel_origins()[0], &["compiled by", "libacl_rtc.so", "CANN 8.5.0 for Ascend910B3", "kept at"]);
    let second = open(&options);
    crate::run::load(&second).unwrap();
    says(&second.kernel_origins()[0], &["cached", "CANN 8.5.0 for Ascend910B3"]);
    assert_eq!(compiled(), 1);

    // Another chip is another entry.
    sim.runtime.set("SOC", "Ascend910_9392");
    let third = open(&options);
    crate::run::load(&third).unwrap();
    says(&third.kernel_origins()[0], &["compiled by", "Ascend910_9392"]);
    assert_eq!((compiled(), fs::read_dir(&cache).unwrap().count()), (2, 2));
    sim.runtime.set("SOC", "Ascend910B3");

    // An object by path: the code of an entry, past the header and key the cache puts in front of it. It carries the mark
    // of the sources, as the listing has it.
    let listing = listing("dav-2201").unwrap();
    let mark = listing.lines().last().unwrap();
    let object_of = |name: &str, mark: &str| {
        let folder = cache.join(name);
        let device = open(&Options { cache: Some(folder.clone()), ..options.clone() });
        let source = format!("{}{mark}", crate::run::source());
        device.load(&Unit { name: "copy_add", source: &source, entries: &[c"copy_add"] }).unwrap();
        let entry = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(entry).unwrap();
        let start = bytes.windows(4).position(|window| window == b"\x7fELF").unwrap();
        let object = folder.join("object.o");
        fs::write(&object, &bytes[start..]).unwrap();
        object
    };
    let object = object_of("own", mark);
    let compiled_before = compiled();
    let no_compiler =
        Options { kernels: Some(object.clone()), compiler: Some("/no/compiler".into()), ..options.clone() };
    let prebuilt = open(&no_compiler);
    let kernel = crate::run::load(&prebuilt).unwrap();
    says(&prebuilt.kernel_origins()[0], &["the object", "object.o"]);
    let mut made = crate::run::Made::new(&prebuilt, || 0);
    crate::run::copy_add(&mut made, kernel, 4, 3, false).unwrap();
    made.release().unwrap();
    assert_eq!(compiled(), compiled_before);

    let with = |path: &Path| open(&Options { kernels: Some(path.to_owned()), ..no_compiler.clone() });
    let error = crate::run::load(&with(Path::new("/no/object.o"))).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if path == "/no/object.o"), "{error}");
    fs::write(&object, "no object").unwrap();
    says(&refusal(crate::run::load(&with(&object))), &["object.o", "no object file for dav-2201"]);
    // An object of other sources, and one that does not tell, would launch with other arguments than they take.
    let other = mark.replace("samedraw_sources_", "samedraw_sources_0123456789abcdef0123456789abcdef//");
    let other = other.replace("//", "(uint64_t) {} //");
    says(
        &refusal(crate::run::load(&with(&object_of("other", &other)))),
        &["built from the sources 0123456789abcdef0123456789abcdef, this version has"],
    );
    says(&refusal(crate::run::load(&with(&object_of("none", "")))), &["do not tell which sources"]);
    let hash = mark.split_once("samedraw_sources_").unwrap().1.split_once('(').unwrap().0;
    fs::write(&object, format!("\x7fELF samedraw_sources_{hash} and nothing more")).unwrap();
    let error = crate::run::load(&with(&object)).unwrap_err().to_string();
    says(&error, &["aclrtBinaryLoadFromData", "107000", "simulated"]);
    fs::remove_dir_all(&cache).unwrap();
}
