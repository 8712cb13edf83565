//! What the model is for: small kernels that are right, and the same with one line changed, each of which it must refuse
//! for that reason. A kernel that is not refused here would not be refused there.

use crate::launch::{Driver, Shape, shape};
use crate::on_the_model;

/// Launches of a kernel; the model runs each by another schedule.
const LAUNCHES: usize = 12;

struct Kernel {
    source: &'static str,
    shape: Shape,
    input: usize,
    out: usize,
    expected: fn(&[u32]) -> Vec<u32>,
    /// What is replaced by what, and what the model must say: one of these, between bars, as the schedule has it.
    faults: &'static [(&'static str, &'static str, &'static str)],
}

impl Kernel {
    /// Every launch of the right kernel gives what is expected; a wrong one is refused, and never with another reason.
    fn is_told_from_its_faults(&self) {
        let driver = Driver::open();
        let input: Vec<u32> = (0..self.input as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
        let run = |source: &str| driver.run(source, self.shape, &input, self.out);
        for launch in 0..LAUNCHES {
            let got = run(self.source).unwrap_or_else(|why| panic!("launch {launch} of the right kernel: {why}"));
            assert_eq!(got, (self.expected)(&input), "launch {launch}");
        }
        let mut unlike = Vec::new();
        for (find, replace, says) in self.faults {
            assert_eq!(self.source.matches(find).count(), 1, "{find:?}");
            let wrong = self.source.replacen(find, replace, 1);
            let reports: Vec<String> = (0..LAUNCHES).filter_map(|_| run(&wrong).err()).collect();
            eprintln!("{find:?} -> {replace:?}: {} of {LAUNCHES} launches", reports.len());
            if reports.is_empty() {
                unlike.push(format!("{find:?} -> {replace:?} was not noticed in {LAUNCHES} launches"));
            }
            let other = reports.iter().find(|report| !says.split('|').any(|says| report.contains(says)));
            unlike.extend(other.map(|report| format!("{find:?} -> {replace:?}: {says:?} expected of\n{report}")));
        }
        assert!(unlike.is_empty(), "{}", unlike.join("\n\n"));
    }
}

/// A sum over a block: by shuffles in a warp, by shared memory between warps.
const SUM: Kernel = Kernel {
    source: r#"
extern "C" __global__ void __launch_bounds__(128) k(u64 in, u64 out) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ u32 sums[4];
    u32* copy = (u32*)memory;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    copy[threadIdx.x] = __ldg((const u32*)in + blockIdx.x * 128 + threadIdx.x);
    __syncwarp();
    u32 x = copy[threadIdx.x ^ 1];
    for (u32 d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    if (warp != 0) return;
    x = lane < 4 ? sums[lane] : 0;
    x = __reduce_add_sync(0xffffffffu, x);
    if (lane == 0) ((u32*)out)[blockIdx.x] = x;
}
"#,
    shape: Shape { shared: 512, allowed: 512, ..shape(5, 128, 1) },
    input: 640,
    out: 5,
    expected: |input| input.chunks(128).map(|block| block.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x))).collect(),
    faults: &[
        ("    __syncthreads();\n", "", "`sums`"),
        ("    __syncwarp();\n", "", "dynamic shared memory"),
        ("    if (warp != 0) return;", "    if (lane != 0) return;", "exits while|names lanes that have exited"),
        (
            "if (lane == 0) sums[warp] = x;\n    __syncthreads();",
            "if (lane == 0) sums[warp] = x, __syncthreads();",
            "deadlock|`sums`",
        ),
        ("    if (lane == 0) sums[warp] = x;", "    if (threadIdx.x == 0) sums[warp] = x;", "nobody has written"),
        ("sums[warp] = x;", "sums[warp + 1] = x;", "outside its shared variables"),
        (
            "__shfl_xor_sync(0xffffffffu, x, d)",
            "__shfl_xor_sync(lane < 16 ? 0xffffu : 0xffffffffu, x, d)",
            "with mask|mask 0000ffff does not name",
        ),
        (
            "x = __reduce_add_sync(0xffffffffu, x);",
            "if (lane < 4) x = __reduce_add_sync(0xffffffffu, x);",
            "deadlock|exits while|names lanes that have exited",
        ),
        (
            "__reduce_add_sync(0xffffffffu, x)",
            "lane < 4 ? __reduce_add_sync(0xffffffffu, x) : __reduce_max_sync(0xffffffffu, x)",
            "while lanes",
        ),
        ("((u32*)out)[blockIdx.x]", "((u32*)out)[blockIdx.x + 1]", "device memory"),
        ("copy[threadIdx.x] = __ldg", "copy[threadIdx.x + 128] = __ldg", "outside its shared variables"),
    ],
};

