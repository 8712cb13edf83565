// The launch behind clusters that stay, where a draft is a whole distribution: a cluster a request draws for its first rejected row
// from what the draft leaves of it, and settles the request. That row is copied into shared memory once more; what is kept of it,
// and its mass, are known. One pass over it and the draft's row.

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

// Takes out of the copy what is not within the cut.
template <class C>
__device__ __noinline__ void drop_rest(const C copy, const Cut cut) {
    u32 from, end;
    copy.part_of(warp_id(), &from, &end);
#pragma unroll 1
    for (u32 place = from + lane_id(); place < end; place += 32)
        if (!cut.has(key_of(copy.value(place)), place - copy.lead)) copy.tile[place - copy.first_place] = C::E::LOWEST;
    __syncwarp();
}

// The draw for a rejected row.
template <u32 DTYPE>
__device__ __forceinline__ void draw_residual(const RowBlock& b, const VerifyBlock& v, Shared& sh, unsigned char* memory,
                                              u64 row_index, const Pending& pending) {
    Place place;
    Draft draft;
    Resolved found = resolve_verified(b, v, row_index, &place, &draft);
    const Params& params = found.params;
    Copy<DTYPE> copy(memory, found.values, b.vocab);
    if (thread_id() == 0) copy.start(sh.arrivals);
    copy.fill_ends(all_hands());
    DraftRow draft_row = draft_row_of(b, v, row_index, draft);
    u64 bits = draw_bits(b, row_index, place.request, place.local_step * v.position_stride, params.seed, SD_CASE_RESIDUAL);
    Weight weight = {pending.max, params.scale, params.min_exponent};
    team_barrier();
    bool nan = false;
    copy.arrive(sh.arrivals, (const u32*)found.mask, &nan);
    team_barrier();
    if (pending.cut.key != CUT_ALL.key || pending.cut.id != CUT_ALL.id) drop_rest(copy, pending.cut);
    nan = false;
    u64 own = residual_of_part(b, place, copy, weight, draft_row, pending.total, &nan);
    bool any = team_any(nan);
    if (thread_id() == 0) sh.candidates = any ? 1 : 0;
    cluster_wait_started();
    Sums sums = push_sums(sh, own, &sh.exchanges[1], sh.pushed_max, sh.pushed_listed);
    i32 status = pending.status | (sums.count != 0 ? SD_STATUS_NAN_DRAFT : 0);
    Left left = {DRAFT_ROW, 0, copy.lead, draft_row, pending.total};
    if (sums.mass == 0) {
        left.kind = DRAFT_ABSENT;
        sums = push_sums(sh, mass_of_part(copy, weight), &sh.exchanges[2]);
    }
    u64 target = scale_bits(bits, sums.mass);
    if (cluster_rank() == 0 && thread_id() == 0) store<i32>(b.status, row_index, status);
    if (!owns(sums, target)) return;
    find_in_part(sh, copy, weight, sums, target, left, [&](u32 at, float x) {
        store_token(b, row_index, (i64)(at - copy.lead));
        if (b.logprobs != 0)
            store<float>(b.logprobs, row_index, logprob_of_exponent(weight.exponent(x), log2_total(pending.total)));
    });
}

template <u32 DTYPE>
__device__ __forceinline__ void residual_tile(const RowBlock& b, const VerifyBlock& v) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 request = cluster_number();
    i64 row_index = first_rejected(b, v, request);
    Pending pending = {};
    if (row_index >= 0) pending = *pending_of(b, (u64)row_index);
    if (pending.total != 0) draw_residual<DTYPE>(b, v, sh, memory, (u64)row_index, pending);
    else cluster_wait_started();
    cluster_barrier();
    if (cluster_rank() != 0 || warp_id() != 0) return;
    settle(b, v, request);
    if (lane_id() == 0) *hint_at(b, (request + 1) << 32) = 0;
}

#else

template <u32 DTYPE>
__device__ void residual_tile(const RowBlock&, const VerifyBlock&) {}

#endif
