// Rows through a cluster, one behind the other: block r holds the r-th part of a row in one of a few slots of shared memory, and
// each of its mass warps a part of that. A mass warp takes the maximum of a row two ahead of the one that it sums up, so that the
// blocks' word on it has come when it gets there. Each row has a lead, the blocks taking turns: the others send it what they found
// and go on, so that nobody waits for the end of a row. What has a slot, an entry or a mail for every few rows is written again
// only when all who read it are done:
// * a slot when the mass warps of its block have left it (`left`);
// * an entry of maxima with its look, of which there are twice as many as slots: a teller sends the maximum of a row when it has those
//   of the row before from every block, whose tellers sent them when they were done with the rows ahead of that one;
// * offers, of which there are two, and this block's look: the teller has read those of row j before the mass warps sum it up, after
//   which they take the maximum of row j + 2;
// * a report and candidates, of which there are two: the teller lets the mass warps come to row j + 2 when those of row j are sent
//   (`sent`);
// * a mail when its lead has said so (`credit`), and the lists with it: the teller asks before the mass warps come to the row.

#if __CUDA_ARCH__ >= 900

constexpr u32 MAX_SLOTS = 4;
constexpr u32 MAX_BLOCKS = 16;
// Most tokens a mass warp lists.
constexpr u32 LIST = 256;
constexpr u32 MASS_WARPS = MASS_THREADS / 32;
// Mails a lead has open, and candidates in one: a share a block, and never more than a block keeps.
constexpr u32 MAILS = 2;
constexpr u32 MAIL_CANDIDATES = 512, BLOCK_CANDIDATES = 64;
static_assert(MAX_BLOCKS * MASS_WARPS <= LEAD_THREADS, "a thread of the lead for each part of a row");

// How a row is ended.
enum Road : u32 {
    // From all of it, in global memory, or not at all.
    ROAD_WHOLE,
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
    // So few tokens are at or above `low` that they can be put in order.
    bool few;
};

// A row as its block's warps need it.
struct Line {
    u64 mask;
    float scale, lowest;
    u64 top_p;
    // Live to this block, which passes a row over that it knows to be idle.
    u32 live, idle, masses;
    Asked asked;
    Road road;
    // Of a row whose draft is verified: see as_hint.
    u64 hint;
    // Of this block's part, whose first place is 0: how far token 0 is after it, modulo 2^32, how many places there are, and how many
    // a warp has.
    u32 lead, places, part;
};

// A look at a row's masses by octaves, of those from 2^-28 of a warp's largest on, in units of 2^-8 of the octave, at the octave's
// number modulo OCTAVES: first of the largest value of each thread, among which are nearly all of the row's largest; then of
// two tokens a thread.
constexpr u32 OCTAVES = 64, OCTAVES_SEEN = 32, OCTAVES_TAKEN = 28, OCTAVE_UNITS = 256;
struct Look {
    u32 largest[OCTAVES], sample[OCTAVES];
};
constexpr u32 LOOK_WORDS = sizeof(Look) / 8;
// A mass warp's second word on a row whose tokens are listed: the mass above those, and over it how many are listed. A part is
// less than 2^13 tokens.
constexpr u32 LISTED_SHIFT = 54;
// The largest keys of a block's warps that its bound is found among.
constexpr u32 MAX_OFFERS = 64;
// Groups of a part that can be noted.
constexpr u32 MARKS = 192;

// What a block says of a row in one word: the maximum, whether there was a NaN, whether it passed the row over, the number of its
// candidates.
struct Fact {
    u64 word;

    static __device__ __forceinline__ Fact of(float max, u32 nan, bool idle, u32 count) {
        return Fact{(u64)__float_as_uint(max) << 32 | nan << 31 | (idle ? 1u << 30 : 0) | count};
    }
    __device__ __forceinline__ float max() const { return __uint_as_float((u32)(word >> 32)); }
    __device__ __forceinline__ bool nan() const { return ((u32)word >> 31) != 0; }
    __device__ __forceinline__ bool idle() const { return ((u32)word >> 30 & 1) != 0; }
    __device__ __forceinline__ u32 count() const { return (u32)word & 0x3fffffffu; }
};

