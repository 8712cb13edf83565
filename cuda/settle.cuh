// The launch behind clusters that stay: a cluster a request settles it, and where a draft is a whole distribution first draws for
// the request's first rejected row from what the draft leaves of it. What is kept of that row, and its mass, are known. One pass over
// it and the draft's row, and one over the warp's part that the draw falls into, in global memory.

#if __CUDA_ARCH__ >= 900

// The request's first row that does not accept its draft; -1 if there is none. By a warp.
__device__ __forceinline__ i64 first_rejected(const RowBlock& b, const VerifyBlock& v, u64 request) {
    u64 first, end;
    if (!request_rows(b, v, request, &first, &end)) return -1;
#pragma unroll 1
    for (u64 base = first; base < end; base += 32) {
        u64 row = base + lane_id();
        u32 rejected = __ballot_sync(ALL_LANES, row < end && ((const i32*)v.row_accepts)[row] == 0);
        if (rejected != 0) return (i64)(base + __ffs((i32)rejected) - 1);
    }
    return -1;
}

// A rejected row and its draft's in global memory, of which a block of a cluster has a part.
template <u32 DTYPE>
struct Rejected : Bounds {
    typedef Element<DTYPE> E;
    InMemory<E> values;
    DraftRow draft;
    Cut cut;
    Weight weight;
    u64 total;
    // Groups of four from this index on need a closer look.
    u32 plain_end;
    bool whole_vectors;

    __device__ __forceinline__ Rejected(const Copy<DTYPE>& copy, u64 mask, const DraftRow& draft_row, const Pending& pending,
                                        const Weight& w)
        : Bounds(copy), values{copy.values, (const u32*)mask, copy.len}, draft(draft_row), cut(pending.cut), weight(w),
          total(pending.total) {
        whole_vectors = ((u64)draft.logprobs / 4 - lead) % 4 == 0;
        bool plain = mask == 0 && weight.max != PLUS_INF && cut.key == CUT_ALL.key && cut.id == CUT_ALL.id && whole_vectors;
        plain_end = plain && copy.len >= 4 && draft.width >= 4 ? min(copy.len, draft.width) - 3 : 0;
    }

    // The values of what is kept of four neighbours.
    __device__ __forceinline__ void load4(u32 place, float* x) const {
        u32 index = place - lead;
        values.load4((i32)index, x);
        for (u32 e = 0; e < 4; e++) x[e] = cut.has(key_of(x[e]), index + e) ? x[e] : MINUS_INF;
    }

    // The same as with a finite largest value, and the draft's logprobs.
    __device__ __forceinline__ void load(u32 place, float* x, float* q) const {
        u32 index = place - lead;
        if (index < plain_end) {
            values.load_plain(index, x);
            float4 four = __ldg((const float4*)(draft.logprobs + index));
            q[0] = four.x, q[1] = four.y, q[2] = four.z, q[3] = four.w;
        } else {
            load4(place, x);
            for (u32 e = 0; e < 4; e++) x[e] = below_finite_max(weight, x[e]);
            draft.load4(index, whole_vectors, q);
        }
    }

    // Nothing from `end` on.
    __device__ __forceinline__ void load_within(u32 place, u32 end, float* x, float* q) const {
        for (u32 e = 0; e < 4; e++) x[e] = q[e] = MINUS_INF;
        if (place < end) load(place, x, q);
    }
};

// Groups that a lane works on side by side, and has on their way meanwhile.
constexpr u32 GROUPS = 2;

// This lane's share of what is left of its warp's part; `nan` is set where a kept token's draft is NaN.
template <class R>
__device__ __forceinline__ u64 left_of_part(const R& row, bool* nan) {
    u32 place, end;
    row.part_of(warp_id(), &place, &end);
    place += lane_id() * 4;
    u64 own = 0;
    float next_x[GROUPS][4], next_q[GROUPS][4];
    auto load = [&]() {
        for (u32 k = 0; k < GROUPS; k++) row.load_within(place + k * 128, end, next_x[k], next_q[k]);
    };
    load();
#pragma unroll 1
    while (place < end) {
        float x[GROUPS][4], q[GROUPS][4];
        for (u32 k = 0; k < GROUPS; k++)
            for (u32 e = 0; e < 4; e++) x[k][e] = next_x[k][e], q[k][e] = next_q[k][e];
        place += GROUPS * 128;
        load();
        for (u32 k = 0; k < GROUPS; k++) {
            u64 left[4];
            left_of_four(with_finite_max(row.weight), x[k], q[k], row.total, left, nan);
            own += (left[0] + left[1]) + (left[2] + left[3]);
        }
    }
    return own;
}

