//! A captured graph: one step is recorded, then replayed for every token with no host work in between.
//!
//! `cargo run --example captured_graph`
//!
//! A replay reads its inputs anew from the addresses it was captured with. Seeds and positions are among them, so
//! advancing the positions in device memory is all it takes for the next draw to be a fresh one. A graph has one shape;
//! a smaller batch marks the rows it does not use as padding.

use samedraw::device::{CpuDevice, DeviceBuffer, Stream};
use samedraw::pipeline::{Index, Logits, Outputs, Variant};
use samedraw::{Limits, ParamTable, Result, Sampler, SamplingParams, Step};
use std::sync::Arc;

const ROWS: usize = 4;
const VOCAB: usize = 512;
/// What the token buffer holds before a replay, to show which rows a replay wrote.
const UNTOUCHED: i32 = -99;

fn main() -> Result<()> {
    let device = Arc::new(CpuDevice::open()?);
    let stream = Stream::new(&device)?;
    let table = Arc::new(ParamTable::new(&device, ROWS)?);
    for slot in 0..ROWS {
        let params = SamplingParams { seq_seed: Some(100 + slot as u64), top_p: 0.95, ..SamplingParams::default() };
        // SAFETY: the stream is ours and not capturing.
        unsafe { table.set(stream.raw(), slot, &params)? };
    }
    let mut sampler = Sampler::new(&device, Limits::new(ROWS, VOCAB), &table)?;

    // Everything a replay reads or writes has a fixed address.
    let logits: Vec<f32> = (0..ROWS * VOCAB).map(|i| ((i * 31) % 97) as f32 * 0.05).collect();
    let logits = DeviceBuffer::from_slice(&device, &stream, &logits)?;
    let slots = DeviceBuffer::from_slice(&device, &stream, &[0i32, 1, 2, 3])?;
    let positions = DeviceBuffer::from_slice(&device, &stream, &[10i64, 20, 30, 40])?;
    let tokens = DeviceBuffer::from_slice(&device, &stream, &[UNTOUCHED; ROWS])?;
    let step = Step {
        logits: Logits { ptr: logits.ptr(), rows: ROWS, vocab: VOCAB, stride: VOCAB, ..Logits::default() },
        rows: ROWS,
        row_to_slot: Some(Index::i32(slots.ptr())),
        positions: positions.ptr(),
        outputs: Outputs { tokens: Some(Index::i32(tokens.ptr())), ..Outputs::default() },
        ..Step::default()
    };
    // The variant names the filters that replays may meet; Default is any. Capturing runs nothing.
    // SAFETY: the buffers outlive the captured step.
    let captured = unsafe { sampler.capture(stream.raw(), &step, Variant::Default)? };

    // The scheduler's updates between replays; in a real decode loop a kernel of the model makes them.
    let mut replays = Vec::new();
    for token in 0..3 {
        positions.write(&stream, 0, &[10i64 + token, 20 + token, 30 + token, 40 + token])?;
        let mut drawn = [0i32; ROWS];
        // SAFETY: as for the capture.
        unsafe { captured.replay(stream.raw())? };
        tokens.read(&stream, &mut drawn)?;
        println!("replay {token}: {drawn:?}");
        replays.push(drawn);
    }
    assert!(replays[0] != replays[1] && replays[1] != replays[2], "fresh positions give fresh draws");

    // Two requests have finished: their rows become padding (slot -1), which is neither read nor written. Request 2 has
    // moved up to row 1. At the positions of the last replay both draw what they drew then.
    slots.write(&stream, 0, &[0i32, 2, -1, -1])?;
    positions.write(&stream, 0, &[12i64, 32, 0, 0])?;
    let row_of_2: Vec<f32> = (2 * VOCAB..3 * VOCAB).map(|i| ((i * 31) % 97) as f32 * 0.05).collect();
    logits.write(&stream, VOCAB, &row_of_2)?;
    tokens.write(&stream, 0, &[UNTOUCHED; ROWS])?;
    let mut drawn = [0i32; ROWS];
    // SAFETY: as for the capture.
    unsafe { captured.replay(stream.raw())? };
    tokens.read(&stream, &mut drawn)?;
    println!("two rows:  {drawn:?}");
    assert_eq!(drawn, [replays[2][0], replays[2][2], UNTOUCHED, UNTOUCHED]);
    Ok(())
}
