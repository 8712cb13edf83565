//! Failures at every call: each is told by an error that names the call, the code and the runtime's message, nothing
//! leaks, and the process goes on.

use crate::run::{Made, blocks, copy_add, load};
use crate::sim::{BROKEN, Double, LOST, OUT_OF_MEMORY, Sim, installation, options_of, says};
use samedraw::device::ascend::launch::Arguments;
use samedraw::device::ascend::{AscendDevice, Options};
use samedraw::device::{DevPtr, Device, DeviceBuffer, RawStream};
use samedraw::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Everything a device can be asked, under a context of a stack of its own, all made and released; the first failure.
/// What was compiled before is taken from the cache.
fn everything(options: &Options, runtime: &Double) -> Result<()> {
    let foreign = runtime.foreign_context();
    let done = AscendDevice::open_with(0, options.clone()).and_then(|device| {
        let mut made = Made::new(&device, || runtime.live().iter().map(|(_, count)| count).sum());
        let worked = load(&device).and_then(|kernel| copy_add(&mut made, kernel, 5, 77, true));
        let released = made.release();
        worked.and(released).and(device.close())
    });
    runtime.destroy_foreign_context(foreign);
    done
}

/// Each call of `trace`, with how often it is made.
fn counted(trace: &[String]) -> Vec<(String, usize)> {
    let mut calls: Vec<(String, usize)> = Vec::new();
    for call in trace {
        match calls.iter_mut().find(|(name, _)| name == call) {
            Some((_, count)) => *count += 1,
            None => calls.push((call.clone(), 1)),
        }
    }
    calls
}

fn names_all(error: &Error, call: &str, code: i32) {
    let Error::Driver { call: told, code: told_code, message, .. } = error else { panic!("{call}: {error:?}") };
    assert_eq!(*told, call);
    if call == "aclrtGetSocName" {
        // It returns no code, but a name or none.
        says(message, &["no name", "simulated aclrtGetSocName", &code.to_string()]);
    } else {
        assert_eq!(*told_code, i64::from(code), "{error}");
        // aclrtc has no messages besides its log.
        let said = if call.starts_with("aclrtc") { "libacl_rtc.so".into() } else { format!("simulated {call}: ") };
        says(message, &[&said]);
    }
    says(&error.to_string(), &[call]);
}

#[test]
fn every_call_that_fails_is_told_and_nothing_leaks() {
    let sim = Sim::take();
    everything(&sim.options, &sim.runtime).unwrap();
    let clean = sim.live();
    assert!(clean.iter().all(|(_, count)| *count == 0), "{clean:?}");
    let (mut tried, mut options) = (0, sim.options.clone());
    for (double, least) in [(&sim.runtime, 26), (&sim.compiler, 5)] {
        sim.runtime.reset();
        sim.compiler.reset();
        everything(&options, &sim.runtime).unwrap();
        if std::ptr::eq(double, &sim.compiler) {
            // A cache that cannot be: every run compiles.
            options.cache = Some("/dev/null/no_cache".into());
            everything(&options, &sim.runtime).unwrap();
        }
        let calls = counted(&double.trace());
        // What is made once a process is failed in a test of its own.
        let calls: Vec<_> =
            calls.into_iter().filter(|(name, _)| !name.starts_with("aclsys") && name != "aclInit").collect();
        assert!(calls.len() >= least, "{calls:?}");
        for (call, count) in calls {
            // Polling asks a number of times that no two runs share; compilations take long.
            // How often an event is polled differs from run to run.
            let places = if call == "aclrtQueryEventStatus" { 1 } else { count };
            for nth in 1..=places {
                sim.runtime.reset();
                sim.compiler.reset();
                double.fail(&call, nth, 1, BROKEN);
                match everything(&options, &sim.runtime) {
                    Err(error) => names_all(&error, &call, BROKEN),
                    // Polls enter the context, too: with fewer of them the call is not made as often.
                    Ok(()) if call.ends_with("CurrentContext") && double.count(&call) < nth => {}
                    Ok(()) => panic!("{call} failed the {nth}. time and nobody was told"),
                }
                assert_eq!(sim.live(), clean, "{call} failed the {nth}. time");
                tried += 1;
            }
        }
    }
    println!("{tried} failures were told");
    samedraw::device::open("cpu").unwrap();
    everything(&sim.options, &sim.runtime).unwrap();
}

/// A runtime of its own, gone with this: what a process does once is done again.
struct Fresh {
    options: Options,
    runtime: Double,
    root: PathBuf,
}

impl Fresh {
    fn new(name: &str) -> Self {
        let plain = installation("plain", "");
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend-fresh-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let path = root.join("libacl_rt.so");
        fs::copy(plain.join("lib64/libacl_rt.so"), &path).unwrap();
        let options = Options { runtime: Some(path.clone()), ..options_of(&plain) };
        Fresh { options, runtime: Double::open(&path), root }
    }