/// Two buffers that the copy engine fills and a block empties, each with a completion that says it is full and one that
/// says it is empty; the first warp starts the copies.
const BUFFERS: Kernel = Kernel {
    source: r#"
struct Shared {
    u32 buffers[2][64];
    u64 full[2], empty[2];
};
extern "C" __global__ void k(u64 in, u64 out) {
    __shared__ __align__(16) Shared sh;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < 2; i++) completion_init(&sh.full[i]), completion_init(&sh.empty[i], 64);
        completions_ready();
    }
    __syncthreads();
    u32 sum = 0;
    for (u32 step = 0; step < 8; step++) {
        u32 b = step % 2, round = step / 2;
        if (threadIdx.x == 0) {
            completion_wait(&sh.empty[b], (round & 1) ^ 1);
            bulk_copy(sh.buffers[b], in + step * 256, 256, &sh.full[b]);
        }
        if (threadIdx.x >= 32) {
            completion_wait(&sh.full[b], round & 1);
            sum += sh.buffers[b][(threadIdx.x - 32 + step) % 64];
            completion_arrive(&sh.empty[b]);
        }
    }
    if (threadIdx.x >= 32) ((u32*)out)[threadIdx.x - 32] = sum;
}
"#,
    shape: shape(1, 96, 1),
    input: 512,
    out: 64,
    expected: |input| {
        let of = |thread: usize| (0..8).map(move |step| step * 64 + (thread + step) % 64);
        (0..64).map(|thread| of(thread).fold(0, |sum: u32, i| sum.wrapping_add(input[i]))).collect()
    },
    faults: &[
        ("            completion_wait(&sh.full[b], round & 1);\n", "", "of the shared variable `sh`"),
        (
            "completion_wait(&sh.full[b], round & 1);",
            "completion_wait(&sh.full[b], 0);",
            "of the shared variable `sh`|arrivals at a completion|deadlock|has looked",
        ),
        (
            "completion_wait(&sh.full[b], round & 1);",
            "completion_wait(&sh.full[b], round & 1 ^ 1);",
            "of the shared variable `sh`|arrivals at a completion|deadlock|has looked",
        ),
        (
            "            completion_wait(&sh.empty[b], (round & 1) ^ 1);\n",
            "",
            "of the shared variable `sh`|arrivals at a completion",
        ),
        ("            completion_arrive(&sh.empty[b]);\n", "", "deadlock"),
        (
            "completion_init(&sh.empty[i], 64)",
            "completion_init(&sh.empty[i], 63)",
            "of the shared variable `sh`|arrivals at a completion",
        ),
        ("completion_init(&sh.full[i]), ", "", "no completion was set up"),
        ("in + step * 256, 256,", "in + step * 256 + 8, 256,", "multiples of 16"),
        ("in + step * 256, 256,", "in + step * 256 + 16, 256,", "the device memory before it has 2048 bytes"),
        ("sh.buffers[b], in", "sh.buffers[b] + 4, in", "of the shared variable `sh`|was written over"),
        ("    __syncthreads();\n", "", "no completion was set up|of the shared variable `sh`"),
        ("        completions_ready();\n", "", "was not made known"),
    ],
};

