// Writing a row's results: every slot that a row owns is written, for a bad row too.

// Top lists up to this long are put in order in shared memory, longer ones where they lie.
constexpr u32 SORT_IN_SHARED = COUNT_BINS / 2;

// Puts `n` (id, value) pairs into the order of tokens, by one block: a bitonic network over the next power of two, in
// which pairs past the end count as last.
__device__ void sort_tokens(i32* ids, float* values, u32 n) {
    u32 padded = 1;
    while (padded < n) padded <<= 1;
    for (u32 size = 2; size <= padded; size <<= 1) {
        for (u32 stride = size >> 1; stride > 0; stride >>= 1) {
            team_barrier();
            for (u32 p = thread_id(); p < padded / 2; p += thread_count()) {
                u32 low = 2 * p - (p & (stride - 1));
                // The first step of a merge compares mirrored places, so that every merge runs upwards and pairs past
                // the end never move.
                u32 high = stride == size >> 1 ? low ^ (size - 1) : low + stride;
                if (high >= n) continue;
                u32 a = key_of(values[low]), b = key_of(values[high]);
                if (b > a || (b == a && ids[high] < ids[low])) {
                    i32 id = ids[low];
                    float value = values[low];
                    ids[low] = ids[high];
                    values[low] = values[high];
                    ids[high] = id;
                    values[high] = value;
                }
            }
        }
    }
    team_barrier();
}

// Fills the team's share of `n` elements.
template <class Team, class T>
__device__ void team_fill(const Team& team, T* at, u64 from, u64 n, T value) {
    for (u64 i = from + team.rank() * thread_count() + thread_id(); i < n; i += (u64)team.size() * thread_count()) at[i] = value;
}

// The first kept tokens of the order with their logprobs; unused entries are -1 and -inf.
template <class R>
__device__ void store_top(const RowBlock& b, u64 row_index, const R& row) {
    auto& team = row.source.team;
    u64 width = b.top_width;
    i32* ids = (i32*)b.top_ids + row_index * width;
    float* logprobs = (float*)b.top_logprobs + row_index * width;
    u64 used = 0;
    if (row.total > 0) {
        Cut wanted = shorter(row.cut, cut_by_count(row.source, row.cut, width));
        used = compact(
            row.source, [&](u32, u32 id, float x) { return wanted.has(key_of(x), id) && row.keeps(id, x); },
            [&](u64 place, u32, u32 id, float x) {
                ids[place] = (i32)id;
                logprobs[place] = x;
            });
    }
    team_fill(team, ids, used, width, -1);
    team_fill(team, logprobs, used, width, MINUS_INF);
    team.sync();
    if (team.rank() == 0) {
        // The list is taken in one stride a thread when it goes through shared memory.
        bool in_shared = used <= SORT_IN_SHARED;
        i32* own_ids = in_shared ? team.sh.top.ids : ids;
        float* own_values = in_shared ? team.sh.top.values : logprobs;
        if (in_shared) {
            for (u32 i = thread_id(); i < used; i += thread_count()) own_ids[i] = ids[i], own_values[i] = logprobs[i];
        }
        sort_tokens(own_ids, own_values, (u32)used);
        for (u32 i = thread_id(); i < used; i += thread_count()) {
            ids[i] = own_ids[i];
            logprobs[i] = row.logprob_of(own_values[i]);
        }
        if (thread_id() == 0) store<i32>(b.top_counts, row_index, (i32)used);
    }
}

// Processed logprobs of the N columns, ascending id.
template <class R>
__device__ void store_dense(const RowBlock& b, u64 row_index, const R& row) {
    u64 start = row_index * b.dense_stride;
    auto write = [&](u64 place, u32, u32 id, float x) {
        store<float>(b.dense, start + place, row.total > 0 && row.keeps(id, x) ? row.logprob_of(x) : MINUS_INF);
        store<i32>(b.dense_ids, start + place, (i32)id);
    };
    if (b.columns == row.source.len) {
        row.source.each([&](u32 i, u32 id, float x) { write(i, i, id, x); });
    } else {
        compact(row.source, [&](u32, u32 id, float x) { return row.columns.has(key_of(x), id); }, write);
    }
}

