// The warp of pipe.cuh that sends what a block has found of a row to the row's lead.

#if __CUDA_ARCH__ >= 900

// Sends what this block has found of a row, which the mass warps have left, to the row's lead.
__device__ __forceinline__ void send(Pipe& pipe, u32 row, u32 slot) {
    const Rows& rows = pipe.rows;
    const Task& task = pipe.tasks[slot];
    u32 lead = row % rows.blocks, turn = row / rows.blocks, mail = turn & 1, half = row & 1;
    bool lists = task.road == ROAD_CUT;
    await_credit(pipe, lead, turn);
    // The mass warps' lists are in memory before their lengths are known to the lead.
    if (lists) __threadfence();
    Mail& to = pipe.mails[mail];
    if (lane_id() < MASS_WARPS) {
        const Report& report = pipe.reports[half][lane_id()];
        u32 part = rows.rank * MASS_WARPS + lane_id();
        push(lead, &to.sums[part], report.mass, &pipe.mailed[mail]);
        if (lists) push(lead, &to.listed[part], report.listed, &pipe.mailed[mail]);
    }
    u32 share = rows.candidates_each(), count = pipe.found_count[half];
    if (lane_id() == MASS_WARPS)
        push(lead, &to.facts[rows.rank], Fact::of(task.max, task.nan, task.work == WORK_IDLE, count).word, &pipe.mailed[mail]);
    if (lane_id() == MASS_WARPS + 1 && (lists || task.road == ROAD_LIST) && rows.rank == lead) {
        u32 largest = task.high == PLUS_INF ? key_of(task.max) : key_of(task.high) - 1;
        if (task.road == ROAD_CUT && task.work == WORK_MASS_AND_COLLECT) largest = 0;
        push(lead, &to.window, (u64)largest << 32 | key_of(task.least), &pipe.mailed[mail]);
    }
    if (count == 0) return;
    for (u32 i = lane_id(); task.road == ROAD_LIST && i < min(count, share); i += 32)
        push(lead, &to.candidates[rows.rank * share + i], pipe.found[half][i], &pipe.listed[mail]);
    __syncwarp();
    if (lane_id() == 0) pipe.found_count[half] = 0;
}

__device__ __forceinline__ void send_all(Pipe& pipe) {
    const Rows& rows = pipe.rows;
    cluster_wait_started();
    for (u32 j = 0, slot = 0, parity = 0; j < rows.count; j++) {
        completion_wait_own(&pipe.left[slot], parity);
        send(pipe, j, slot);
        completion_arrive(&pipe.sent[j & 1]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
}

#endif
