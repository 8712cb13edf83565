//! A caller that owns nothing but addresses and a stream: what a serving stack in another language is to us.
//!
//! `cargo run --example raw_pointers`
//!
//! Its allocator made every buffer, its stream orders the work, and the device is chosen at run time. We borrow: nothing
//! handed in is freed or waited for by the sampler.

use samedraw::device::{self, DevPtr, Device, RawStream};
use samedraw::pipeline::{DType, Index, Logits, Outputs};
use samedraw::{Limits, ParamTable, Result, Sampler, SamplingParams, Step};
use std::sync::Arc;

const ROWS: usize = 3;
const VOCAB: usize = 1000;

/// A step as it crosses a C interface.
#[repr(C)]
struct Handed {
    stream: u64,
    logits: u64,
    slots: u64,
    positions: u64,
    tokens: u64,
}

/// Our side of the interface.
///
/// # Safety
/// The addresses hold, on the sampler's device, f32 `[ROWS, VOCAB]`, i64 `[ROWS]`, i64 `[ROWS]` and i32 `[ROWS]`, until
/// `stream` has passed this call.
unsafe fn sample(sampler: &mut Sampler<dyn Device>, handed: &Handed) -> Result<()> {
    let logits = Logits { ptr: DevPtr(handed.logits), dtype: DType::F32, rows: ROWS, vocab: VOCAB, stride: VOCAB };
    let step = Step {
        logits,
        rows: ROWS,
        row_to_slot: Some(Index::i64(DevPtr(handed.slots))),
        positions: DevPtr(handed.positions),
        outputs: Outputs { tokens: Some(Index::i32(DevPtr(handed.tokens))), ..Outputs::default() },
        ..Step::default()
    };
    // SAFETY: the caller's promise.
    unsafe { sampler.step(RawStream(handed.stream), &step) }
}

fn main() -> Result<()> {
    // The framework's side. On the CPU device the address of host memory is a device address.
    let logits: Vec<f32> = (0..ROWS * VOCAB).map(|i| ((i * 7919) % 1009) as f32 * 0.01).collect();
    let (slots, positions, mut tokens) = ([7i64, 2, 7], [17i64, 40, 4], [0i32; ROWS]);
    let address = |ptr: DevPtr| ptr.0;
    let handed = Handed {
        stream: 0x57, // its stream; on the CPU device a stream is just a name
        logits: address(DevPtr::from_host(&logits)),
        slots: address(DevPtr::from_host(&slots)),
        positions: address(DevPtr::from_host(&positions)),
        tokens: address(DevPtr::from_host_mut(&mut tokens)),
    };

    // Parameters live on the device, one slot a request; rows name their slot. The request in slot 7 is greedy.
    let device = device::open("cpu")?;
    let table = Arc::new(ParamTable::new(&device, 8)?);
    let drawn = SamplingParams { top_k: 50, top_p: 0.9, seq_seed: Some(1), ..SamplingParams::default() };
    // SAFETY: the stream is alive and not capturing.
    unsafe {
        table.set(RawStream(handed.stream), 2, &drawn)?;
        table.set(RawStream(handed.stream), 7, &SamplingParams::greedy())?;
    }

    // The workspace is lent too: ask for its size, let the framework's allocator place it, aligned to 256 bytes.
    let limits = Limits::new(ROWS, VOCAB);
    let bytes = Sampler::workspace_bytes(&*device, &limits)?;
    let mut lent = vec![0u8; bytes + 255];
    let workspace = DevPtr(address(DevPtr::from_host_mut(&mut lent)).next_multiple_of(256));
    // SAFETY: `bytes` bytes from there lie in `lent`, which nothing else uses while the sampler lives.
    let mut sampler = unsafe { Sampler::<dyn Device>::with_workspace(&device, limits, &table, workspace, bytes)? };

    // SAFETY: the arrays above are what `sample` asks for; the framework waits for its own stream.
    unsafe {
        sample(&mut sampler, &handed)?;
        device.synchronize(RawStream(handed.stream))?;
    }
    println!("tokens: {tokens:?} (rows 0 and 2 are greedy)");
    for row in [0, 2] {
        let own = &logits[row * VOCAB..][..VOCAB];
        assert!(own.iter().all(|x| *x <= own[tokens[row] as usize]));
    }
    Ok(())
}