// Ids of the kept tokens, ascending, then -1.
template <class R>
__device__ void store_kept(const RowBlock& b, u64 row_index, const R& row) {
    i32* ids = (i32*)b.kept_ids + row_index * b.kept_width;
    u64 used = 0;
    if (row.total > 0) {
        used = compact(
            row.source, [&](u32, u32 id, float x) { return row.keeps(id, x); },
            [&](u64 place, u32, u32 id, float) {
                if (place < b.kept_width) ids[place] = (i32)id;
            });
    }
    team_fill(row.source.team, ids, used, b.kept_width, -1);
}

// Logprob of `token` under the logits as handed in: temperature 1, no mask, no filter.
template <class Source>
__device__ float raw_logprob(const RowBlock& b, u64 row_index, typename Source::Team& team, i64 token) {
    if (token < 0) return MINUS_INF;
    u64 logits_row = (u64)load_index_or_self(b.gather, b.gather_width, row_index);
    Global<typename Source::Team> source(team, logits_at(b, logits_row), 0, 0, b.logits_dtype, b.vocab);
    Row<Global<typename Source::Team>> row(source);
    i32 status = 0;
    float max = row_max(source, &status);
    row.process(b.vocab, keep_all(), max, status);
    return row.logprob(token);
}

// One thread of the team writes the slots that hold a single value.
template <class Team>
__device__ __forceinline__ bool writes_scalars(const Team& team) {
    return team.rank() == 0 && thread_id() == 0;
}

// A row that could not be processed.
template <class Team>
__device__ __noinline__ void store_bad(const RowBlock& b, u64 row_index, const Team& team) {
    if (writes_scalars(team)) {
        store_token(b, row_index, -1);
        store<i32>(b.status, row_index, SD_STATUS_BAD_INDEX);
        store<float>(b.logprobs, row_index, MINUS_INF);
        store<i32>(b.ranks, row_index, 0);
        store<i32>(b.kept_counts, row_index, 0);
        store<float>(b.raw_logprobs, row_index, MINUS_INF);
        store<float>(b.sum_smaller_probs, row_index, 0.0f);
        store<i32>(b.top_counts, row_index, 0);
    }
    if (b.kept_ids != 0) team_fill(team, (i32*)b.kept_ids + row_index * b.kept_width, 0, b.kept_width, -1);
    if (b.top_ids != 0) team_fill(team, (i32*)b.top_ids + row_index * b.top_width, 0, b.top_width, -1);
    if (b.top_logprobs != 0)
        team_fill(team, (float*)b.top_logprobs + row_index * b.top_width, 0, b.top_width, MINUS_INF);
    if (b.dense != 0) {
        team_fill(team, (float*)b.dense + row_index * b.dense_stride, 0, b.columns, MINUS_INF);
        if (b.dense_ids != 0) team_fill(team, (i32*)b.dense_ids + row_index * b.dense_stride, 0, b.columns, -1);
    }
}

// A processed row and its token.
template <class R>
__device__ void store_row(const RowBlock& b, u64 row_index, const R& row, i64 token, i32 status) {
    auto& team = row.source.team;
    bool scalars = writes_scalars(team);
    if (scalars) {
        store_token(b, row_index, token);
        store<i32>(b.status, row_index, status);
        if (b.logprobs != 0) store<float>(b.logprobs, row_index, row.logprob(token));
    }
    if (b.kept_counts != 0) {
        i32 count = row.kept_count();
        if (scalars) store<i32>(b.kept_counts, row_index, count);
    }
    if (b.ranks != 0) {
        i32 rank = row.rank(token);
        if (scalars) store<i32>(b.ranks, row_index, rank);
    }
    if (b.sum_smaller_probs != 0) {
        float sum = row.sum_smaller(token);
        if (scalars) store<float>(b.sum_smaller_probs, row_index, sum);
    }
    if (b.raw_logprobs != 0) {
        float raw = raw_logprob<typename R::Source>(b, row_index, team, token);
        if (scalars) store<float>(b.raw_logprobs, row_index, raw);
    }
    if (b.top_width != 0) store_top(b, row_index, row);
    if (b.dense != 0) store_dense(b, row_index, row);
    if (b.kept_ids != 0) store_kept(b, row_index, row);
}
