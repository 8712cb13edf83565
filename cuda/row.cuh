// One row, processed: the N columns, the kept prefix, its mass, and everything read off them.

// Parameters that filter nothing, at temperature 1.
__device__ __forceinline__ Params keep_all() {
    return Params{SD_LOG2_E, MINUS_INF, SD_TOP_P_OFF, SD_TOP_K_OFF, 0, false};
}

template <class SourceType>
struct Row {
    typedef SourceType Source;
    const Source& source;
    float max, scale, min_exponent;
    // The N columns; what top-k and top-p keep of them, meaningless when `total` is 0.
    Cut columns, cut;
    u64 total;
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

    // Whether a token is kept, in a row that is not empty.
    __device__ __forceinline__ bool keeps(u32 id, float x) const {
        float t = exponent(x);
        return t > MINUS_INF && t >= min_exponent && cut.has(key_of(x), id);
    }

    // `row_max` and `found` are what a scan of the row shows; `known`, if given, is what top-k and top-p keep.
    __device__ void process(u64 n, const Params& params, float row_max, i32 found, const Cut* known = 0) {
        status = found;
        max = row_max;
        scale = params.scale;
        min_exponent = params.min_exponent;
        columns = cut = CUT_ALL;
        total = 0;
        log2_mass = 0.0f;
        span = Span{0, 0, 0};
        if (n < source.len) columns = cut_by_count(source, CUT_ALL, n);
        if (max == MINUS_INF) {
            status |= SD_STATUS_EMPTY_ROW;
            return;
        }
        if (known != 0) cut = *known;
        else filter(params);
        span = masses_within(cut, min_exponent);
        total = span.total;
        log2_mass = log2_total(total);
    }

    // What every filter keeps is a prefix of the order, so all of them together keep the shortest.
    __device__ void filter(const Params& params) {
        Cut first_k = params.top_k == SD_TOP_K_OFF ? columns : cut_by_count(source, columns, params.top_k);
        cut = shorter(columns, first_k);
        if (params.top_p != SD_TOP_P_OFF) {
            u64 whole = masses_within(params.top_k_first ? first_k : columns, MINUS_INF).total;
            u64 limit = multiply_shift(whole, params.top_p, 32);
            cut = shorter(cut, cut_by_mass(source, columns, limit, [&](float x) { return mass(x); }));
        }
    }

    // Masses of the tokens within a prefix whose exponent is at least `lowest`.
    __device__ __noinline__ Span masses_within(Cut within, float lowest) const {
        u64 own = 0;
        if (within.key == 0 && lowest == MINUS_INF && max != PLUS_INF) {
            source.each_value([&](float x) { own += mass_of_exponent(__fmul_rn(__fsub_rn(x, max), scale)); });
        } else {
            source.each([&](u32, u32 id, float x) {
                if (within.has(key_of(x), id)) {
                    float t = exponent(x);
                    if (t >= lowest) own += mass_of_exponent(t);
                }
            });
        }
        return team_span(source.team, warp_sum(own));
    }

    // Number of kept tokens.
    __device__ i32 kept_count() const {
        u64 count = 0;
        if (total > 0) source.each([&](u32, u32 id, float x) { count += keeps(id, x) ? 1 : 0; });
        return (i32)team_sum(source.team, count);
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
