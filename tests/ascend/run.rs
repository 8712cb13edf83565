//! A trivial kernel from source to result, from several threads and streams; memory, events and capture.

use crate::sim::{Sim, folder, says};
use samedraw::device::ascend::kernels::{Unit, sources};
use samedraw::device::ascend::launch::{Arguments, Kernel};
use samedraw::device::ascend::{AscendDevice, Options};
use samedraw::device::{
    DevPtr, Device, DeviceBuffer, Platform, RawEvent, RawGraph, RawStream, Stage, Stream, effective_columns,
};
use samedraw::pipeline::blocks::{RowBlock, VerifyBlock};
use samedraw::pipeline::{HostRun, HostStep};
use samedraw::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// Words of 8 bytes a test copies.
const WORDS: usize = 1000;
const ENTRIES: [&std::ffi::CStr; 1] = [c"copy_add"];

/// The source of the trivial kernel, put together as those of a stage are.
pub fn source() -> String {
    let sources = sources("dav-2201").unwrap();
    let (_, blocks) = sources.iter().find(|(name, _)| *name == "abi.h").unwrap();
    [*blocks, include_str!("copy_add.asc")].join("\n")
}

pub fn load(device: &AscendDevice) -> Result<Kernel> {
    let kernels = device.load(&Unit { name: "copy_add", source: &source(), entries: &ENTRIES })?;
    Ok(kernels[0])
}

/// Both argument blocks with a value of its own in every field.
pub fn blocks(from: DevPtr, to: DevPtr, shown: DevPtr, words: usize, addend: u64) -> (RowBlock, VerifyBlock) {
    let mut fields = 0x0123_4567_0000_0000..;
    let rows: [u64; size_of::<RowBlock>() / 8] = std::array::from_fn(|_| fields.next().unwrap());
    let verify: [u64; size_of::<VerifyBlock>() / 8] = std::array::from_fn(|_| fields.next().unwrap());
    let rows = RowBlock {
        logits: from.0,
        tokens: to.0,
        scratch: shown.0,
        vocab: words as u64,
        position_add: addend,
        ..bytemuck::pod_read_unaligned(bytemuck::cast_slice(&rows))
    };
    (rows, bytemuck::pod_read_unaligned(bytemuck::cast_slice(&verify)))
}

/// Everything made on a device, released in the end with the first failure told; a release that is refused and leaves
/// its object alive is tried once more.
pub struct Made<'a> {
    device: &'a AscendDevice,
    live: Box<dyn Fn() -> usize + 'a>,
    memory: Vec<(DevPtr, usize)>,
    pinned: Vec<(*mut u8, usize)>,
    streams: Vec<RawStream>,
    events: Vec<RawEvent>,
    graphs: Vec<RawGraph>,
}

impl<'a> Made<'a> {
    pub fn new(device: &'a AscendDevice, live: impl Fn() -> usize + 'a) -> Self {
        let live = Box::new(live);
        let (memory, pinned, streams, events, graphs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Made { device, live, memory, pinned, streams, events, graphs }
    }

    fn alloc(&mut self, bytes: usize) -> Result<DevPtr> {
        let ptr = self.device.alloc(bytes)?;
        self.memory.push((ptr, bytes));
        Ok(ptr)
    }

    /// Pinned memory for words.
    fn pinned(&mut self, words: usize) -> Result<&'static mut [u64]> {
        let ptr = self.device.alloc_host(8 * words)?;
        self.pinned.push((ptr, 8 * words));
        // SAFETY: aligned to 64 bytes, of that size, and alive until `release`, after which no test uses it.
        Ok(unsafe { std::slice::from_raw_parts_mut(ptr.cast(), words) })
    }

    fn stream(&mut self) -> Result<RawStream> {
        let stream = self.device.create_stream()?;
        self.streams.push(stream);
        Ok(stream)
    }

    fn event(&mut self, timing: bool) -> Result<RawEvent> {
        let event = self.device.create_event(timing)?;
        self.events.push(event);
        Ok(event)
    }

