//! What the device promises of its memory and its captures.

use super::*;
use crate::device::{DeviceBuffer, Stream};

#[test]
fn memory_that_nothing_wrote_to_reads_as_zeros() {
    let device = Arc::new(CpuDevice::with_threads(1));
    let stream = &Stream::new(&device).unwrap();
    // Enough of it that the allocator hands some out again.
    let used = || DeviceBuffer::from_slice(&device, stream, &[u64::MAX; 64]).unwrap();
    drop((0..256).map(|_| used()).collect::<Vec<_>>());
    let again: Vec<_> = (0..256).map(|_| DeviceBuffer::new(&device, 512).unwrap()).collect();
    for buffer in &again {
        let mut back = [1u64; 64];
        buffer.read(stream, &mut back).unwrap();
        assert_eq!(back, [0; 64]);
    }
}

#[test]
fn a_graph_launched_on_a_capturing_stream_becomes_part_of_the_capture() {
    let device = Arc::new(CpuDevice::with_threads(1));
    let (stream, memory) = (Stream::new(&device).unwrap(), DeviceBuffer::new(&device, 1).unwrap());
    let read = || {
        let mut byte = [0u8];
        memory.read(&Stream::new(&device).unwrap(), &mut byte).unwrap();
        byte[0]
    };
    // SAFETY: stream, graphs and memory are live and of this device.
    unsafe {
        device.begin_capture(stream.raw()).unwrap();
        device.fill(stream.raw(), memory.ptr(), 7, 1).unwrap();
        let inner = device.end_capture(stream.raw()).unwrap();
        device.begin_capture(stream.raw()).unwrap();
        device.launch_graph(stream.raw(), inner).unwrap();
        let outer = device.end_capture(stream.raw()).unwrap();
        assert_eq!(read(), 0, "capturing ran the graph");
        device.destroy_graph(inner).unwrap();
        device.launch_graph(stream.raw(), outer).unwrap();
        assert_eq!(read(), 7);
        device.destroy_graph(outer).unwrap();
    }
}