// The token that `target` falls on in this block, which owns it: its warp's part is gone over once more, by all warps; `found(place,
// value)` in one thread.
template <class R, class Found>
__device__ __forceinline__ void find_rest(Shared& sh, const R& row, const Sums& sums, u64 target, Found found) {
    u64 running = sums.mass_before;
    u32 from, to;
    row.part_of(owner_of(sh, target, &running), &from, &to);
    bool nan = false;
    // Steps of 128 places, which the warps take in turns.
#pragma unroll 1
    for (; from < to; from += 128 * warp_count()) {
        u32 place = from + warp_id() * 128 + lane_id() * 4;
        float x[4], q[4];
        u64 left[4];
        row.load_within(place, to, x, q);
        left_of_four(with_finite_max(row.weight), x, q, row.total, left, &nan);
        u64 through = warp_scan((left[0] + left[1]) + (left[2] + left[3])), sum = __shfl_sync(ALL_LANES, through, 31);
        team_barrier();
        if (lane_id() == 0) sh.scan[warp_id()] = sum;
        team_barrier();
        u64 at = running + warp_sum(lane_id() < warp_id() ? sh.scan[lane_id()] : 0) + through;
        for (u32 e = 0; e < 4; e++) at -= left[e];
        for (u32 e = 0; e < 4; at += left[e], e++)
            if (target >= at && target - at < left[e]) found(place + e, x[e]);
        running += warp_sum(lane_id() < warp_count() ? sh.scan[lane_id()] : 0);
        if (target < running) return;
    }
}

// The drawn token, by the thread that found it.
template <class R>
__device__ __forceinline__ void store_rest(const RowBlock& b, u64 row_index, const R& row, u32 place, float exponent) {
    store_token(b, row_index, (i64)(place - row.lead));
    if (b.logprobs != 0) store<float>(b.logprobs, row_index, logprob_of_exponent(exponent, log2_total(row.total)));
}

// Draws from the kept masses of a row of which the draft leaves nothing.
template <class R>
__device__ __noinline__ void draw_kept(const RowBlock& b, Shared& sh, u64 row_index, const R row, u64 bits) {
    Sums sums = push_sums(sh, kept_mass_of_part(row, row.weight, warp_id()), &sh.exchanges[2]);
    u64 target = scale_bits(bits, sums.mass);
    if (owns(sums, target))
        find_in_part(sh, row, row.weight, sums, target, AllOfIt{},
                     [&](u32 place, float x) { store_rest(b, row_index, row, place, row.weight.exponent(x)); });
}

// The draw for a rejected row.
template <u32 DTYPE>
__device__ __forceinline__ void draw_residual(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index,
                                              const Pending& pending) {
    Place place;
    Draft draft;
    Resolved resolved = resolve_verified(b, v, row_index, &place, &draft);
    const Params& params = resolved.params;
    Rejected<DTYPE> row(Copy<DTYPE>(0, resolved.values, b.vocab), resolved.mask, draft_row_of(b, v, row_index, draft), pending,
                        Weight{pending.max, params.scale, params.min_exponent});
    u64 bits = draw_bits(b, row_index, place.request, place.local_step * v.position_stride, params.seed, SD_CASE_RESIDUAL);
    bool nan = false;
    u64 own = left_of_part(row, &nan);
    bool any = team_any(nan);
    if (thread_id() == 0) sh.candidates = any ? 1 : 0;
    cluster_wait_started();
    Sums sums = push_sums(sh, own, &sh.exchanges[1], sh.pushed_max, sh.pushed_listed);
    if (cluster_rank() == 0 && thread_id() == 0)
        store<i32>(b.status, row_index, pending.status | (sums.count != 0 ? SD_STATUS_NAN_DRAFT : 0));
    if (sums.mass == 0) return draw_kept(b, sh, row_index, row, bits);
    u64 target = scale_bits(bits, sums.mass);
    if (owns(sums, target))
        find_rest(sh, row, sums, target, [&](u32 place, float x) {
            store_rest(b, row_index, row, place, with_finite_max(row.weight).exponent(x));
        });
}

template <u32 DTYPE>
__device__ __forceinline__ void settle_requests(const RowBlock& b, const VerifyBlock& v) {
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 request = cluster_number();
    i64 row_index = v.mode == SD_VERIFY_REJECTION ? first_rejected(b, v, request) : -1;
    Pending pending = {};
    if (row_index >= 0) pending = *pending_of(b, (u64)row_index);
    if (pending.total != 0) draw_residual<DTYPE>(b, v, sh, (u64)row_index, pending);
    else cluster_wait_started();
    cluster_barrier();
    if (cluster_rank() != 0 || warp_id() != 0) return;
    settle(b, v, request);
    if (lane_id() == 0) *hint_at(b, (request + 1) << 32) = 0;
}

#else

template <u32 DTYPE>
__device__ void settle_requests(const RowBlock&, const VerifyBlock&) {}

#endif