// What the mass warps do with a row.
enum Work : u32 {
    WORK_NONE,
    // The same, of a row that needs no token.
    WORK_IDLE,
    WORK_MASS,
    // With min-p, or of a row with +inf.
    WORK_KEPT_MASS,
    WORK_COLLECT,
    // In two passes, for a row with +inf.
    WORK_MASS_THEN_COLLECT,
    // In one, as the next two. For top-p alone into the lists of the block's warps as if they were one.
    WORK_MASS_AND_COLLECT,
    // What is at or above a value, and what is between two.
    WORK_LIST,
    WORK_LIST_AROUND,
};

// A row whose maximum is known, as the teller leaves it to the mass warps and takes it up again when they are done.
struct Task {
    // `least` is the least value of a token that is collected or listed, `high` the least of one that is known to be kept.
    float max, scale, lowest, least, high;
    Work work;
    Road road;
    u32 nan;
};

// What a mass warp found of a row: the mass of its part, and where tokens are listed, see LISTED_SHIFT.
struct Report {
    u64 mass, listed;
};

// What the blocks send to the lead of a row.
struct Mail {
    // Of every mass warp of the cluster: see Report.
    u64 sums[MAX_BLOCKS * MASS_WARPS];
    // The largest key that may be listed or collected, 0 for a top-p alone whose few tokens are collected, and the least; by the
    // lead's block.
    u64 window;
    // Of every block: see Fact.
    u64 facts[MAX_BLOCKS];
    // By its road a row has the one or the other.
    union {
        u64 listed[MAX_BLOCKS * MASS_WARPS];
        u64 candidates[MAIL_CANDIDATES];
    };
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
    // Where drafts are verified. No token is needed of a row that is idle, nor is it known what it would be.
    Place place;
    Question question;
    DraftRow draft;
    bool idle;
};

// The rows of this cluster, and where a block's part of one lies.
struct Rows {
    u32 first, step, count, slots, slot_bytes, blocks, rank;
    // Where drafts are verified: what is taken for the number of requests, and of the rows of each.
    u32 requests, length;
    // Tokens a mass warp can list; 0 without scratch memory.
    u32 list_length;
    u64 lists;

    template <u32 DTYPE>
    static __device__ __forceinline__ Rows of(const RowBlock& b, const VerifyBlock& v) {
        typedef Copy<DTYPE> C;
        Rows r;
        r.first = cluster_number(), r.step = cluster_count(), r.blocks = cluster_size(), r.rank = cluster_rank();
        u32 rows = (u32)b.rows;
        if (VERIFIES) {
            r.requests = (u32)min(umax((u32)v.requests, 1), rows), r.length = (rows + r.requests - 1) / r.requests;
            rows = r.requests * r.length;
        }
        r.count = r.first < rows ? (rows - r.first + r.step - 1) / r.step : 0;
        // The same for every row, whatever its alignment.
        u32 grains = (C::GRAIN - 1 + (u32)b.vocab + C::GRAIN - 1) / C::GRAIN, parts = r.blocks * MASS_WARPS;
        r.slot_bytes = (grains + parts - 1) / parts * 16 * MASS_WARPS;
        r.slots = min(dynamic_shared_bytes() / r.slot_bytes, MAX_SLOTS);
        u64 before = SCRATCH_HEAD + (VERIFIES ? b.rows * sizeof(Pending) : 0);
        r.lists = b.scratch + before;
        u64 room = b.scratch == 0 || b.scratch_bytes <= before ? 0 : (b.scratch_bytes - before) / 8;
        r.list_length = (u32)min(room / ((u64)r.step * r.blocks * MAILS * parts), (u64)LIST);
        return r;
    }

    // The j-th of this cluster's rows; where drafts are verified it may be none. There the first row of every request comes first,
    // if all requests are alike, so that a rejection is known before the rows behind it come.
    __device__ __forceinline__ u32 row(u32 j) const {
        u32 i = first + j * step;
        return VERIFIES ? i % requests * length + i / requests : i;
    }

    // How far the maxima are ahead of the masses.
    __device__ __forceinline__ u32 ahead() const { return min(slots - 1, 2u); }

    // Largest keys of a mass warp for a bound that `need` tokens of a block reach.
    __device__ __forceinline__ u32 offers_each(u32 need) const {
        return need <= 1 ? 1 : min((need + MASS_WARPS - 1) / MASS_WARPS * 2, MAX_OFFERS / MASS_WARPS);
    }

