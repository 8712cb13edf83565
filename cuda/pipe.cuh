// Rows through a cluster, one behind the other: block r holds the r-th part of a row in one of a few slots of shared
// memory; while one row is summed up, the next has its maximum taken and the one after that arrives. Each row has a lead,
// the blocks taking turns: the others send it what they found and go on, so that nobody waits for the end of a row. What
// has a slot, an entry or a mail for every few rows is written again only when all who read it are done:
// * a slot when the mass warps of its block have left it (`left`);
// * an entry of maxima, twice as many as slots: a block sends the maximum of row j + 2 * slots once it has summed up row
//   j + slots, which no block can before all have summed up row j;
// * the octaves of a row, four of them: a block adds to those of row j + 4 once it has listed row j + 2, which no block can
//   before all have summed up row j + 2, and with it listed row j;
// * a mail when its lead has said so (`credit`).

#if __CUDA_ARCH__ >= 900

constexpr u32 MAX_SLOTS = 6;
constexpr u32 MAX_BLOCKS = 16;
// Most tokens a mass warp lists: no more than the lead has threads.
constexpr u32 LIST = 192;
static_assert(LIST <= LEAD_THREADS, "a thread of the lead each");
// What other stages count in comes first in the scratch memory.
constexpr u32 SCRATCH_HEAD = 256;
constexpr u32 MASS_WARPS = MASS_THREADS / 32, FRONT_WARPS = FRONT_THREADS / 32;
// Mails a lead has open, and candidates in one: a share a block, and never more than a block keeps.
constexpr u32 MAILS = 2;
constexpr u32 MAIL_CANDIDATES = 512, BLOCK_CANDIDATES = 64;
static_assert(MASS_THREADS == LEAD_THREADS, "parts of a row are cut for both");

// How a row is ended.
enum Road : u32 {
    // By the passes of row.cuh, from global memory, or not at all.
    ROAD_ANY,
    // No filter but min-p: masses, and the part of the row the draw falls into.
    ROAD_DRAW,
    // A small top-k: the few candidates, and for a top-p over the whole row its mass.
    ROAD_LIST,
    // Top-p alone: the masses by octaves say above which value more than top-p lies; what is above it is listed.
    ROAD_CUT,
};

// A row as its block's warps need it.
struct Line {
    u64 values, mask;
    float scale, lowest;
    u64 top_p;
    u32 live, masses, need;
    Road road;
};

// Octaves of masses that are told apart, from 2^0 of the largest down.
constexpr u32 OCTAVES = 32;
// Words an octave's sum is spread over, so that neighbouring lanes seldom meet.
constexpr u32 SPREAD = 8;
// Tokens a lane of the mass warps can list.
constexpr u32 LANE_LIST = 20;
// Rows whose octaves are added up at a time.
constexpr u32 WEIGHINGS = 4;

// What a block says of a row in one word: the maximum, whether there was a NaN, the road, the number of its candidates.
struct Fact {
    u64 word;

    static __device__ __forceinline__ Fact of(float max, u32 nan, Road road, u32 count) {
        return Fact{(u64)__float_as_uint(max) << 32 | nan << 31 | road << 29 | count};
    }
    __device__ __forceinline__ float max() const { return __uint_as_float((u32)(word >> 32)); }
    __device__ __forceinline__ bool nan() const { return ((u32)word >> 31) != 0; }
    __device__ __forceinline__ Road road() const { return (Road)((u32)word >> 29 & 3); }
    __device__ __forceinline__ u32 count() const { return (u32)word & 0x1fffffffu; }
};

// What the blocks send to the lead of a row.
struct Mail {
    // Of every mass warp of the cluster: its mass, or how many tokens it has listed.
    u64 sums[MAX_BLOCKS * MASS_WARPS];
    // Where tokens are listed: mass of the row; a key that none of them is below.
    u64 whole, lowest;
    // Of every block: see Fact.
    u64 facts[MAX_BLOCKS];
    u64 candidates[MAIL_CANDIDATES];
};

struct Pipe {
    u64 arrivals[MAX_SLOTS][CHUNKS], ready[MAX_SLOTS], seen[MAX_SLOTS], left[MAX_SLOTS];
    u64 maxima[2 * MAX_SLOTS], weighed[WEIGHINGS], mailed[MAILS], listed[MAILS], credit[MAX_BLOCKS][MAILS];
    Line lines[MAX_SLOTS];
    // Largest key, bound and NaN flag of every block.
    u64 tops[2 * MAX_SLOTS][MAX_BLOCKS];
    u32 offers[2][64], nan[2][FRONT_WARPS];
    // Candidates of this block, for every other row.
    u64 found[2][BLOCK_CANDIDATES];
    u32 found_count[2];
    // Mass of every block by octaves and in all; and this block's while it is added up, in units of 2^-12 of the octave.
    u64 octaves[WEIGHINGS][OCTAVES], masses[WEIGHINGS][MAX_BLOCKS];
    __align__(16) u32 own_octaves[2][(OCTAVES + 1) * SPREAD];
    u64 own_masses[2][MASS_WARPS];
    Mail mails[MAILS];
    u16 places[MASS_WARPS][LANE_LIST * 32];
};