    pub fn release(self) -> Result<()> {
        let mut first = Ok(());
        let mut attempt = |release: &dyn Fn() -> Result<()>| {
            let before = (self.live)();
            let done = release();
            if done.is_err() && (self.live)() == before {
                // The first refusal is told; whether this one worked shows in what is left alive.
                let _ = release();
            }
            let earlier = std::mem::replace(&mut first, Ok(()));
            first = earlier.and(done);
        };
        let device = self.device;
        // SAFETY: everything came from this device and is used no more once the streams have ended.
        unsafe {
            self.streams.iter().for_each(|&stream| attempt(&|| device.synchronize(stream)));
            self.graphs.iter().for_each(|&graph| attempt(&|| device.destroy_graph(graph)));
            self.events.iter().for_each(|&event| attempt(&|| device.destroy_event(event)));
            self.streams.iter().for_each(|&stream| attempt(&|| device.destroy_stream(stream)));
            self.memory.iter().for_each(|&(ptr, bytes)| attempt(&|| device.free(ptr, bytes)));
            self.pinned.iter().for_each(|&(ptr, bytes)| attempt(&|| device.free_host(ptr, bytes)));
        }
        first
    }
}

/// Copies and adds on a stream of its own with pinned memory, waits for an event, checks every word and every argument;
/// then the same from a graph.
pub fn copy_add(made: &mut Made<'_>, kernel: Kernel, blocks_of_launch: u32, addend: u64, captures: bool) -> Result<()> {
    let device = made.device;
    let shown_words = (size_of::<RowBlock>() + size_of::<VerifyBlock>()) / 8;
    let (input, output, shown) = (made.pinned(WORDS)?, made.pinned(WORDS)?, made.pinned(shown_words)?);
    input.iter_mut().enumerate().for_each(|(i, word)| *word = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ addend);
    let (from, to, at) = (made.alloc(8 * WORDS)?, made.alloc(8 * WORDS)?, made.alloc(8 * shown_words)?);
    let (stream, start, end) = (made.stream()?, made.event(true)?, made.event(true)?);
    let (rows, verify) = blocks(from, to, at, WORDS, addend);
    let arguments = Arguments::default().and_block(&rows)?.and_block(&verify)?;
    let expected: Vec<u64> = input.iter().map(|word| word.wrapping_add(addend)).collect();
    // SAFETY: everything is alive until the caller releases it, after the streams have ended; the kernel takes both
    // blocks.
    unsafe {
        assert!(device.query_event(end)?, "an event that was never recorded has passed");
        device.record_event(stream, start)?;
        device.copy_to_device(stream, from, input.as_ptr().cast(), 8 * WORDS)?;
        device.fill(stream, to, 0xEE, 8 * WORDS)?;
        device.launch(stream, kernel, blocks_of_launch, &arguments)?;
        device.copy_to_host(stream, output.as_mut_ptr().cast(), to, 8 * WORDS)?;
        device.copy_to_host(stream, shown.as_mut_ptr().cast(), at, 8 * shown_words)?;
        device.record_event(stream, end)?;
        // Ever longer pauses: the number of calls stays small on a machine that is slow to run the stream's thread.
        let mut pause = Duration::from_millis(1);
        while !device.query_event(end)? {
            std::thread::sleep(pause);
            pause *= 2;
        }
        assert!(device.elapsed_ms(start, end)? >= 0.0);
    }
    assert_eq!(output, expected);
    let fields: &[u64] = bytemuck::cast_slice(std::slice::from_ref(&rows));
    assert_eq!(&shown[..fields.len()], fields, "every field of the first block arrives in its place");
    assert_eq!(&shown[fields.len()..], bytemuck::cast_slice::<_, u64>(std::slice::from_ref(&verify)));
    if !captures {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe {
        device.begin_capture(stream)?;
        let recorded = device.launch(stream, kernel, blocks_of_launch, &arguments);
        let copied = device.copy_to_host(stream, output.as_mut_ptr().cast(), to, 8 * WORDS);
        // A capture is ended whatever happened in it: an end that was refused is tried once more.
        let ended = device.end_capture(stream);
        made.graphs.extend(ended.as_ref().ok());
        if ended.is_err() {
            made.graphs.extend(device.end_capture(stream).ok());
        }
        recorded.and(copied)?;
        let graph = ended?;
        for round in 0..3 {
            device.synchronize(stream)?;
            input.iter_mut().for_each(|word| *word ^= round);
            device.copy_to_device(stream, from, input.as_ptr().cast(), 8 * WORDS)?;
            device.launch_graph(stream, graph)?;
            device.synchronize(stream)?;
            assert!(output.iter().zip(input.iter()).all(|(out, word)| *out == word.wrapping_add(addend)), "{round}");
        }
    }
    Ok(())
}

#[test]
fn a_kernel_goes_from_source_to_result_on_threads_and_streams_at_once() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let kernel = load(&device).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (device, sim) = (&device, &sim);
            scope.spawn(move || {
                for round in 0..3u64 {
                    let mut made = Made::new(device, || sim.live().iter().map(|(_, count)| count).sum());
                    let addend = 1000 * thread + round + 1;
                    copy_add(&mut made, kernel, [1, 7, 48, 65535][thread as usize], addend, round == 2).unwrap();
                    made.release().unwrap();
                }
            });
        }
    });
    device.close().unwrap();
    assert!(sim.live().iter().all(|(_, count)| *count == 0), "{:?}", sim.live());
}