/// Each block of a cluster tells every other its sum and adds up what it is told; the first also reads one from a peer.
const CLUSTER: Kernel = Kernel {
    source: r#"
struct Shared {
    u64 told[8], total, arrived;
    u32 places;
};
extern "C" __global__ void k(u64 in, u64 out) {
    __shared__ Shared sh;
    u32 rank = cluster_rank(), size = cluster_size();
    if (threadIdx.x == 0) {
        completion_init(&sh.arrived);
        completions_ready();
        completion_expect(&sh.arrived, size * 16);
        sh.total = sh.places = 0;
    }
    __syncthreads();
    cluster_barrier();
    u32 own = __reduce_add_sync(0xffffffffu, ((const u32*)in)[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x < size) {
        push(threadIdx.x, &sh.told[rank], own, &sh.arrived);
        push_add(threadIdx.x, &sh.total, own, &sh.arrived);
    }
    completion_wait(&sh.arrived);
    u64 sum = 0;
    for (u32 i = 0; i < size; i++) sum += sh.told[i];
    u64 same = sh.total;
    if (threadIdx.x == 0) reserve(0, &sh.places, 1);
    cluster_barrier();
    if (threadIdx.x == 0) same += peer_load(size - 1 - rank, &sh.total) + peer_load(0, &sh.places);
    cluster_barrier();
    if (threadIdx.x == 0) ((u32*)out)[blockIdx.x] = (u32)(sum + same);
}
"#,
    shape: shape(16, 32, 8),
    input: 512,
    out: 16,
    expected: |input| {
        let sum = |of: &[u32]| of.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
        // Sums of a warp have 32 bits, those of the cluster 64; the result again 32.
        let of_cluster = |c: usize| input[c * 256..][..256].chunks(32).map(sum).fold(0, |a: u32, b| a.wrapping_add(b));
        (0..16).map(|block| of_cluster(block / 8).wrapping_mul(3).wrapping_add(8)).collect()
    },
    faults: &[
        ("    completion_wait(&sh.arrived);\n", "", "of the shared variable `sh`"),
        ("size * 16", "size * 8", "of the shared variable `sh`"),
        ("size * 16", "size * 24", "deadlock"),
        (
            "    __syncthreads();\n    cluster_barrier();\n",
            "    __syncthreads();\n",
            "no completion was set up|of the shared variable `sh`",
        ),
        (
            "    cluster_barrier();\n    if (threadIdx.x == 0) ((u32*)out)",
            "    if (threadIdx.x == 0) ((u32*)out)",
            "which has ended",
        ),
        (
            "reserve(0, &sh.places, 1);\n    cluster_barrier();",
            "reserve(0, &sh.places, 1);",
            "of the shared variable `sh`",
        ),
        ("        sh.total = sh.places = 0;\n", "        sh.places = 0;\n", "nobody has written"),
        (
            "    completion_wait(&sh.arrived);",
            "    completion_wait(&sh.arrived);\n    completion_wait(&sh.arrived, 1);",
            "deadlock",
        ),
        (
            "    if (threadIdx.x == 0) reserve(0",
            "    if (threadIdx.x == 0) cluster_started(), reserve(0",
            "deadlock|while lanes",
        ),
        ("push(threadIdx.x, &sh.told", "push(threadIdx.x + 1, &sh.told", "block 8 of a cluster of 8"),
        ("threadIdx.x < size", "threadIdx.x < size && rank != 3", "deadlock"),
    ],
};

/// The block that is the last to finish adds up what all of them left in device memory.
const LAST: Kernel = Kernel {
    source: r#"
extern "C" __global__ void k(u64 in, u64 out) {
    __shared__ u32 is_last;
    u32* parts = (u32*)out + 2;
    u32* finished = (u32*)out + 1;
    u32 sum = __reduce_add_sync(0xffffffffu, ((const u32*)in)[blockIdx.x * 64 + threadIdx.x]);
    if (threadIdx.x % 32 == 0) parts[blockIdx.x * 2 + threadIdx.x / 32] = sum;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(finished, 1) + 1 == gridDim.x;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x >= 32) return;
    sum = 0;
    for (u32 i = threadIdx.x; i < gridDim.x * 2; i += 32) sum += __ldcg(parts + i);
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (threadIdx.x == 0) ((u32*)out)[0] = sum, *finished = 0;
}
"#,
    shape: shape(9, 64, 1),
    input: 576,
    out: 20,
    expected: |input| {
        let parts: Vec<u32> = input.chunks(32).map(|x| x.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x))).collect();
        let sum = parts.iter().fold(0, |sum: u32, x| sum.wrapping_add(*x));
        [sum, 0].into_iter().chain(parts).collect()
    },
    faults: &[
        ("    __threadfence();\n    __syncthreads();\n", "    __threadfence();\n", "device memory"),
        ("    if (!is_last) return;\n    __threadfence();\n", "    if (!is_last) return;\n", "device memory"),
        ("is_last = atomicAdd(finished, 1) + 1", "is_last = ++*finished", "device memory"),
        ("    __syncthreads();\n    if (!is_last)", "    if (!is_last)", "`is_last`"),
        ("i < gridDim.x * 2", "i <= gridDim.x * 2", "neither its block's shared memory nor device memory"),
    ],
};