__device__ __forceinline__ void start_pipe(Pipe& pipe) {
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < MAX_SLOTS; s++) {
            for (u32 c = 0; c < CHUNKS; c++) completion_init(&pipe.arrivals[s][c]);
            completion_init(&pipe.ready[s]);
            completion_init(&pipe.seen[s], FRONT_WARPS);
            completion_init(&pipe.left[s], MASS_WARPS);
        }
        for (u32 e = 0; e < 2 * MAX_SLOTS; e++) completion_init(&pipe.maxima[e]);
        for (u32 m = 0; m < MAILS; m++) {
            completion_init(&pipe.mailed[m]);
            completion_init(&pipe.listed[m]);
            for (u32 r = 0; r < MAX_BLOCKS; r++) completion_init(&pipe.credit[r][m]);
        }
        for (u32 w = 0; w < WEIGHINGS; w++) completion_init(&pipe.weighed[w]);
        completions_ready();
        pipe.found_count[0] = pipe.found_count[1] = 0;
    }
    if (threadIdx.x < WEIGHINGS * OCTAVES) (&pipe.octaves[0][0])[threadIdx.x] = 0;
    if (threadIdx.x < 2 * (OCTAVES + 1) * SPREAD) (&pipe.own_octaves[0][0])[threadIdx.x] = 0;
    __syncthreads();
    cluster_started();
}

// The rows of this cluster, and where a block's part of one lies.
struct Rows {
    u32 first, step, count, slots, slot_bytes, blocks, rank;
    // Tokens a mass warp can list; 0 without scratch memory.
    u32 list_length;
    u64 lists;

    template <u32 DTYPE>
    static __device__ __forceinline__ Rows of(const RowBlock& b) {
        typedef Copy<DTYPE> C;
        Rows r;
        r.first = cluster_number(), r.step = cluster_count(), r.blocks = cluster_size(), r.rank = cluster_rank();
        u32 rows = (u32)b.rows;
        r.count = r.first < rows ? (rows - r.first + r.step - 1) / r.step : 0;
        // The same for every row, whatever its alignment.
        u32 grains = (C::GRAIN - 1 + (u32)b.vocab + C::GRAIN - 1) / C::GRAIN, parts = r.blocks * MASS_WARPS;
        r.slot_bytes = (grains + parts - 1) / parts * 16 * MASS_WARPS;
        r.slots = min(dynamic_shared_bytes() / r.slot_bytes, MAX_SLOTS);
        r.lists = b.scratch + SCRATCH_HEAD;
        u64 room = b.scratch == 0 || b.scratch_bytes <= SCRATCH_HEAD ? 0 : (b.scratch_bytes - SCRATCH_HEAD) / 8;
        r.list_length = (u32)min(room / ((u64)r.step * r.blocks * MAILS * parts), (u64)LIST);
        return r;
    }

    // The list of a mass warp, counted over the cluster, for a mail of a lead.
    __device__ __forceinline__ u64* list(u32 lead, u32 mail, u32 part) const {
        u64 before = (((u64)first * blocks + lead) * MAILS + mail) * blocks * MASS_WARPS + part;
        return (u64*)lists + before * list_length;
    }
};

// Tokens of each block that the bound of a small top-k asks for; 0 where top-k is off or not small.
__device__ __forceinline__ u32 pipe_need(const Params& params, u64 vocab, u32 blocks) {
    if (params.top_k > SMALL_TOP_K || params.top_k >= vocab) return 0;
    u32 need = ((u32)params.top_k + blocks - 1) / blocks;
    return need <= 32 ? need : 0;
}

__device__ __forceinline__ Road road_of(const RowBlock& b, u64 row_index, const Resolved& found, u32 need, u32 list_length) {
    if (found.state != ROW_LIVE || b.positions == 0 || forced_token(b, row_index) != -1) return ROAD_ANY;
    if (need != 0) return ROAD_LIST;
    bool bare = (b.ranks | b.kept_counts | b.sum_smaller_probs | b.top_width) == 0;
    if (!bare || found.params.top_k != SD_TOP_K_OFF) return ROAD_ANY;
    if (found.params.top_p == SD_TOP_P_OFF) return ROAD_DRAW;
    return list_length > 0 ? ROAD_CUT : ROAD_ANY;
}