#[test]
fn the_device_says_what_it_is_and_refuses_what_it_cannot() {
    let sim = Sim::take();
    sim.runtime.set("VECTOR_CORES", "40");
    let device = sim.open().unwrap();
    assert_eq!(device.vector_cores(), 40);
    assert_eq!((device.info().platform, device.info().exact), (Platform::Ascend, false));
    let says_all =
        ["Ascend910B3", "dav-2201", "40 vector cores", "65536 MiB", "8.5.0", "arithmetic not tested: skipped"];
    says(&device.info().name, &says_all);

    let rows = RowBlock::default();
    // SAFETY: refused before the block is looked at.
    let error = unsafe { device.enqueue(RawStream::default(), &Stage::Sample(&rows)) }.unwrap_err();
    says(&error.to_string(), &["enqueue", "before prepare has loaded the kernels"]);
    let plain = RowBlock { vocab: 200_000, columns: 200_000, ..rows };
    device.supports(&Stage::Sample(&plain)).unwrap();
    let selects = RowBlock { columns: 4097, ..plain };
    says(&device.supports(&Stage::Sample(&selects)).unwrap_err().to_string(), &["Sample", "4097", "not supported"]);
}

/// Two rows of 20 logits, greedy: a stack that meets an NPU without a compiler of its kernels does the step on the CPU.
#[test]
fn a_step_is_refused_at_creation_and_the_cpu_takes_it() {
    let sim = Sim::take();
    let mut logits = [0.0f32; 40];
    (logits[7], logits[31]) = (2.0, 1.0);
    let params = [samedraw::SamplingParams::greedy(), samedraw::SamplingParams::greedy()];
    let step = HostStep {
        logits: bytemuck::cast_slice(&logits),
        vocab: 20,
        stride: 20,
        logits_rows: 2,
        rows: 2,
        params: &params,
        positions: Some(&[3, 4]),
        ..HostStep::default()
    };
    let options = Options {
        compiler: Some("/no/compiler.so".into()),
        cache: Some(folder().join("an empty cache")),
        ..sim.options.clone()
    };
    let device = Arc::new(AscendDevice::open_with(0, options).unwrap());
    let error = HostRun::new(&device, &step).map(|_| ()).unwrap_err();
    says(&error.to_string(), &["CANN compiler", "/no/compiler.so"]);
    assert!(sim.live().iter().all(|(kind, count)| *kind == "device" || *count == 0), "{:?}", sim.live());
    let cpu = samedraw::device::open("cpu").unwrap();
    let result = HostRun::new(&cpu, &step).and_then(|mut run| run.run()).unwrap();
    assert_eq!(result.tokens, [7, 11]);
}

#[test]
fn a_selection_of_4097_is_refused_with_platform_request_and_limit() {
    assert_eq!(effective_columns(Platform::Ascend, 4096, 151_936), Ok(4096));
    assert_eq!(effective_columns(Platform::Ascend, 9999, 4000), Ok(4000));
    assert_eq!(effective_columns(Platform::Ascend, 0, 151_936), Ok(151_936));
    let sim = Sim::take();
    let device = Arc::new(sim.open().unwrap());
    let limits = samedraw::Limits { force_topk: 4097, ..samedraw::Limits::new(4, 151_936) };
    let error = samedraw::Sampler::workspace_bytes(&*device, &limits).unwrap_err();
    assert_eq!(error, Error::ForceTopK { platform: Platform::Ascend, requested: 4097, limit: 4096 });
    says(&error.to_string(), &["ascend", "4097", "4096"]);
}

