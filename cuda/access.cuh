// Reading and writing what a block points at, and what a row's indices say.

// Element i of an array of i32 (width 4) or i64.
__device__ __forceinline__ i64 load_index(u64 array, u64 width, u64 i) {
    return width == SD_WIDTH_I32 ? (i64)((const i32*)array)[i] : ((const i64*)array)[i];
}

// The same, i itself where there is no array.
__device__ __forceinline__ i64 load_index_or_self(u64 array, u64 width, u64 i) {
    return array == 0 ? (i64)i : load_index(array, width, i);
}

// Writes element i of an output, unless it is not wanted.
template <class T>
__device__ __forceinline__ void store(u64 array, u64 i, T value) {
    if (array != 0) ((T*)array)[i] = value;
}

__device__ __forceinline__ bool in_range(i64 index, u64 count) { return index >= 0 && (u64)index < count; }

// What a row is processed with, and where it lies.
struct Params {
    float scale, min_exponent;
    u64 top_p, top_k, seed;
    bool top_k_first;
};

enum RowState { ROW_PADDING, ROW_BAD, ROW_LIVE };

struct Resolved {
    RowState state;
    Params params;
    // Start of the row's values; the row's mask or 0; the ids of its columns or 0.
    u64 values, mask, ids;
    // Status bits Select found.
    i32 known;
};

// Address of the first element of the logits of row `row`.
__device__ __forceinline__ u64 logits_at(const RowBlock& b, u64 logits_row) {
    return b.logits + logits_row * b.logits_stride * (b.logits_dtype == SD_DTYPE_F32 ? 4 : 2);
}

// The token `row` must output, -1 if none.
__device__ __forceinline__ i64 forced_token(const RowBlock& b, u64 row) {
    return b.golden == 0 ? -1 : load_index(b.golden, b.golden_width, row);
}

__device__ __forceinline__ Resolved resolve(const RowBlock& b, u64 row) {
    Resolved r = {};
    r.state = ROW_BAD;
    i64 slot_index = load_index_or_self(b.row_to_slot, b.row_to_slot_width, row);
    if (slot_index == -1) {
        r.state = ROW_PADDING;
        return r;
    }
    if (!in_range(slot_index, b.slot_count)) return r;
    const SlotBlock slot = ((const SlotBlock*)b.slots)[slot_index];
    float min_exponent = __uint_as_float((u32)slot.min_exponent);
    bool excluded = (slot.top_k != SD_TOP_K_OFF && !(b.filters & SD_FILTER_TOP_K)) ||
                    (slot.top_p != SD_TOP_P_OFF && !(b.filters & SD_FILTER_TOP_P)) ||
                    (min_exponent != MINUS_INF && !(b.filters & SD_FILTER_MIN_P)) ||
                    (slot.top_k != 1 && (b.filters & SD_FILTER_ALL_GREEDY));
    if (slot.live == 0 || excluded) return r;
    i64 golden = forced_token(b, row);
    if (golden < -1 || golden >= (i64)b.vocab) return r;
    r.params = Params{__uint_as_float((u32)slot.scale), min_exponent, slot.top_p, slot.top_k, slot.seed,
                      slot.top_k_first != 0};
    if (b.from_columns != 0) {
        r.known = ((const i32*)b.column_status)[row];
        if (r.known & SD_STATUS_BAD_INDEX) return r;
        r.values = b.column_values + row * b.columns * 4;
        r.ids = b.column_ids + row * b.columns * 4;
        r.state = ROW_LIVE;
        return r;
    }
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row);
    if (!in_range(logits_row, b.logits_rows)) return r;
    if (b.mask != 0) {
        i64 mask_row = load_index_or_self(b.mask_index, b.mask_index_width, row);
        if (mask_row != -1) {
            if (!in_range(mask_row, b.mask_rows)) return r;
            r.mask = b.mask + (u64)mask_row * b.mask_stride * 4;
        }
    }
    r.values = logits_at(b, (u64)logits_row);
    r.state = ROW_LIVE;
    return r;
}

// The draw bits of `row`: `base` is its entry in the positions, `offset` its distance from there.
__device__ __forceinline__ u64 draw_bits(const RowBlock& b, u64 row, u64 base, u64 offset, u64 seed, u64 which) {
    if (b.bits != 0) return ((const u64*)b.bits)[3 * row + which];
    u64 position = (u64)((const i64*)b.positions)[base];
    if (b.position_offsets != 0) position += (u64)(i64)((const i32*)b.position_offsets)[base];
    position += b.position_add + offset;
    return splitmix64(seed + b.seed_add, position * 3 + which) >> (64 - SD_DRAW_BITS);
}

__device__ __forceinline__ void store_token(const RowBlock& b, u64 row, i64 token) {
    if (b.tokens_width == SD_WIDTH_I32) store<i32>(b.tokens, row, (i32)token);
    else store<i64>(b.tokens, row, token);
}

// Where a row stands in its request.
struct Place {
    RowState state;
    u64 request, local_step;
    bool is_last;
};

// First row of a request and one past its last; false if they do not lie within the step.
__device__ __forceinline__ bool request_rows(const RowBlock& b, const VerifyBlock& v, u64 request, u64* first, u64* end) {
    i64 from = ((const i32*)v.first_rows)[request], to = ((const i32*)v.first_rows)[request + 1];
    *first = (u64)from;
    *end = (u64)to;
    return 0 <= from && from <= to && to <= (i64)b.rows;
}

__device__ __forceinline__ Place place_of(const RowBlock& b, const VerifyBlock& v, u64 row) {
    i64 request = load_index(v.row_to_request, v.row_to_request_width, row);
    if (request == -1) return Place{ROW_PADDING, 0, 0, false};
    u64 first, end;
    if (!in_range(request, v.requests) || !request_rows(b, v, (u64)request, &first, &end) || row < first || row >= end)
        return Place{ROW_BAD, 0, 0, false};
    return Place{ROW_LIVE, (u64)request, row - first, row + 1 == end};
}

// The pool row the draft of `row` reads, -1 when it is out of range.
__device__ __forceinline__ i64 draft_row(const VerifyBlock& v, u64 row) {
    i64 index = load_index_or_self(v.draft_rows, v.draft_rows_width, row);
    return in_range(index, v.pool_rows) ? index : -1;
}
