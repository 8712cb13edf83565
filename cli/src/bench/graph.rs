//! Steps timed in graphs: many copies of a step, each over an input of its own, replayed between two events. What a GPU
//! is measured by, as it leaves the host's share out and finds no input in the cache.

use super::drafts::{DRAFTS, Fate, Pool};
use super::inputs::{Inputs, rows_for};
use super::rows::{Character, Mix, Type};
use super::work::{Sources, Work};
use super::{Arguments, quantile};
use crate::output::Failure;
use indicatif::ProgressBar;
use samedraw::device::{DevPtr, RawStream, Stream, TimedGraph};
use samedraw::{Device, Result};
use std::sync::Arc;

/// Steps of one measurement: a graph of few is replayed until there are as many.
const STEPS: usize = 64;

/// A read of memory without a result: the unit.
pub trait Read {
    /// Ways to read, of which the fastest counts.
    fn shapes(&self) -> usize;
    /// Enqueues one read.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are device memory until the stream has passed the read; `stream` is live.
    unsafe fn enqueue(&self, stream: RawStream, shape: usize, from: DevPtr, bytes: usize) -> Result<()>;
}

/// The times of one kind of step.
pub struct Figure {
    pub step: String,
    pub character: Character,
    pub dtype: Type,
    pub rows: usize,
    pub vocab: usize,
    /// Inputs the copies of the step in a graph are spread over.
    pub inputs: usize,
    /// Microseconds of a step, ascending.
    pub times: Vec<f64>,
    /// Median of the plain read of the logits, in the same run.
    pub read: f64,
}

impl Figure {
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.times, share)
    }

    /// Median in plain reads.
    pub fn reads(&self) -> f64 {
        self.quantile(0.5) / self.read
    }
}

/// A device, and what its steps are compared with.
pub struct Bench<'a> {
    pub device: &'a Arc<dyn Device>,
    pub read: &'a dyn Read,
    pub arguments: &'a Arguments,
    pub repeat: u32,
}