    fn open(&self) -> Result<AscendDevice> {
        AscendDevice::open_with(0, self.options.clone())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

#[test]
fn failures_of_what_is_done_once_are_told() {
    let fresh = Fresh::new("init");
    fresh.runtime.fail_next("aclInit", BROKEN);
    let error = fresh.open().unwrap_err().to_string();
    says(&error, &["aclInit", &BROKEN.to_string(), "simulated aclInit", "unavailable"]);
    // The next attempt finds a runtime that works.
    fresh.open().unwrap().close().unwrap();

    // Somebody else has initialised it.
    let fresh = Fresh::new("repeat");
    assert_eq!(fresh.runtime.initialise(), 0);
    fresh.open().unwrap().close().unwrap();

    // Without its version the symbols decide.
    let fresh = Fresh::new("version");
    fresh.runtime.fail_next("aclsysGetVersionNum", BROKEN);
    fresh.runtime.fail_next("aclsysGetVersionStr", BROKEN);
    let device = fresh.open().unwrap();
    says(&device.info().name, &["CANN unknown"]);
    device.close().unwrap();
}

#[test]
fn a_lost_device_fails_every_call_after_it_and_the_process_goes_on() {
    let sim = Sim::take();
    everything(&sim.options, &sim.runtime).unwrap();
    // After every seventh call, until a run ends before the device is lost.
    let mut told = 0;
    for after in (0..).step_by(7) {
        let fresh = Fresh::new(&format!("lost{after}"));
        fresh.open().unwrap().close().unwrap();
        fresh.runtime.lose_device(after);
        match everything(&fresh.options, &fresh.runtime) {
            Err(Error::Driver { code, message, .. }) => {
                assert_eq!(code, i64::from(LOST));
                says(&message, &["the simulated device is lost"]);
                told += 1;
            }
            Err(other) => panic!("after {after} calls: {other:?}"),
            Ok(()) => break,
        }
    }
    assert!(told > 20, "{told} losses were told");
}

#[test]
fn refused_allocations_name_bytes_call_code_and_message() {
    let sim = Sim::take();
    let device = Arc::new(sim.open().unwrap());
    for code in [OUT_OF_MEMORY, 207_018, 200_000] {
        sim.runtime.fail_next("aclrtMalloc", code);
        let error = DeviceBuffer::new(&device, 12345).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: 12345, .. }), "{error:?}");
        says(&error.to_string(), &["ascend", "12345 bytes", "aclrtMalloc", &code.to_string(), "simulated aclrtMalloc"]);
        sim.runtime.fail_next("aclrtMallocHost", code);
        let error = device.alloc_host(777).unwrap_err();
        says(&error.to_string(), &["alloc_host", "777 bytes", "aclrtMallocHost", &code.to_string(), "simulated"]);
    }
    // The second attempt of an allocation that was not aligned.
    sim.runtime.set("ALIGN_64", "1");
    sim.runtime.fail("aclrtMalloc", 2, 1, OUT_OF_MEMORY);
    assert!(matches!(device.alloc(100), Err(Error::OutOfMemory { .. })));
    assert!(sim.live().contains(&("memory", 0)));
    // More than there is.
    assert!(matches!(device.alloc(1 << 40), Err(Error::OutOfMemory { .. })));
}

#[test]
fn a_runtime_without_a_message_is_told_as_such() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    sim.runtime.fail_next("aclrtCreateStream", 107_002);
    sim.runtime.fail_next("aclGetRecentErrMsg", BROKEN);
    let error = device.create_stream().unwrap_err().to_string();
    says(&error, &["aclrtCreateStream", "107002", "ACL_ERROR_RT_CONTEXT_NULL", "gives no message"]);
}

#[test]
fn work_that_fails_later_is_told_by_the_next_wait() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let kernel = load(&device).unwrap();
    let (from, to, host) = (device.alloc(800).unwrap(), device.alloc(800).unwrap(), device.alloc_host(800).unwrap());
    let stream = device.create_stream().unwrap();
    let (rows, verify) = blocks(from, to, DevPtr::NULL, 100, 1);
    let arguments = Arguments::default().and_block(&rows).unwrap().and_block(&verify).unwrap();
    for (task, code) in [("kernel", 507_035), ("copy", BROKEN)] {
        sim.runtime.fail_next(task, code);
        // SAFETY: everything is alive; the kernel takes both blocks.
        unsafe {
            device.copy_to_device(stream, from, host, 800).unwrap();
            device.launch(stream, kernel, 2, &arguments).unwrap();
            names_all(&device.synchronize(stream).unwrap_err(), "aclrtSynchronizeStream", code);
            device.synchronize(stream).unwrap();
        }
    }
    // From memory that is not pinned the copy itself waits, and tells.
    sim.runtime.fail_next("copy", BROKEN);
    // SAFETY: both ranges hold as many bytes.
    let error = unsafe { device.copy_to_device(stream, from, [0u8; 800].as_ptr(), 800) }.unwrap_err();
    names_all(&error, "aclrtMemcpyAsync", BROKEN);
    // SAFETY: nothing runs any more.
    unsafe {
        device.destroy_stream(stream).unwrap();
        device.free(from, 800).unwrap();
        device.free(to, 800).unwrap();
        device.free_host(host, 800).unwrap();
    }
    // After the failure was told, the stream and the device go on.
    let mut made = Made::new(&device, || 0);
    copy_add(&mut made, kernel, 2, 5, true).unwrap();
    made.release().unwrap();
}

#[test]
fn memory_used_after_its_end_is_a_fault_and_not_old_bytes() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let kernel = load(&device).unwrap();
    let (from, to) = (device.alloc(800).unwrap(), device.alloc(800).unwrap());
    let (rows, verify) = blocks(from, to, DevPtr::NULL, 100, 1);
    let arguments = Arguments::default().and_block(&rows).unwrap().and_block(&verify).unwrap();
    // SAFETY: none: the simulated runtime is to find the mistake. It turns the access into an error.
    unsafe {
        device.free(from, 800).unwrap();
        device.launch(RawStream::default(), kernel, 1, &arguments).unwrap();
        let error = device.synchronize(RawStream::default()).unwrap_err();
        names_all(&error, "aclrtSynchronizeStream", 507_035);
        let error = device.copy_to_host(RawStream::default(), [0u8; 8].as_mut_ptr(), from, 8).unwrap_err();
        names_all(&error, "aclrtMemcpyAsync", 107_000);
        let error = device.free(from, 800).unwrap_err();
        names_all(&error, "aclrtFree", 107_000);
        device.free(to, 800).unwrap();
    }
}
