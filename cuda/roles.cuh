// A kernel whose warps have roles: the feeder starts the copies of rows, the mass warps take the maximum of a row that has arrived
// and go over it a second time as the teller tells them, the sender sends what they found, the lead ends a row. What the other
// files call the team's threads are the lead's.

#define SD_ROLES

// 28 warps are the most that leave each of their threads 72 registers. The schedulers, to which they go in turns, have four mass warps
// each: where one has more, the others wait for it.
constexpr u32 FEED_THREADS = 32, TELL_THREADS = 32, SEND_THREADS = 32, MASS_THREADS = 512, LEAD_THREADS = 256;
constexpr u32 FIRST_TELL = FEED_THREADS, FIRST_SEND = FIRST_TELL + TELL_THREADS, FIRST_MASS = FIRST_SEND + SEND_THREADS,
              FIRST_LEAD = FIRST_MASS + MASS_THREADS, ALL_ROLES = FIRST_LEAD + LEAD_THREADS;
static_assert(ALL_ROLES == 864, "as the kernels are launched");
// Number of their barrier.
constexpr u32 LEAD_BARRIER = 1;

__device__ __forceinline__ u32 thread_id() { return threadIdx.x - FIRST_LEAD; }
__device__ __forceinline__ u32 thread_count() { return LEAD_THREADS; }
__device__ __forceinline__ void team_barrier() { named_barrier(LEAD_BARRIER, LEAD_THREADS); }
__device__ __forceinline__ bool team_any(bool x) { return named_any(LEAD_BARRIER, LEAD_THREADS, x); }
