// Drafts judged by the lead, once it knows the masses of a row. What a rejected draft that is a whole distribution leaves of a row is
// for the launch behind this one, which settles the requests: only then is it known which row of a request is its first rejected
// one, and all blocks are free for it.

#if __CUDA_ARCH__ >= 900

// What holds of a row whose draft is not accepted, by one thread, before others write of it.
__device__ __noinline__ void begin_verified(Pipe& pipe) {
    __builtin_assume(__isShared(&pipe));
    u32 row = pipe.ending.row_index;
    if (thread_id() != 0 || row >= pipe.block.rows) return;
    store<i32>(pipe.verify.row_accepts, row, 0);
    pending_of(pipe.block, row)->total = 0;
}

// A row behind a rejected one: all that is told of it is what its logits are.
__device__ __forceinline__ void store_idle(const RowBlock& b, const Ending& row) {
    if (thread_id() == 0) store<i32>(b.status, row.row_index, row.status);
}

// The verdict on a row's draft from the masses of the tokens within `cut`, and what is drawn from then. False where nothing is: the
// draft is accepted, or the row left to the launch behind this one.
template <u32 DTYPE>
__device__ __forceinline__ bool judge_by_lead(Pipe& pipe, const Cut& cut, Parts& parts) {
    const RowBlock& b = pipe.block;
    const Ending& row = pipe.ending;
    const Question& question = row.question;
    u32 id = (u32)question.id;
    u64 mass = cut.has(key_of(question.x), id) ? row.weight.kept_mass(question.x) : 0;
    Verdict verdict = judge(question, mass, parts.total);
    bool writes = thread_id() == 0;
    if (verdict == ACCEPTED) {
        if (writes) {
            store_drawn_by_lead(pipe, id, question.x, parts.total);
            store<i32>(pipe.verify.row_accepts, row.row_index, 1);
        }
        return false;
    }
    if (writes && is_rejected(question, verdict)) tell_rejection(b, row.place);
    if (verdict == DRAW_REST && question.kind == DRAFT_ROW) {
        if (writes) {
            *pending_of(b, row.row_index) = Pending{parts.total, cut, row.weight.max, row.status};
            // For a row that turns out to be behind a rejected one.
            store<i32>(b.status, row.row_index, row.status);
        }
        return false;
    }
    // The draft is one token, which cedes all of its mass; where that is all there is, it is drawn from as it is.
    if (verdict == DRAW_REST && mass != parts.total) {
        Copy<DTYPE> copy(0, row.found.values, b.vocab);
        u32 part = (id + copy.lead) / copy.part;
        parts.own -= thread_id() == part ? mass : 0;
        parts.before -= thread_id() > part ? mass : 0;
        parts.drawn -= mass;
        parts.without = id;
    }
    return true;
}

// The same, and the draw, from the ordered candidates.
__device__ __forceinline__ void conclude_few(Pipe& pipe, const Kept& kept, u64* rest) {
    const Ending& row = pipe.ending;
    conclude_list(pipe.block, pipe.verify, pipe.shared, row.row_index, row.place, row.weight, kept, row.question, row.draft, rest,
                  row.status);
}

#endif
