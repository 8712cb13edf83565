// Rows through a cluster, one behind the other: block r holds the r-th part of a row in one of a few slots of shared
// memory; while one row is summed up, the next has its maximum taken and the one after that arrives. Each row has a lead,
// the blocks taking turns: the others send it what they found and go on, so that nobody waits for the end of a row. What
// has a slot, an entry or a mail for every few rows is written again only when all who read it are done:
// * a slot when the mass warps of its block have left it (`left`);
// * an entry of maxima, twice as many as slots: a block sends the maximum of row j + 2 * slots once it has summed up row
//   j + slots, which no block can before all have summed up row j;
// * the look of an entry likewise: it is cleared before the mass warps come to the row;
// * a mail when its lead has said so (`credit`).

#if __CUDA_ARCH__ >= 900

constexpr u32 MAX_SLOTS = 4;
constexpr u32 MAX_BLOCKS = 16;
// Most tokens a mass warp lists: no more than the lead has threads.
constexpr u32 LIST = 256;
static_assert(LIST <= LEAD_THREADS, "a thread of the lead each");
// What other stages count in comes first in the scratch memory.
constexpr u32 SCRATCH_HEAD = 256;
constexpr u32 MASS_WARPS = MASS_THREADS / 32, FRONT_WARPS = FRONT_THREADS / 32;
// Mails a lead has open, and candidates in one: a share a block, and never more than a block keeps.
constexpr u32 MAILS = 2;
constexpr u32 MAIL_CANDIDATES = 512, BLOCK_CANDIDATES = 64;
static_assert(MAX_BLOCKS * MASS_WARPS <= LEAD_THREADS, "a thread of the lead for each part of a row");

// How a row is ended.
enum Road : u32 {
    // By the passes of row.cuh, from global memory, or not at all.
    ROAD_ANY,
    // No filter but min-p: masses, and the part of the row the draw falls into.
    ROAD_DRAW,
    // A small top-k: the few candidates, and for a top-p over the whole row its mass.
    ROAD_LIST,
    // Top-p alone: a sample of the row says between which values its end should lie; what is there is listed.
    ROAD_CUT,
};

// Values between which top-p should end: what is at or above `high` is kept, what is below `low` is not.
struct Window {
    float low, high;
};

// A row as its block's warps need it.
struct Line {
    u64 values, mask;
    float scale, lowest;
    u64 top_p;
    u32 live, masses, need;
    Road road;
    Bounds bounds;
};

// A look at a row's masses by octaves, of those from 2^-28 of a block's largest on, in units of 2^-8 of the octave, at the
// octave's number modulo OCTAVES: first of the largest values of many small parts, among which are nearly all of the row's
// largest; then of SAMPLED groups of four neighbours of each block.
constexpr u32 OCTAVES = 64, OCTAVES_SEEN = 32, OCTAVES_TAKEN = 28, OCTAVE_UNITS = 256, SAMPLED = 256;
struct Look {
    u32 largest[OCTAVES], sample[OCTAVES];
};
constexpr u32 LOOK_WORDS = sizeof(Look) / 8;
static_assert(FRONT_THREADS >= 32 + LOOK_WORDS, "a thread of the front, but of its first warp, for each word");
// A mass warp's second word on a row whose tokens are listed: the mass above those, and over it how many are listed. A part is
// less than 2^13 tokens.
constexpr u32 LISTED_SHIFT = 54;
// Groups of a part that can be noted.
constexpr u32 MARKS = 192;

// What a block says of a row in one word: the maximum, whether there was a NaN, the number of its candidates.
struct Fact {
    u64 word;

    static __device__ __forceinline__ Fact of(float max, u32 nan, u32 count) {
        return Fact{(u64)__float_as_uint(max) << 32 | nan << 31 | count};
    }
    __device__ __forceinline__ float max() const { return __uint_as_float((u32)(word >> 32)); }
    __device__ __forceinline__ bool nan() const { return ((u32)word >> 31) != 0; }
    __device__ __forceinline__ u32 count() const { return (u32)word & 0x7fffffffu; }
};

// A row whose maximum is known.
struct Turn {
    u32 j, slot, lead, number;
    float max;
    u32 nan;
    Road road;
};

// What a mass warp has to say of a row: the mass of its part; where tokens are listed, see LISTED_SHIFT, and their largest key
// with the least below it.
struct Report {
    Turn turn;
    u64 mass, listed, window;
};