/// Two warps write a part and send it to the block's peer; the two others wait for the peer's. A launch that overlaps.
const ROLES: Kernel = Kernel {
    source: r#"
struct Shared {
    u32 parts[2][64];
    u64 arrived;
};
extern "C" __global__ void k(u64 in, u64 out) {
    __shared__ __align__(16) Shared sh;
    u32 rank = cluster_rank(), other = rank ^ 1, t = threadIdx.x % 64;
    if (threadIdx.x == 0) {
        completion_init(&sh.arrived);
        completions_ready();
    }
    __syncthreads();
    cluster_barrier();
    wait_for_inputs();
    if (threadIdx.x < 64) {
        sh.parts[rank][63 - t] = ((const u32*)in)[blockIdx.x * 64 + t];
        yield_to_copies();
        named_barrier(1, 64);
        if (t == 0) {
            completion_expect_at(other, &sh.arrived, 256);
            push_copy(other, sh.parts[rank], 256, &sh.arrived);
        }
    } else {
        completion_wait(&sh.arrived);
        u32 x = sh.parts[other][t];
        bool any = named_any(2, 64, x % 64 == 1);
        ((u32*)out)[blockIdx.x * 64 + t] = x + (any ? 1 : 0);
    }
    cluster_barrier();
}
"#,
    shape: Shape { overlaps: true, ..shape(6, 128, 2) },
    input: 384,
    out: 384,
    expected: |input| {
        let block = |b: usize| input[(b ^ 1) * 64..][..64].iter().rev();
        let any = |b: usize| u32::from(block(b).any(|x| x % 64 == 1));
        (0..6).flat_map(|b| block(b).map(move |x| x.wrapping_add(any(b)))).collect()
    },
    faults: &[
        ("        named_barrier(1, 64);\n", "", "of the shared variable `sh`"),
        ("named_barrier(1, 64)", "named_barrier(1, 96)", "deadlock"),
        ("named_any(2, 64", "named_any(1, 64", "barrier 1|of the shared variable `sh`|deadlock"),
        ("sh.parts[rank][63 - t] = ", "if (t < 32) sh.parts[rank][63 - t] = ", "nobody has written"),
        ("        completion_wait(&sh.arrived);\n", "", "of the shared variable `sh`"),
        (
            "&sh.arrived, 256);\n            push_copy",
            "&sh.arrived, 128);\n            push_copy",
            "deadlock|of the shared variable `sh`",
        ),
        ("    }\n    cluster_barrier();\n}", "    }\n}", "has ended|under way"),
        ("    wait_for_inputs();\n", "", "before it has waited"),
        ("sh.parts[rank], 256", "sh.parts[rank] + 1, 256", "multiples of 16"),
        ("    if (threadIdx.x < 64) {", "    if (threadIdx.x < 65) {", "barrier|deadlock|of the shared variable `sh`"),
    ],
};

fn told_apart(name: &str, kernel: &Kernel) {
    on_the_model(name, &[], || kernel.is_told_from_its_faults());
}

#[test]
fn a_sum_is_told_from_its_faults() {
    told_apart("wrong::a_sum_is_told_from_its_faults", &SUM);
}

#[test]
fn buffers_are_told_from_their_faults() {
    told_apart("wrong::buffers_are_told_from_their_faults", &BUFFERS);
}

#[test]
fn a_cluster_is_told_from_its_faults() {
    told_apart("wrong::a_cluster_is_told_from_its_faults", &CLUSTER);
}

#[test]
fn a_last_block_is_told_from_its_faults() {
    told_apart("wrong::a_last_block_is_told_from_its_faults", &LAST);
}

#[test]
fn roles_are_told_from_their_faults() {
    told_apart("wrong::roles_are_told_from_their_faults", &ROLES);
}

/// What a driver refuses before anything runs.
#[test]
fn launches_that_no_card_takes_are_refused() {
    on_the_model("wrong::launches_that_no_card_takes_are_refused", &[], || {
        let driver = Driver::open();
        let source = "extern \"C\" __global__ void __launch_bounds__(64) k(u64 in, u64 out) {}\n";
        driver.run(source, shape(2, 64, 2), &[0; 4], 4).expect("a launch");
        for (shape, says) in [
            (shape(2, 96, 1), "launch bound is 64"),
            (shape(3, 64, 2), "clusters of 2 in a grid of 3"),
            (shape(32, 64, 32), "clusters of 32"),
            (Shape { shared: 1024, allowed: 1023, ..shape(1, 64, 1) }, "the function allows 1023"),
        ] {
            let why = driver.run(source, shape, &[0; 4], 4).expect_err("a refusal");
            assert!(why.contains(says), "{says:?} expected of {why}");
        }
    });
}
