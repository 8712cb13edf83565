//! The kernels of a card, ready to launch: embedded, from the cache, or compiled now.

use super::context::Context;
use super::kernels::{self, Card, Entry, Launch, UNITS, Unit};
use super::launch::cluster_attribute;
use super::nvrtc::{self, Nvrtc};
use super::{driver, precompiled, resident, unavailable};
use crate::device::cache::Cache;
use crate::error::{Error, Result};
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute};
use std::ffi::CStr;
use std::ptr::null_mut;

const OP: &str = "prepare";

#[derive(Debug)]
struct Function {
    unit: usize,
    entry: &'static CStr,
    raw: sys::CUfunction,
}

/// Every module of a card.
#[derive(Debug)]
pub(super) struct Modules {
    modules: Vec<sys::CUmodule>,
    functions: Vec<Function>,
    origins: Vec<String>,
    card: Card,
}

// SAFETY: module and function handles may be used from any thread in whose context they were loaded.
unsafe impl Send for Modules {}
// SAFETY: as above; nothing changes after loading.
unsafe impl Sync for Modules {}

impl Modules {
    /// Loads every kernel `card` can launch. The context is current.
    pub fn load(card: Card, driver_version: i32) -> Result<Self> {
        let mut loaded = Modules { modules: Vec::new(), functions: Vec::new(), origins: Vec::new(), card };
        match loaded.fill(&card, driver_version).and_then(|()| loaded.fit_clusters(&card)) {
            Ok(()) => Ok(loaded),
            Err(error) => {
                loaded.unload();
                Err(error)
            }
        }
    }

    fn fill(&mut self, card: &Card, driver_version: i32) -> Result<()> {
        let compiler = Compiler::new(card, driver_version)?;
        for (unit, image) in UNITS.iter().zip(of_each_unit(|unit| compiler.image(unit))) {
            let (image, origin) = image?;
            let mut module = null_mut();
            // SAFETY: the image is a whole CUBIN and outlives the call; the context is current.
            unsafe { driver::cuModuleLoadData(OP, &mut module, image.as_ptr().cast()) }.map_err(|error| {
                let (major, minor) = card.compute;
                let driver = driver::version_text(driver_version);
                let reason = format!("kernels {:?} ({origin}) do not load on sm_{major}{minor}", unit.name);
                unavailable(format!("{reason} with a driver of CUDA {driver}: {error}"), Vec::new())
            })?;
            self.modules.push(module);
            self.origins.push(format!("{}: {origin}", unit.name));
        }
        for entry in kernels::entries(card) {
            let module = self.modules[entry.unit];
            let mut raw = null_mut();
            // SAFETY: the module is loaded; the name is a C string; attributes are those of a function that exists.
            unsafe {
                driver::cuModuleGetFunction(OP, &mut raw, module, entry.entry.as_ptr())?;
                // A driver that loads functions lazily loads this one now, and not within a capture.
                driver::cuFuncGetAttribute(OP, &mut 0, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, raw)?;
                if entry.smem > 0 {
                    let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                    driver::cuFuncSetAttribute(OP, raw, which, entry.smem as i32)?;
                }
                if card.clusters {
                    let which = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
                    driver::cuFuncSetAttribute(OP, raw, which, 1)?;
                }
                self.functions.push(Function { unit: entry.unit, entry: entry.entry, raw });
            }
        }
        Ok(())
    }

    /// Asks for the largest cluster the card can run at all, with the most shared memory each kernel takes: a partition
    /// of a card (MIG, a context with fewer multiprocessors) may have no group of multiprocessors that holds 16 blocks,
    /// and a launch of such a cluster would fail.
    fn fit_clusters(&mut self, card: &Card) -> Result<()> {
        if !card.clusters {
            return Ok(());
        }
        let mut largest = card.largest_cluster;
        let entries = kernels::entries(card);
        for entry in entries.iter().filter(|entry| entry.cluster_block > 0) {
            let function = self.find(entry.unit, entry.entry)?;
            while largest > 1 && active_clusters(function, entry, largest)? == 0 {
                largest /= 2;
            }
        }
        for (size, blocks) in [2, 4, 8, 16].into_iter().enumerate() {
            let fewest = |kernels: &[kernels::Kernel]| {
                let mut fewest = u32::MAX;
                for &(unit, name) in kernels {
                    let entry = entries.iter().find(|entry| entry.unit == unit && entry.entry == name);
                    if let (Some(entry), true) = (entry, blocks <= largest) {
                        fewest = fewest.min(active_clusters(self.find(unit, name)?, entry, blocks)?);
                    }
                }
                Ok(if fewest == u32::MAX { 0 } else { fewest })
            };
            let stay = [resident::DRAW, resident::JUDGE].concat();
            (self.card.resident[size], self.card.settling[size]) = (fewest(&stay)?, fewest(&kernels::SETTLE)?);
        }
        self.card.largest_cluster = largest;
        self.card.clusters = largest > 1;
        Ok(())
    }

