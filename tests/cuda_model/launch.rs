//! Kernels of a test's own on the model, by the driver's calls alone: what a GPU's driver is asked is asked here too.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

/// What a launch looks like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub blocks: u32,
    pub threads: u32,
    pub cluster: u32,
    /// Dynamic shared memory, and how much the function is told to allow.
    pub shared: u32,
    pub allowed: u32,
    /// Whether the launch may begin before the one ahead of it has ended.
    pub overlaps: bool,
}

/// A shape without dynamic shared memory.
pub const fn shape(blocks: u32, threads: u32, cluster: u32) -> Shape {
    Shape { blocks, threads, cluster, shared: 0, allowed: 48 << 10, overlaps: false }
}

#[repr(C)]
struct Attribute {
    id: c_int,
    pad: c_int,
    value: [u32; 16],
}

#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
    attributes: *mut Attribute,
    count: c_uint,
}

const CLUSTER_DIMENSION: c_int = 4;
const PROGRAMMATIC_SERIALIZATION: c_int = 6;
const MAX_DYNAMIC_SHARED: c_int = 8;
const NON_PORTABLE_CLUSTERS: c_int = 14;

/// The model's driver, with its context current on this thread.
pub struct Driver(Library);

macro_rules! call {
    ($driver:expr, $name:literal, ($($ty:ty),*), $($arg:expr),*) => {{
        // SAFETY: the model's driver exports the symbol with this signature, as the real one does; pointers are to
        // variables that outlive the call.
        let code = unsafe { $driver.0.get::<unsafe extern "C" fn($($ty),*) -> c_int>($name).expect("a symbol")($($arg),*) };
        $driver.check(code)
    }};
}

impl Driver {
    pub fn open() -> Driver {
        let path = std::env::var_os("SAMEDRAW_CUDA_DRIVER").expect("the model's driver");
        // SAFETY: the model's initialisers touch nothing of this process.
        let driver = Driver(unsafe { Library::new(path) }.expect("the model"));
        let mut context = null_mut();
        call!(driver, c"cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), &mut context, 0).expect("a context");
        call!(driver, c"cuCtxPushCurrent_v2", (*mut c_void), context).expect("a context");
        driver
    }

    fn check(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut text: *const c_char = null();
        // SAFETY: as in `call!`; the driver writes a pointer to a string of its own.
        unsafe {
            let ask = self.0.get::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>(c"cuGetErrorString");
            ask.expect("a symbol")(code, &mut text);
            Err(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// Runs the kernel `k(u64 in, u64 out)` of `source` and returns what it left in `out`; or what the model says.
    pub fn run(&self, source: &str, shape: Shape, input: &[u32], out: usize) -> Result<Vec<u32>, String> {
        let image =
            format!("90\n{}\n{}\n{source}", include_str!("../../cuda/abi.cuh"), include_str!("../../cuda/machine.cuh"));
        let image = CString::new(image).expect("no zero byte");
        let (mut module, mut function) = (null_mut(), null_mut());
        call!(self, c"cuModuleLoadData", (*mut *mut c_void, *const c_char), &mut module, image.as_ptr())?;
        call!(
            self,
            c"cuModuleGetFunction",
            (*mut *mut c_void, *mut c_void, *const c_char),
            &mut function,
            module,
            c"k".as_ptr()
        )?;
        for (which, value) in [(MAX_DYNAMIC_SHARED, shape.allowed as c_int), (NON_PORTABLE_CLUSTERS, 1)] {
            call!(self, c"cuFuncSetAttribute", (*mut c_void, c_int, c_int), function, which, value)?;
        }
        let (mut from, mut to) = (0u64, 0u64);
        let bytes = size_of_val(input);
        call!(self, c"cuMemAlloc_v2", (*mut u64, usize), &mut from, bytes.max(16))?;
        call!(self, c"cuMemAlloc_v2", (*mut u64, usize), &mut to, out * 4)?;
        call!(
            self,
            c"cuMemcpyHtoDAsync_v2",
            (u64, *const u32, usize, *mut c_void),
            from,
            input.as_ptr(),
            bytes,
            null_mut()
        )?;
        call!(self, c"cuMemsetD8Async", (u64, u8, usize, *mut c_void), to, 0, out * 4, null_mut())?;
        let mut attributes =
            [CLUSTER_DIMENSION, PROGRAMMATIC_SERIALIZATION].map(|id| Attribute { id, pad: 0, value: [0; 16] });
        attributes[0].value[..3].copy_from_slice(&[shape.cluster, 1, 1]);
        attributes[1].value[0] = shape.overlaps.into();
        let config = Config {
            grid: [shape.blocks, 1, 1],
            block: [shape.threads, 1, 1],
            shared: shape.shared,
            stream: null_mut(),
            attributes: attributes.as_mut_ptr(),
            count: 2,
        };
        let mut params: [*mut c_void; 2] = [(&raw mut from).cast(), (&raw mut to).cast()];
        let launched = call!(
            self,
            c"cuLaunchKernelEx",
            (*const Config, *mut c_void, *mut *mut c_void, *mut *mut c_void),
            &config,
            function,
            params.as_mut_ptr(),
            null_mut()
        );
        let mut result = vec![0; out];
        let read = launched.and_then(|()| {
            call!(
                self,
                c"cuMemcpyDtoHAsync_v2",
                (*mut u32, u64, usize, *mut c_void),
                result.as_mut_ptr(),
                to,
                out * 4,
                null_mut()
            )
        });
        // What was written past the end of either is found here.
        let freed = [from, to].map(|ptr| call!(self, c"cuMemFree_v2", (u64), ptr));
        call!(self, c"cuModuleUnload", (*mut c_void), module)?;
        read?;
        freed.into_iter().collect::<Result<(), String>>()?;
        Ok(result)
    }
}