    // Candidates of one block that a mail holds.
    __device__ __forceinline__ u32 candidates_each() const { return min(MAIL_CANDIDATES / blocks, BLOCK_CANDIDATES); }

    // Tokens that the lists of a block hold, taken as one: no more than the lead can put in order.
    __device__ __forceinline__ u32 block_list() const { return min(MASS_WARPS * list_length, MAX_ORDERED); }

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
    VerifyBlock verify;
    Rows rows;
    // The lead's.
    Shared shared;
    u64 arrived[MAX_SLOTS], maxed[MAX_SLOTS], weighed[MAX_SLOTS], left[MAX_SLOTS], sent[2];
    u64 maxima[2 * MAX_SLOTS], mailed[MAILS], listed[MAILS], credit[MAX_BLOCKS][MAILS];
    Line lines[MAX_SLOTS];
    Task tasks[MAX_SLOTS];
    // Largest key, bound and NaN flag of every block; where top-p cuts, the bound is the least of the largest keys of its warps.
    u64 tops[2 * MAX_SLOTS][MAX_BLOCKS];
    // The mass warps' largest keys, and which of them saw NaN.
    u32 offers[2][MAX_OFFERS], nan[2][MASS_WARPS];
    // Candidates of this block, for every other row.
    u64 found[2][BLOCK_CANDIDATES];
    u32 found_count[2];
    // All blocks' look at a row, and this block's, for every other row.
    __align__(8) Look looks[2 * MAX_SLOTS], own_look[2];
    Mail mails[MAILS];
    // Of the mass warps, for every other row.
    Report reports[2][MASS_WARPS];
    // Groups of four in which a mass warp has seen a token to list, from the start of its part.
    u16 marks[MASS_WARPS][MARKS];
    Ending ending;
};

__device__ __forceinline__ void start_pipe(Pipe& pipe) {
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < MAX_SLOTS; s++) {
            // By the feeder's threads, and the one that starts the copy.
            completion_init(&pipe.arrived[s], FEED_THREADS + 1);
            completion_init(&pipe.maxed[s], MASS_WARPS);
            completion_init(&pipe.weighed[s], TELL_THREADS);
            completion_init(&pipe.left[s], MASS_WARPS);
        }
        for (u32 i = 0; i < 2; i++) completion_init(&pipe.sent[i], SEND_THREADS);
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

// A row of the step, and where drafts are verified its place in its request, and its draft.
__device__ __forceinline__ Resolved resolve_row(const RowBlock& b, const VerifyBlock& v, u32 row, Place* place, Draft* draft) {
    if (!VERIFIES) return resolve(b, row);
    if (row < b.rows) return resolve_verified(b, v, row, place, draft);
    Resolved none = {};
    none.state = ROW_PADDING;
    return none;
}

// What the bound of a small top-k asks of the blocks; nothing where top-k is off or not small.
__device__ __forceinline__ Asked pipe_asked(const Params& params, u64 vocab, u32 blocks) {
    if (params.top_k > SMALL_TOP_K || params.top_k >= vocab) return Asked{0, 0};
    return ask_blocks(params.top_k, blocks, MOST_ASKED);
}

__device__ __forceinline__ Road road_of(const Resolved& found, u32 need, u32 list_length) {
    if (found.state != ROW_LIVE) return ROAD_WHOLE;
    if (need != 0) return ROAD_LIST;
    if (found.params.top_k != SD_TOP_K_OFF) return ROAD_WHOLE;
    if (found.params.top_p == SD_TOP_P_OFF) return ROAD_DRAW;
    return list_length > 0 ? ROAD_CUT : ROAD_WHOLE;
}

// The slot a row lies in.
template <u32 DTYPE>
__device__ __forceinline__ Copy<DTYPE> copy_in_slot(const Pipe& pipe, unsigned char* memory, u32 slot) {
    const Line& line = pipe.lines[slot];
    return Copy<DTYPE>(memory + slot * pipe.rows.slot_bytes, 0, pipe.block.vocab, Bounds{line.lead, 0, line.places, 0, 0, line.part});
}

// The octave of a value: its distance from 0 in factors of two of a mass. A rough look, which decides on nothing.
__device__ __forceinline__ float octave_of(float x, float scale) { return rintf(__fmul_rn(x, scale)); }

#endif