// What the blocks send to the lead of a row.
struct Mail {
    // Of every mass warp of the cluster, and of the lead's block: see Report.
    u64 sums[MAX_BLOCKS * MASS_WARPS], listed[MAX_BLOCKS * MASS_WARPS];
    u64 window;
    // Of every block: see Fact.
    u64 facts[MAX_BLOCKS];
    u64 candidates[MAIL_CANDIDATES];
};

// A row that is being ended, as the lead's threads share it.
struct Ending {
    u64 bits;
    u32 row_index;
    Resolved found;
    Weight weight;
    i32 status;
    Road road;
    // The lead's mail.
    u32 which;
};

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

struct Pipe {
    // The launch's parameters, which a function that is called would read from global memory, each anew after a wait for a peer; and
    // the cluster's rows, each number of which would take a register of every role.
    RowBlock block;
    Rows rows;
    // The lead's.
    Shared shared;
    u64 arrivals[MAX_SLOTS][CHUNKS], ready[MAX_SLOTS], seen[MAX_SLOTS], weighed[MAX_SLOTS], left[MAX_SLOTS];
    u64 maxima[2 * MAX_SLOTS], mailed[MAILS], listed[MAILS], credit[MAX_BLOCKS][MAILS];
    Line lines[MAX_SLOTS];
    Window windows[MAX_SLOTS];
    // Largest key, bound and NaN flag of every block.
    u64 tops[2 * MAX_SLOTS][MAX_BLOCKS];
    u32 offers[2][64], nan[2][FRONT_WARPS];
    // Candidates of this block, for every other row.
    u64 found[2][BLOCK_CANDIDATES];
    u32 found_count[2];
    // All blocks' look at a row, and this block's, for every other row.
    __align__(8) Look looks[2 * MAX_SLOTS], own_look[2];
    Mail mails[MAILS];
    // Groups of four in which a mass warp has seen a token to list, from the start of its part; and its report on such a row, which
    // it sends when the list is sure to be in memory.
    u16 marks[MASS_WARPS][MARKS];
    Report reports[MASS_WARPS];
    Ending ending;
};

__device__ __forceinline__ void start_pipe(Pipe& pipe) {
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < MAX_SLOTS; s++) {
            for (u32 c = 0; c < CHUNKS; c++) completion_init(&pipe.arrivals[s][c]);
            completion_init(&pipe.ready[s], 32);
            completion_init(&pipe.weighed[s]);
            completion_init(&pipe.seen[s], FRONT_WARPS);
            completion_init(&pipe.left[s], MASS_WARPS);
        }
        for (u32 e = 0; e < 2 * MAX_SLOTS; e++) completion_init(&pipe.maxima[e]);
        for (u32 m = 0; m < MAILS; m++) {
            completion_init(&pipe.mailed[m]);
            completion_init(&pipe.listed[m]);
            for (u32 r = 0; r < MAX_BLOCKS; r++) completion_init(&pipe.credit[r][m]);
        }
        completions_ready();
        pipe.found_count[0] = pipe.found_count[1] = 0;
    }
    for (u32 i = threadIdx.x; i < 2 * MAX_SLOTS * LOOK_WORDS; i += ALL_ROLES) ((u64*)pipe.looks)[i] = 0;
    if (threadIdx.x < 2 * LOOK_WORDS) ((u64*)pipe.own_look)[threadIdx.x] = 0;
    __syncthreads();
    cluster_prepared();
}

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

// The octave of a value: its distance from 0 in factors of two of a mass. A rough look, which decides on nothing.
__device__ __forceinline__ float octave_of(float x, float scale) { return rintf(__fmul_rn(x, scale)); }

// Tokens so few that all of them may be listed.
constexpr u32 FEW_TOKENS = 1024;