// One warp: resolves the rows and starts their copies.
template <u32 DTYPE>
__device__ __forceinline__ void feed(const RowBlock& b, Pipe& pipe, unsigned char* memory, const Rows& rows) {
    for (u32 j = 0, slot = 0, parity = 1; j < rows.count; j++) {
        u64 row_index = rows.first + (u64)j * rows.step;
        Resolved found = resolve(b, row_index);
        u32 need = pipe_need(found.params, b.vocab, rows.blocks);
        Road road = road_of(b, row_index, found, need, rows.list_length);
        if (j >= rows.slots) completion_wait(&pipe.left[slot], parity);
        bool live = found.state == ROW_LIVE;
        if (lane_id() == 0) {
            bool joint = found.params.top_p != SD_TOP_P_OFF && !found.params.top_k_first;
            bool masses = road == ROAD_DRAW || (road == ROAD_LIST && joint);
            // Top-p beside top-k looks at every token, min-p or not.
            float lowest = road == ROAD_DRAW ? found.params.min_exponent : MINUS_INF;
            pipe.lines[slot] = Line{found.values, found.mask,           found.params.scale, lowest,
                                    found.params.top_p, live, masses, road == ROAD_LIST ? need : 0, road};
        }
        Copy<DTYPE> copy(memory + slot * rows.slot_bytes, found.values, live ? b.vocab : 0);
        if (lane_id() == 0) {
            yield_to_copies();
            u32 from = copy.copied_from;
            for (u32 c = 0; c < CHUNKS; c++) {
                u32 to = copy.chunk_end(c);
                // Every completion ends a phase a row, with nothing to wait for where nothing is copied.
                if (live && to > from) copy.start_chunk(from, to, &pipe.arrivals[slot][c]);
                else completion_expect(&pipe.arrivals[slot][c], 0);
                from = to;
            }
        }
        if (live) copy.fill_ends(Hands{lane_id(), 32});
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.ready[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
    cluster_wait_started();
}

// Three warps: the maximum of a row as it arrives, and a bound that `need` tokens of the block reach.
template <u32 DTYPE>
__device__ __forceinline__ void front(const RowBlock& b, Pipe& pipe, unsigned char* memory, const Rows& rows) {
    u32 warp = threadIdx.x / 32;
    Hands hands = {threadIdx.x, FRONT_THREADS};
    cluster_wait_started();
    for (u32 j = 0, slot = 0, parity = 0, entry = 0; j < rows.count; j++) {
        completion_wait(&pipe.ready[slot], parity);
        const Line line = pipe.lines[slot];
        bool nan = false;
        float max = MINUS_INF;
        if (line.live) {
            Copy<DTYPE> copy(memory + slot * rows.slot_bytes, line.values, b.vocab);
            float parts[CHUNKS];
            copy.arrive_in_chunks(pipe.arrivals[slot], (const u32*)line.mask, parts, &nan, hands, parity);
            max = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
            if (line.mask != 0 || nan) yield_to_copies();
        }
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.seen[slot]);
        u32 need = umax(line.need, 1), each = need == 1 ? 1 : min((need + FRONT_WARPS - 1) / FRONT_WARPS * 2, 64 / FRONT_WARPS);
        u32 key = key_of(max), turn = j & 1;
        bool any = __any_sync(ALL_LANES, nan);
#pragma unroll 1
        for (u32 i = 0; i < each; i++) {
            u32 top = take_max(key);
            if (lane_id() == 0) pipe.offers[turn][warp * each + i] = top;
        }
        if (lane_id() == 0) pipe.nan[turn][warp] = any;
        named_barrier(FRONT_BARRIER, FRONT_THREADS);
        if (warp == 0) {
            u32 n = each * FRONT_WARPS;
            u32 upper = lane_id() < n ? pipe.offers[turn][lane_id()] : 0;
            u32 lower = lane_id() + 32 < n ? pipe.offers[turn][lane_id() + 32] : 0;
            u32 top = __reduce_max_sync(ALL_LANES, umax(upper, lower)), bound = top;
#pragma unroll 1
            for (u32 i = 0; need > 1 && i < need; i++) {
                // A lane's larger value goes first.
                u32 larger = umax(upper, lower);
                lower = upper + lower - larger;
                upper = larger;
                bound = take_max(upper);
            }
            any = __any_sync(ALL_LANES, lane_id() < FRONT_WARPS && pipe.nan[turn][lane_id()] != 0);
            if (lane_id() == 0) completion_expect(&pipe.maxima[entry], rows.blocks * 8);
            // The lowest bit of the bound gives way to the NaN flag; a bound may be lower than it need be.
            if (lane_id() < rows.blocks)
                push(lane_id(), &pipe.tops[entry][rows.rank], (u64)top << 32 | (bound & ~1u) | (any ? 1 : 0),
                     &pipe.maxima[entry]);
        }
        if (++slot == rows.slots) slot = 0, parity ^= 1;
        if (++entry == 2 * rows.slots) entry = 0;
    }
}

#endif