impl Bench<'_> {
    /// Every combination of the command line.
    pub fn measure(&self, mixes: &[Mix], bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
        let stream = Arc::new(Stream::new(self.device)?);
        let arguments = self.arguments;
        let (verify, sample): (Vec<Mix>, Vec<Mix>) = mixes.iter().partition(|mix| mix.verifies().is_some());
        let most = arguments.rows.iter().copied().max().unwrap_or(1) as usize;
        let mut figures = Vec::new();
        for &vocab in &arguments.vocab {
            let vocab = vocab as usize;
            for &dtype in &arguments.dtype {
                for &character in &arguments.row {
                    if sample.is_empty() {
                        bar.inc(arguments.rows.len() as u64);
                        continue;
                    }
                    bar.set_message(format!("{character} rows of {vocab} {dtype}"));
                    let rows = self.rows_for(dtype, vocab, most);
                    let inputs = Inputs::new(self.device, &stream, (character, dtype, vocab), rows, most)?;
                    for &rows in &arguments.rows {
                        bar.set_message(format!("{rows} x {vocab} {dtype}, {character} rows"));
                        let sources = Sources { inputs: &inputs, drafts: None };
                        let name = |mix: Mix| mix.to_string();
                        figures.extend(self.turns(
                            &stream,
                            &sample,
                            rows as usize,
                            &sources,
                            (character, dtype),
                            &name,
                        )?);
                        bar.inc(1);
                    }
                }
                if !verify.is_empty() && arguments.row.contains(&Character::Normal) {
                    figures.extend(self.verifications(&stream, &verify, dtype, vocab, bar)?);
                }
            }
        }
        Ok(figures)
    }

    fn rows_for(&self, dtype: Type, vocab: usize, step_rows: usize) -> usize {
        let bytes = if dtype == Type::F32 { 4 } else { 2 };
        rows_for((self.arguments.cold_mib as usize) << 20, vocab * bytes, step_rows)
    }

    fn verifications(
        &self,
        stream: &Arc<Stream<dyn Device>>,
        mixes: &[Mix],
        dtype: Type,
        vocab: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<Figure>, Failure> {
        let rows = self.arguments.requests as usize * (DRAFTS + 1);
        let mut figures = Vec::new();
        for fate in Fate::ALL {
            bar.set_message(format!("{rows} x {vocab} {dtype}, drafts {fate}"));
            let pool = Pool::new(fate, vocab);
            let of_pool = |values: &[f32], dtype| {
                let most = self.rows_for(dtype, vocab, rows);
                Inputs::of_pool(self.device, stream, (values, dtype, vocab), most, rows)
            };
            let (inputs, distributions) = (of_pool(&pool.targets, dtype)?, of_pool(&pool.logprobs, Type::F32)?);
            let sources = Sources { inputs: &inputs, drafts: Some((&distributions, &pool)) };
            let name = |mix: Mix| format!("{mix}, drafts {fate}");
            figures.extend(self.turns(stream, mixes, rows, &sources, (Character::Normal, dtype), &name)?);
        }
        Ok(figures)
    }

    /// The plain read and every mix over the same inputs, in turns, so that whatever else the card does meets them alike.
    fn turns(
        &self,
        stream: &Arc<Stream<dyn Device>>,
        mixes: &[Mix],
        rows: usize,
        sources: &Sources<'_>,
        (character, dtype): (Character, Type),
        name: &dyn Fn(Mix) -> String,
    ) -> Result<Vec<Figure>, Failure> {
        let (inputs, bytes) = (sources.steps_of(rows), sources.inputs.bytes_of(rows));
        let replays = STEPS.div_ceil(inputs);
        let mut works = Vec::new();
        for &mix in mixes {
            works.push(Work::new(self.device, stream, mix, rows, sources)?);
        }
        let mut graphs = Vec::new();
        for shape in 0..self.read.shapes() {
            let from = |input| sources.inputs.start(input, rows);
            // SAFETY: the inputs outlive the graphs of this function.
            graphs.push(unsafe {
                TimedGraph::capture(self.device, stream, inputs, |on, input| {
                    self.read.enqueue(on, shape, from(input), bytes)
                })?
            });
        }
        for work in &mut works {
            // SAFETY: as above, and the works are declared before the graphs, so dropped after them.
            graphs.push(unsafe {
                TimedGraph::capture(self.device, stream, inputs, |on, input| work.enqueue(on, input, sources))?
            });
        }
        let mut times = vec![Vec::new(); graphs.len()];
        for round in 0..=self.repeat {
            for (graph, times) in graphs.iter_mut().zip(&mut times) {
                let time = graph.step_us(replays)?;
                // The first round warms up.
                if round > 0 {
                    times.push(time);
                }
            }
        }
        times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        let steps = times.split_off(self.read.shapes());
        let read = times.iter().map(|times| quantile(times, 0.5)).fold(f64::INFINITY, f64::min);
        let vocab = sources.inputs.vocab;
        let figure = |(&mix, times)| Figure { step: name(mix), character, dtype, rows, vocab, inputs, times, read };
        Ok(mixes.iter().zip(steps).map(figure).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use samedraw::device::{CpuDevice, DeviceBuffer};
    use std::cell::RefCell;

    const VOCAB: usize = 300;

    /// Fills one byte for every read and remembers what was asked of it.
    struct Noting {
        device: Arc<dyn Device>,
        at: DeviceBuffer<dyn Device>,
        asked: RefCell<Vec<(usize, usize)>>,
    }

    impl Read for Noting {
        fn shapes(&self) -> usize {
            2
        }

        unsafe fn enqueue(&self, stream: RawStream, shape: usize, _: DevPtr, bytes: usize) -> Result<()> {
            self.asked.borrow_mut().push((shape, bytes));
            // SAFETY: the byte is this value's own.
            unsafe { self.device.fill(stream, self.at.ptr(), 0, 1) }
        }
    }

    fn arguments(more: &[&str]) -> Arguments {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            arguments: Arguments,
        }
        let shape = ["bench", "--rows", "1,6", "--vocab", "300", "--cold-mib", "0", "--requests", "2"];
        <Command as clap::Parser>::parse_from(shape.iter().chain(more)).arguments
    }

    #[test]
    fn every_step_of_every_kind_of_row_is_timed() {
        let device: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
        let at = DeviceBuffer::new(&device, 1).unwrap();
        let read = Noting { device: Arc::clone(&device), at, asked: RefCell::default() };
        let arguments =
            arguments(&["--row", "normal,equal,peaked,spike,sorted,few,masked,minus-inf", "--dtype", "f32,bf16"]);
        let bench = Bench { device: &device, read: &read, arguments: &arguments, repeat: 2 };
        let figures = bench.measure(&Mix::GPU, &ProgressBar::hidden()).map_err(|failure| failure.0).unwrap();
        // Nine mixes over eight kinds, two types and two sizes; three verifications with two fates over two types.
        assert_eq!(figures.len(), 9 * 8 * 2 * 2 + 3 * 2 * 2);
        for figure in &figures {
            let ascending = figure.times.is_sorted() && figure.times.len() == 2 && figure.times[0] > 0.0;
            assert!(ascending && figure.read > 0.0 && figure.inputs >= 4, "{}", figure.step);
        }
        let verified: Vec<_> = figures.iter().filter(|figure| figure.step.contains("drafts accepted")).collect();
        assert!(verified.len() == 6 && verified.iter().all(|figure| figure.rows == 12));
        assert!(read.asked.borrow().contains(&(1, 6 * VOCAB * 4)) && read.asked.borrow().contains(&(0, VOCAB * 2)));
    }

    #[test]
    fn steps_over_other_inputs_draw_other_tokens_and_drafts_meet_their_fate() {
        let device: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(1));
        let stream = Stream::new(&device).unwrap();
        let rows = 30;
        for fate in Fate::ALL {
            let pool = Pool::new(fate, VOCAB);
            let of_pool =
                |values: &[f32]| Inputs::of_pool(&device, &stream, (values, Type::F32, VOCAB), 4 * rows, rows).unwrap();
            let (inputs, distributions) = (of_pool(&pool.targets), of_pool(&pool.logprobs));
            let sources = Sources { inputs: &inputs, drafts: Some((&distributions, &pool)) };
            for mix in [Mix::OneHot, Mix::Rejection, Mix::RejectionTopKFirst] {
                let mut work = Work::new(&device, &stream, mix, rows, &sources).unwrap();
                let mut drawn = Vec::new();
                for input in 0..4 {
                    // SAFETY: work and inputs outlive the wait in `tokens`.
                    unsafe { work.enqueue(stream.raw(), input, &sources) }.unwrap();
                    drawn.push(work.tokens(&stream).unwrap());
                }
                assert!(drawn[0] != drawn[1], "{mix}");
                // Of a request without an accepted draft only the first row has a token.
                let tokens = drawn.iter().flatten().filter(|&&token| token >= 0).count();
                let requests = 4 * rows / (DRAFTS + 1);
                match fate {
                    Fate::Rejected => assert_eq!(tokens, requests, "{mix}"),
                    Fate::Accepted => assert!(tokens > 3 * requests && tokens < 6 * requests, "{mix}: {tokens}"),
                }
            }
        }
    }
}