// By the blocks' look at a row, whose largest value `max` is finite; clears the look. Where it is wrong, the row is ended another
// way, where it is wide, lists are longer: no result depends on it.
__device__ __forceinline__ Window window_of(Look& look, u64 tops, u32 blocks, float max, const Line& line, u32 sampling) {
    float top = octave_of(max, line.scale);
    u32 octave = ((u32)__float2int_rn(top) - lane_id()) % OCTAVES;
    u32 largest = look.largest[octave], sample = look.sample[octave];
    // A peer whose largest token is further down has added to octaves that are not its own.
    float peer = lane_id() < blocks ? value_of_key((u32)(tops >> 32)) : max;
    bool apart = __any_sync(ALL_LANES, __fmul_rn(__fsub_rn(max, peer), line.scale) > (float)OCTAVES_SEEN);
    // What the sample has seen little of is among the parts' largest; much of it stands for `sampling` times as much.
    u32 units = umax(largest, sample < 16 * OCTAVE_UNITS ? sample : sample * sampling);
    u64 mass = (u64)units << (OCTAVES_SEEN - 1 - lane_id()), through = warp_scan(mass);
    u64 whole = __shfl_sync(ALL_LANES, through, 31), limit = multiply_shift(whole, line.top_p, 32);
    // From the largest's octave to its number, in octaves.
    float offset = __fsub_rn(top, __fmul_rn(max, line.scale)) + 0.5f;
    // The exponent at which the mass reaches `target`, if an octave's mass is spread evenly over it.
    auto exponent_at = [&](u64 target) {
        u32 past = __ballot_sync(ALL_LANES, through > target), lane = past != 0 ? __ffs((i32)past) - 1 : 31;
        float within = past != 0 ? (float)(target - (through - mass)) / (float)mass : 1.0f;
        return offset - (float)lane - __shfl_sync(ALL_LANES, within, lane);
    };
    float high = exponent_at(limit - limit / 32) + 0.05f, low = exponent_at(limit + (whole - limit) / 8) - 0.05f;
    u32 octaves = __popc(__ballot_sync(ALL_LANES, warp_scan(units) <= FEW_TOKENS * OCTAVE_UNITS));
    float few = apart ? -16.0f : offset - (float)octaves;
    // Min-p says of each token anew whether it is kept.
    if (apart || line.lowest != MINUS_INF || few <= low) low = fminf(low, few), high = 1.0f;
    Window window = {__fadd_rn(max, __fdiv_rn(low, line.scale)), PLUS_INF};
    if (high < 0.0f) window.high = __fadd_rn(max, __fdiv_rn(high, line.scale));
    return window;
}

// Decides for one row after the other which of its tokens are listed.
struct Weigher {
    u32 row = 0, slot = 0, entry = 0, parity = 0;

    __device__ __forceinline__ void weigh(const RowBlock& b, Pipe& pipe) {
        const Rows& rows = pipe.rows;
        __syncwarp();
        const Line line = pipe.lines[slot];
        if (line.road == ROAD_CUT) {
            completion_wait(&pipe.maxima[entry], parity);
            u64 tops = lane_id() < rows.blocks ? pipe.tops[entry][lane_id()] : 0;
            float max = value_of_key(__reduce_max_sync(ALL_LANES, (u32)(tops >> 32)));
            Look& look = pipe.looks[entry];
            u32 sampling = umax((u32)b.vocab / rows.blocks / (4 * SAMPLED), 1);
            Window window = {PLUS_INF, PLUS_INF};
            if (max != MINUS_INF && max != PLUS_INF) window = window_of(look, tops, rows.blocks, max, line, sampling);
            if (lane_id() == 0) pipe.windows[slot] = window;
            __syncwarp();
            for (u32 i = lane_id(); i < LOOK_WORDS; i += 32) ((u64*)&look)[i] = 0;
            __syncwarp();
        }
        if (lane_id() == 0) completion_arrive(&pipe.weighed[slot]);
        row++;
        if (++slot == rows.slots) slot = 0;
        if (++entry == 2 * rows.slots) entry = 0, parity ^= 1;
    }
};