    /// The card, with the clusters it can run.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The function of a launch.
    pub fn function(&self, launch: &Launch) -> Result<sys::CUfunction> {
        self.find(launch.unit, launch.entry)
    }

    fn find(&self, unit: usize, entry: &'static CStr) -> Result<sys::CUfunction> {
        let same = |f: &&Function| f.unit == unit && f.entry == entry;
        self.functions.iter().find(same).map(|f| f.raw).ok_or_else(|| Error::Unsupported {
            op: "enqueue",
            what: format!("kernel {entry:?}, which was not loaded,"),
        })
    }

    /// Where the code of each unit came from.
    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    fn unload(&mut self) {
        for module in self.modules.drain(..) {
            // SAFETY: loaded by `fill`, no launch of it is in flight; the context is current.
            let _ = unsafe { driver::cuModuleUnload("close", module) };
        }
    }

    /// Unloads everything.
    pub fn close(mut self, context: &Context) {
        if let Ok(_current) = context.enter("close") {
            self.unload();
        }
    }
}

/// How many clusters of `blocks` of a kernel at its largest the card has room for at a time.
fn active_clusters(function: sys::CUfunction, entry: &Entry, blocks: u32) -> Result<u32> {
    let mut attribute = cluster_attribute(blocks);
    let config = sys::CUlaunchConfig {
        gridDimX: blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: entry.cluster_block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: entry.smem,
        hStream: null_mut(),
        attrs: &mut attribute,
        numAttrs: 1,
    };
    let mut clusters = 0;
    // SAFETY: the context is current and the function of it; the configuration and its attribute outlive the call.
    unsafe { driver::cuOccupancyMaxActiveClusters(OP, &mut clusters, function, &config)? };
    Ok(clusters.max(0) as u32)
}

/// Gets the machine code of a unit.
pub(super) struct Compiler<'a> {
    card: &'a Card,
    /// Absent where everything is embedded.
    nvrtc: Option<Nvrtc>,
    cache: Option<Cache>,
}

impl<'a> Compiler<'a> {
    pub fn new(card: &'a Card, driver_version: i32) -> Result<Self> {
        let embedded = UNITS.iter().all(|unit| precompiled::find(unit.name, card.compute).is_some());
        let nvrtc = if embedded { None } else { Some(Nvrtc::find(driver_version)?) };
        Ok(Compiler { card, nvrtc, cache: Cache::of_user("cubin") })
    }

    pub fn image(&self, unit: &Unit) -> Result<(Vec<u8>, String)> {
        let embedded = precompiled::find(unit.name, self.card.compute);
        let nvrtc = match (embedded, &self.nvrtc) {
            (None, Some(nvrtc)) => nvrtc,
            (Some((arch, cubin)), _) => return Ok((cubin.to_vec(), format!("embedded for sm_{arch}"))),
            (None, None) => return Err(unavailable(format!("no code for kernels {:?}", unit.name), Vec::new())),
        };
        let (flags, source) = (nvrtc::flags(self.card.compute), source(unit));
        let by = format!("NVRTC {} at {}", nvrtc.version_text(), nvrtc.path());
        let key = format!("{}\n{}\n{}\n{source}", nvrtc.version_text(), flags.join(" "), unit.name);
        if let Some(cubin) = self.cache.as_ref().and_then(|cache| cache.load(key.as_bytes())) {
            return Ok((cubin, format!("cached, by {by}")));
        }
        let cubin = nvrtc.compile(unit.name, &source, &flags)?.cubin;
        let kept = match self.cache.as_ref().map(|cache| cache.store(key.as_bytes(), &cubin)) {
            Some(Ok(path)) => format!("kept at {}", path.display()),
            // A cache that cannot be written costs the next process the compilation and nothing else.
            Some(Err(error)) => format!("not kept: {error}"),
            None => "not kept: no cache folder".into(),
        };
        Ok((cubin, format!("compiled by {by}, {kept}")))
    }
}

/// Runs `work` for every unit, each on a thread of its own: compiling takes seconds of each.
pub(super) fn of_each_unit<T: Send>(work: impl Fn(&'static Unit) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let started: Vec<_> = UNITS.iter().map(|unit| scope.spawn(|| work(unit))).collect();
        let finish = |thread: std::thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        started.into_iter().map(finish).collect()
    })
}

/// The text of a unit.
pub(super) fn source(unit: &Unit) -> String {
    unit.sources.iter().flat_map(|part| [*part, "\n"]).collect()
}