#[test]
fn memory_is_aligned_to_256_bytes_where_the_runtime_gives_64() {
    let sim = Sim::take();
    let device = Arc::new(sim.open().unwrap());
    for unaligned in ["0", "1"] {
        sim.runtime.set("ALIGN_64", unaligned);
        let buffers: Vec<_> = (1..20).map(|i| DeviceBuffer::new(&device, 100 * i).unwrap()).collect();
        for buffer in &buffers {
            assert!(buffer.ptr().0.is_multiple_of(256), "{:?}", buffer.ptr());
        }
        let stream = Stream::new(&device).unwrap();
        let data: Vec<u32> = (0..475).collect();
        let mut back = vec![0u32; 475];
        let buffer = DeviceBuffer::from_slice(&device, &stream, &data).unwrap();
        buffer.read(&stream, &mut back).unwrap();
        assert_eq!(back, data);
        drop((buffers, buffer, stream));
        assert!(sim.live().iter().all(|(kind, count)| *kind == "device" || *count == 0), "{:?}", sim.live());
    }
}

#[test]
fn the_callers_context_is_put_back() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let foreign = sim.runtime.foreign_context();
    let mut made = Made::new(&device, || 0);
    copy_add(&mut made, load(&device).unwrap(), 3, 9, true).unwrap();
    made.release().unwrap();
    assert_eq!(sim.runtime.current_context(), foreign);
    device.close().unwrap();
    assert_eq!(sim.runtime.current_context(), foreign);
    let again = sim.open().unwrap();
    assert_eq!(sim.runtime.current_context(), foreign);
    drop(again);
    sim.runtime.destroy_foreign_context(foreign);
    assert!(sim.live().iter().all(|(_, count)| *count == 0), "{:?}", sim.live());
}

#[test]
fn the_device_is_counted_and_two_openings_are_independent() {
    let sim = Sim::take();
    let (one, two) = (sim.open().unwrap(), sim.open().unwrap());
    assert!(sim.live().contains(&("device", 2)));
    one.close().unwrap();
    let mut made = Made::new(&two, || 0);
    copy_add(&mut made, load(&two).unwrap(), 3, 9, false).unwrap();
    made.release().unwrap();
    two.close().unwrap();
    assert!(sim.live().contains(&("device", 0)));
}

#[test]
fn a_thread_may_remember_a_context_that_has_ended() {
    let sim = Sim::take();
    for remembers in ["0", "1"] {
        sim.runtime.set("REMEMBERS", remembers);
        // Twice: the second time this thread has had the context of the first.
        for _ in 0..2 {
            let device = sim.open().unwrap();
            let mut made = Made::new(&device, || 0);
            copy_add(&mut made, load(&device).unwrap(), 3, 9, true).unwrap();
            made.release().unwrap();
            device.close().unwrap();
        }
    }
    assert!(sim.live().iter().all(|(_, count)| *count == 0), "{:?}", sim.live());
}

#[test]
fn captures_out_of_order_are_refused_and_a_wait_in_one_is_too() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let stream = device.create_stream().unwrap();
    // SAFETY: the stream is alive; graphs are destroyed when nothing runs.
    unsafe {
        let capture = |result: Result<()>, what: &str| match result {
            Err(Error::Capture { what: said, .. }) => assert!(said.contains(what), "{said}"),
            other => panic!("{other:?}"),
        };
        capture(device.begin_capture(RawStream::default()), "default stream");
        capture(device.end_capture(stream).map(|_| ()), "not capturing");
        device.begin_capture(stream).unwrap();
        capture(device.begin_capture(stream), "already capturing");
        capture(device.synchronize(stream), "capturing");
        // None of these has disturbed the capture.
        let graph = device.end_capture(stream).unwrap();
        device.launch_graph(stream, graph).unwrap();
        device.synchronize(stream).unwrap();
        device.destroy_graph(graph).unwrap();
        device.destroy_stream(stream).unwrap();
    }
}

#[test]
fn launches_that_cannot_be_are_refused() {
    let sim = Sim::take();
    let device = sim.open().unwrap();
    let kernel = load(&device).unwrap();
    let one = Arguments::default().and(&[1]).unwrap();
    // SAFETY: every launch is refused.
    unsafe {
        let launch = |blocks, arguments: &Arguments| device.launch(RawStream::default(), kernel, blocks, arguments);
        says(&launch(0, &one).unwrap_err().to_string(), &["blocks = 0", "65535"]);
        says(&launch(65_536, &one).unwrap_err().to_string(), &["blocks = 65536", "65535"]);
        says(&launch(1, &Arguments::default()).unwrap_err().to_string(), &["argument fields = 0"]);
        let few = launch(1, &one).unwrap_err().to_string();
        says(&few, &["aclrtLaunchKernelWithHostArgs", "107000", "bytes of arguments, not 8"]);
    }
}