// One warp: resolves the rows, starts their copies, and decides which tokens are listed.
template <u32 DTYPE>
__device__ __forceinline__ void feed(const RowBlock& b, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    Weigher weigher;
    for (u32 j = 0, slot = 0, parity = 1;; j++) {
        // Up to the row that the mass warps come to when they leave the slot of this one.
        u32 due = j >= rows.count ? rows.count : j >= rows.slots ? j - rows.slots + 2 : 0;
        while (weigher.row < due) weigher.weigh(b, pipe);
        if (j == rows.count) break;
        u64 row_index = rows.first + (u64)j * rows.step;
        Resolved found = resolve(b, row_index);
        u32 need = pipe_need(found.params, b.vocab, rows.blocks);
        Road road = road_of(b, row_index, found, need, rows.list_length);
        if (j >= rows.slots) completion_wait_own(&pipe.left[slot], parity);
        bool live = found.state == ROW_LIVE;
        Copy<DTYPE> copy(memory + slot * rows.slot_bytes, found.values, live ? b.vocab : 0);
        if (lane_id() == 0) {
            bool joint = found.params.top_p != SD_TOP_P_OFF && !found.params.top_k_first;
            bool masses = road == ROAD_DRAW || (road == ROAD_LIST && joint);
            // Top-p beside top-k looks at every token, min-p or not.
            float lowest = road == ROAD_DRAW || road == ROAD_CUT ? found.params.min_exponent : MINUS_INF;
            pipe.lines[slot] = Line{found.values, found.mask,           found.params.scale, lowest,
                                    found.params.top_p, live, masses, road == ROAD_LIST ? need : 0, road, copy};
        }
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
        completion_arrive(&pipe.ready[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
    cluster_wait_started();
}

// Adds this front thread's share of a block's look at its part of a row, whose largest value is `top`; `largest` are the largest
// values of this thread's parts.
template <class C>
__device__ __forceinline__ void look_at(const C& copy, float scale, float top, const float* largest, Look& look) {
    auto add = [&](u32* octaves, float x) {
        if (!(__fmul_rn(__fsub_rn(x, top), scale) > -(float)OCTAVES_TAKEN)) return;
        float octave = octave_of(x, scale);
        // 2^f by its tangent.
        float f = __fsub_rn(__fmul_rn(x, scale), octave);
        atomicAdd(&octaves[(u32)__float2int_rn(octave) % OCTAVES], OCTAVE_UNITS + __float2int_rn(f * 177.0f));
    };
    for (u32 c = 0; c < CHUNKS; c++) add(look.largest, largest[c]);
    u32 groups = (copy.end_place - copy.first_place) / 4;
    if (groups == 0) return;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < SAMPLED; i += FRONT_THREADS) {
        float x[4];
        copy.load4(copy.first_place + i * groups / SAMPLED * 4, x);
        for (u32 e = 0; e < 4; e++) add(look.sample, x[e]);
    }
}

// Four warps: the maximum of a row as it arrives, and a bound that `need` tokens of the block reach.
template <u32 DTYPE>
__device__ __forceinline__ void front(const RowBlock& b, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    u32 warp = threadIdx.x / 32;
    Hands hands = {threadIdx.x, FRONT_THREADS};
    cluster_wait_started();
    for (u32 j = 0, slot = 0, parity = 0, entry = 0; j < rows.count; j++) {
        completion_wait_own(&pipe.ready[slot], parity);
        const Line line = pipe.lines[slot];
        bool nan = false;
        float max = MINUS_INF, parts[CHUNKS];
        if (line.live) {
            Copy<DTYPE> copy(memory + slot * rows.slot_bytes, line.values, b.vocab, line.bounds);
            copy.arrive_in_chunks(pipe.arrivals[slot], (const u32*)line.mask, parts, &nan, hands, parity);
            max = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
            if (line.mask != 0 || nan) yield_to_copies();
        }
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
        bool cuts = line.road == ROAD_CUT;
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
            if (lane_id() == 0) completion_expect(&pipe.maxima[entry], rows.blocks * (8 + (cuts ? (u32)sizeof(Look) : 0)));
            // The lowest bit of the bound gives way to the NaN flag; a bound may be lower than it need be.
            if (lane_id() < rows.blocks)
                push(lane_id(), &pipe.tops[entry][rows.rank], (u64)top << 32 | (bound & ~1u) | (any ? 1 : 0),
                     &pipe.maxima[entry]);
        }
        if (cuts) {
            // With `each` = 1, an offer is a warp's largest.
            u32 top = __reduce_max_sync(ALL_LANES, lane_id() < FRONT_WARPS ? pipe.offers[turn][lane_id()] : 0);
            // Both are what they are said to be for a live row alone, which a row that is cut is.
            look_at(Copy<DTYPE>(memory + slot * rows.slot_bytes, line.values, b.vocab, line.bounds), line.scale, value_of_key(top),
                    parts, pipe.own_look[turn]);
            named_barrier(FRONT_BARRIER, FRONT_THREADS);
            if (warp >= 1 && threadIdx.x < 32 + LOOK_WORDS) {
                u64* own = (u64*)&pipe.own_look[turn] + (threadIdx.x - 32);
                // Two octaves a word: their sums do not reach 2^32.
                for (u32 to = 0; to < rows.blocks; to++)
                    push_add(to, (u64*)&pipe.looks[entry] + (threadIdx.x - 32), *own, &pipe.maxima[entry]);
                *own = 0;
            }
        }
        // Only now may the mass warps leave the slot.
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.seen[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
        if (++entry == 2 * rows.slots) entry = 0;
    }
}

#endif
