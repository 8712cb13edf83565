// A kernel whose warps have roles: the feeder starts the copies of rows, the front takes the maximum of a row as it
// arrives, the mass warps go over it a second time, the lead ends a row. What the other files call the team's threads are the
// lead's.

#define SD_ROLES

// 24 warps are the most that leave each of their threads 80 registers.
constexpr u32 FRONT_THREADS = 128, MASS_THREADS = 352, LEAD_THREADS = 256, FEED_THREADS = 32;
constexpr u32 FIRST_MASS = FRONT_THREADS, FIRST_LEAD = FIRST_MASS + MASS_THREADS, FIRST_FEED = FIRST_LEAD + LEAD_THREADS;
constexpr u32 ALL_ROLES = FIRST_FEED + FEED_THREADS;
static_assert(ALL_ROLES == 768, "as the kernels are launched");
// Numbers of their barriers.
constexpr u32 FRONT_BARRIER = 1, MASS_BARRIER = 2, LEAD_BARRIER = 3;

__device__ __forceinline__ u32 thread_id() { return threadIdx.x - FIRST_LEAD; }
__device__ __forceinline__ u32 thread_count() { return LEAD_THREADS; }
__device__ __forceinline__ void team_barrier() { named_barrier(LEAD_BARRIER, LEAD_THREADS); }
__device__ __forceinline__ bool team_any(bool x) { return named_any(LEAD_BARRIER, LEAD_THREADS, x); }
