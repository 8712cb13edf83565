// The first N tokens of a row as a source for the passes of row.cuh, and the stages that take them from there: a cluster
// of blocks (or one) a row finds them, its first block goes on alone, in its own shared memory.

struct Columns {
    typedef Block Team;
    static constexpr u32 WIDTH = 1;
    Team& team;
    const Chosen& chosen;
    u32 len;
    // This warp's places.
    u32 begin, end;

    __device__ Columns(Team& t, const Chosen& c) : team(t), chosen(c), len(c.columns) { part_of(warp_id(), &begin, &end); }

    __device__ __forceinline__ float at(u32 i) const { return chosen.order.value(chosen.entry(i)); }
    __device__ __forceinline__ u32 id_at(u32 i) const { return chosen.order.id(chosen.entry(i)); }

    // Calls f(value) for the values of this warp.
    template <class F>
    __device__ __forceinline__ void each_value(F f) const {
        each([&](u32, u32, float x) { f(x); });
    }

    // Calls f(index, id, value) for the values of this warp.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 i = begin + lane_id(); i < end; i += 32) {
            u64 token = chosen.entry(i);
            f(i, chosen.order.id(token), chosen.order.value(token));
        }
    }

    __device__ __forceinline__ Group<1> group(u32 i) const { return Group<1>{{at(i)}, i, 1}; }

    // Calls f(group) in step for all lanes of this warp, ascending.
    template <class F>
    __device__ __forceinline__ void steps(F f) const {
#pragma unroll 1
        for (u32 base = begin; base < end; base += 32) {
            u32 i = base + lane_id();
            f(i < end ? group(i) : Group<1>{{MINUS_INF}, i, 0});
        }
    }

    __device__ __forceinline__ u32 part() const { return ((len + 31) / 32 + warp_count() - 1) / warp_count() * 32; }
    __device__ u32 warp_of(u32 i) const { return i / part(); }
    __device__ void part_of(u32 warp, u32* from, u32* to) const {
        *from = min(warp * part(), len);
        *to = min((warp + 1) * part(), len);
    }

    // Index of token `id`, -1 if it is not among them.
    __device__ __forceinline__ i64 find(i64 id) const {
        if (id < 0 || id >= (i64)lists_vocab() || !chosen.has((u32)id)) return -1;
        return chosen.place_of((u32)id);
    }

    // Ids that have a bit.
    __device__ __forceinline__ u32 lists_vocab() const { return chosen.lists.words * 32; }
};

// The rest of a row, out of the way of the registers that reading it needs.
__device__ __noinline__ void sample_chosen(const RowBlock& b, Shared& sh, u64 row_index, const Chosen chosen) {
    Block team(sh);
    Columns source(team, chosen);
    sample_row(b, row_index, resolve(b, row_index).params, source, chosen.largest, chosen.status());
}

__device__ __noinline__ void verify_chosen(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index,
                                           const Chosen chosen) {
    Block team(sh);
    Columns source(team, chosen);
    Place place = place_of(b, v, row_index);
    verify_row(b, v, row_index, resolve(b, row_index), place, draft_of(b, v, row_index, place), source, chosen.largest,
               chosen.status());
}

__device__ __noinline__ void finish_block(const RowBlock& b, const VerifyBlock& v, Shared& sh) {
    Block team(sh);
    finish_row(b, v, team);
}

template <u32 DTYPE>
__device__ __forceinline__ void sample_columns(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    __shared__ Shared sh;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = crew.row_index;
    Reading<DTYPE> reading(b, crew, load_index_or_self(b.gather, b.gather_width, row_index));
    Resolved found = resolve(b, row_index);
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    lists.clear();
    if (found.state != ROW_LIVE) {
        crew.wait();
        if (found.state == ROW_BAD && crew.rank == 0) store_bad(b, row_index, Block(sh));
        return;
    }
    reading.list(b, desk, lists, crew, found.mask);
    // Peers may still be sending this block's lists.
    if (crew.rank != 0) return crew.wait();
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    chosen.choose<DTYPE>(b, crew, memory);
    crew.wait();
    sample_chosen(b, sh, row_index, chosen);
}

template <u32 DTYPE>
__device__ __forceinline__ void verify_columns(const RowBlock& b, const VerifyBlock& v) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    __shared__ Shared sh;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = crew.row_index;
    Reading<DTYPE> reading(b, crew, load_index_or_self(b.gather, b.gather_width, row_index));
    Place place;
    Draft draft;
    Resolved found = resolve_verified(b, v, row_index, &place, &draft);
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    lists.clear();
    if (found.state != ROW_LIVE) {
        crew.wait();
        if (crew.rank != 0) return;
        Block team(sh);
        if (writes_scalars(team)) store<i32>(v.row_accepts, row_index, 0);
        if (found.state == ROW_BAD) store_bad(b, row_index, team);
        return finish_block(b, v, sh);
    }
    reading.list(b, desk, lists, crew, found.mask);
    // Peers may still be sending this block's lists.
    if (crew.rank != 0) return crew.wait();
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    chosen.choose<DTYPE>(b, crew, memory);
    crew.wait();
    verify_chosen(b, v, sh, row_index, chosen);
    finish_block(b, v, sh);
}
