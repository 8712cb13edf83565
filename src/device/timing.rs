//! Times on the device, for measurements.

use super::{Device, RawEvent, RawGraph, RawStream, Stream};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Work captured once and replayed between two events: its time without the host's share.
///
/// A graph of one small step would mostly measure its own launch, and a step repeated over the same input would find it in
/// the cache. So a graph holds many steps, each with an input of its own, and a time is that of a step: the mean over the
/// graph.
#[derive(Debug)]
pub struct TimedGraph<D: Device + ?Sized> {
    device: Arc<D>,
    stream: Arc<Stream<D>>,
    graph: RawGraph,
    start: RawEvent,
    end: RawEvent,
    steps: usize,
}

impl<D: Device + ?Sized> TimedGraph<D> {
    /// Captures what `enqueue` enqueues for 0, 1, ... up to `steps`.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0 steps; what `enqueue` and the device report.
    ///
    /// # Safety
    /// What `enqueue` enqueues stays valid as long as this value lives.
    pub unsafe fn capture(
        device: &Arc<D>,
        stream: &Arc<Stream<D>>,
        steps: usize,
        mut enqueue: impl FnMut(RawStream, usize) -> Result<()>,
    ) -> Result<Self> {
        if steps == 0 {
            return Err(Error::argument("timed graph", "steps", steps, "at least 1"));
        }
        let raw = stream.raw();
        // SAFETY: the stream is alive and not the default one; the capture ends on this thread whatever happens within.
        let graph = unsafe {
            device.begin_capture(raw)?;
            let enqueued = (0..steps).try_for_each(|step| enqueue(raw, step));
            let graph = device.end_capture(raw);
            if let (Err(error), Ok(graph)) = (&enqueued, &graph) {
                device.destroy_graph(*graph)?;
                return Err(error.clone());
            }
            enqueued.and(graph)?
        };
        let events = device.create_event(true).and_then(|start| Ok((start, device.create_event(true)?)));
        let (start, end) = match events {
            Ok(events) => events,
            Err(error) => {
                // SAFETY: created above, never replayed.
                unsafe { device.destroy_graph(graph)? };
                return Err(error);
            }
        };
        Ok(TimedGraph { device: Arc::clone(device), stream: Arc::clone(stream), graph, start, end, steps })
    }

    /// Steps of the graph.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Replays the graph `replays` times without a pause and returns the microseconds of a step.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0 replays; what the device reports.
    pub fn step_us(&mut self, replays: usize) -> Result<f64> {
        if replays == 0 {
            return Err(Error::argument("timed graph", "replays", replays, "at least 1"));
        }
        let (device, raw) = (&self.device, self.stream.raw());
        // SAFETY: stream, events and graph are alive; what the graph uses is the promise of `capture`.
        let ms = unsafe {
            device.record_event(raw, self.start)?;
            for _ in 0..replays {
                device.launch_graph(raw, self.graph)?;
            }
            device.record_event(raw, self.end)?;
            device.elapsed_ms(self.start, self.end)?
        };
        Ok(f64::from(ms) * 1e3 / (replays * self.steps) as f64)
    }
}

impl<D: Device + ?Sized> Drop for TimedGraph<D> {
    fn drop(&mut self) {
        // SAFETY: created by `capture`. A replay that failed between the events may still be in flight; a failure here
        // has no caller to go to.
        unsafe {
            let _ = self.device.synchronize(self.stream.raw());
            let _ = self.device.destroy_event(self.start);
            let _ = self.device.destroy_event(self.end);
            let _ = self.device.destroy_graph(self.graph);
        }
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use super::*;
    use crate::device::{CpuDevice, DeviceBuffer};

    #[test]
    fn every_step_is_captured_once_and_run_at_every_replay() {
        let device = Arc::new(CpuDevice::with_threads(1));
        let stream = Arc::new(Stream::new(&device).unwrap());
        let counts = DeviceBuffer::from_slice(&device, &stream, &[0u8; 4]).unwrap();
        let mut asked = Vec::new();
        // SAFETY: the buffer outlives the graph; each step fills one byte of it.
        let mut graph = unsafe {
            TimedGraph::capture(&device, &stream, 4, |on, n| {
                asked.push(n);
                device.fill(on, counts.ptr().offset(n), 7 + n as u8, 1)
            })
        }
        .unwrap();
        assert_eq!((asked, graph.steps()), (vec![0, 1, 2, 3], 4));
        let read = || {
            let mut bytes = [0u8; 4];
            counts.read(&stream, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(read(), [0; 4], "capturing runs nothing");
        assert!(graph.step_us(3).unwrap() >= 0.0);
        assert_eq!(read(), [7, 8, 9, 10]);
        assert!(matches!(graph.step_us(0), Err(Error::Argument { .. })));
        // SAFETY: nothing is enqueued.
        let failing = unsafe {
            TimedGraph::capture(&device, &stream, 2, |_, n| {
                if n == 0 { Ok(()) } else { Err(Error::Unsupported { op: "test", what: "the second step".into() }) }
            })
        };
        assert!(matches!(failing, Err(Error::Unsupported { .. })));
        // SAFETY: as above.
        assert!(unsafe { TimedGraph::capture(&device, &stream, 1, |_, _| Ok(())) }.is_ok(), "the stream is usable");
    }
}
