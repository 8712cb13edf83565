// One row, processed: the N columns, the kept prefix, its mass, and everything read off them.

// Parameters that filter nothing, at temperature 1.
__device__ __forceinline__ Params keep_all() {
    return Params{SD_LOG2_E, MINUS_INF, SD_TOP_P_OFF, SD_TOP_K_OFF, 0, false};
}

template <class SourceType>
struct Row {
    typedef SourceType Source;
    const Source& source;
    float max, scale;
    // The N columns; the kept tokens, meaningless when `total` is 0.
    Cut columns, kept;
    u64 kept_count, total;
    float log2_mass;
    i32 status;
    // The masses of the kept tokens, warp by warp.
    Span span;

    __device__ explicit Row(const Source& s) : source(s) {}

    __device__ __forceinline__ float exponent(float x) const {
        if (max == PLUS_INF) return x == PLUS_INF ? 0.0f : MINUS_INF;
        return __fmul_rn(__fsub_rn(x, max), scale);
    }

    __device__ __forceinline__ u64 mass(float x) const { return mass_of_exponent(exponent(x)); }

    __device__ __forceinline__ bool keeps(u32 id, float x) const { return kept.has(key_of(x), id); }

    __device__ void process(u64 n, const Params& params, i32 known) {
        status = known;
        scale = params.scale;
        columns = CUT_ALL;
        kept = CUT_ALL;
        kept_count = total = 0;
        log2_mass = 0.0f;
        span = Span{0, 0, 0};
        max = row_max(source, &status);
        if (n < source.len) columns = cut_by_count(source, CUT_ALL, n);
        if (max == MINUS_INF) {
            status |= SD_STATUS_EMPTY_ROW;
            return;
        }
        filter(params);
        u64 count = 0, own = 0;
        source.each([&](u32, u32 id, float x) {
            if (keeps(id, x)) {
                count += 1;
                own += mass(x);
            }
        });
        kept_count = team_sum(source.team, count);
        span = team_span(source.team, warp_sum(own));
        total = span.total;
        log2_mass = log2_total(total);
    }

    // What every filter keeps is a prefix of the order, so all of them together keep the shortest.
    __device__ void filter(const Params& params) {
        Cut first_k = params.top_k == SD_TOP_K_OFF ? columns : cut_by_count(source, columns, params.top_k);
        kept = shorter(shorter(columns, first_k), finite_and_min_p(params.min_exponent));
        if (params.top_p != SD_TOP_P_OFF) {
            Cut whole = params.top_k_first ? first_k : columns;
            u64 own = 0;
            source.each([&](u32, u32 id, float x) {
                if (whole.has(key_of(x), id)) own += mass(x);
            });
            u64 limit = multiply_shift(team_sum(source.team, own), params.top_p, 32);
            kept = shorter(kept, cut_by_mass(source, columns, limit, [&](float x) { return mass(x); }));
        }
    }

    // The prefix of tokens whose exponent is above -inf and at least `min_exponent`.
    __device__ Cut finite_and_min_p(float min_exponent) {
        u32 inverted = 0;
        source.each([&](u32, u32 id, float x) {
            u32 k = key_of(x);
            float t = exponent(x);
            if (t > MINUS_INF && t >= min_exponent && columns.has(k, id) && ~k > inverted) inverted = ~k;
        });
        return Cut{~(u32)team_max(source.team, inverted), 0xffffffffu};
    }

    // The value of a token, if it is kept.
    __device__ bool kept_value(i64 id, float* x) const {
        if (total == 0) return false;
        i64 index = source.find(id);
        if (index < 0) return false;
        *x = source.at((u32)index);
        return keeps((u32)id, *x);
    }

    __device__ bool has_column(i64 id) const {
        i64 index = source.find(id);
        return index >= 0 && columns.has(key_of(source.at((u32)index)), (u32)id);
    }

    // Mass of a token, 0 if it is not kept.
    __device__ u64 mass_of(i64 id) const {
        float x;
        return kept_value(id, &x) ? mass(x) : 0;
    }

    // The kept token that `bits` draws, -1 for an empty row.
    __device__ i64 draw(u64 bits) const {
        if (total == 0) return -1;
        i64 index = locate(source, span, scale_bits(bits, total),
                           [&](u32, u32 id, float x) { return keeps(id, x) ? mass(x) : 0ull; });
        return index < 0 ? -1 : (i64)source.id_at((u32)index);
    }

    __device__ float logprob_of(float x) const { return logprob_of_exponent(exponent(x), log2_mass); }

    // Logprob of a token, -inf if it is not kept.
    __device__ float logprob(i64 id) const {
        float x;
        return kept_value(id, &x) ? logprob_of(x) : MINUS_INF;
    }

    // Rank of a token from 1, 0 if it is not kept.
    __device__ i32 rank(i64 id) const {
        float x;
        if (!kept_value(id, &x)) return 0;
        u32 own = key_of(x);
        u64 ahead = 0;
        // Every token ahead of a kept one is kept.
        source.each([&](u32, u32 other, float y) {
            u32 k = key_of(y);
            ahead += k > own || (k == own && other < (u32)id) ? 1 : 0;
        });
        return (i32)(team_sum(source.team, ahead) + 1);
    }

    // Probability of the tokens up to `id`, least likely first.
    __device__ float sum_smaller(i64 id) const {
        float x;
        if (!kept_value(id, &x)) return 0.0f;
        float own = exponent(x);
        u64 sum = 0;
        source.each([&](u32, u32 other, float y) {
            if (keeps(other, y)) {
                float t = exponent(y);
                if (t < own || (t == own && (i64)other <= id)) sum += mass(y);
            }
        });
        return ratio(team_sum(source.team, sum), total);
    }
};
