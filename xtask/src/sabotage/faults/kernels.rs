//! Faults in the CUDA kernels, which the model runs: an order that nothing keeps, a wait for something else, other numbers.

use super::Fault;

const STEPS: &str = "--test cuda_model --features=cuda random_steps_are";
const SERVED: &str = "--test cuda_model --features=cuda served_steps_in_resident_clusters_of_two";
const GREEDY: &str = "--test cuda_model --features=cuda greedy_steps";

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "candidates_over_bins",
        breaks: "what peers push does not lie over what slow warps still read",
        file: "cuda/team.cuh",
        find: "u64 masses[COUNT_BINS / 4], order[COUNT_BINS / 4];",
        replace: "u64 order[COUNT_BINS / 4], masses[COUNT_BINS / 4];",
        tests: STEPS,
        quick: true,
    },
    Fault {
        name: "list_before_credit",
        breaks: "a list is written once its lead has read the one before it",
        file: "cuda/masses.cuh",
        find: "            await_credit(pipe, turn);",
        replace: "",
        tests: SERVED,
        quick: false,
    },
    Fault {
        name: "no_credit",
        breaks: "a lead says that it is done with a row's mail",
        file: "cuda/lead.cuh",
        find: "if (thread_id() < rows.blocks) completion_arrive_at(",
        replace: "if (thread_id() + 1 < rows.blocks) completion_arrive_at(",
        tests: SERVED,
        quick: false,
    },
    Fault {
        name: "sums_unawaited",
        breaks: "sums of a cluster are read once every block has sent its own",
        file: "cuda/exchange.cuh",
        find: "completion_wait(exchange);",
        replace: "",
        tests: STEPS,
        quick: false,
    },
    Fault {
        name: "chunk_unawaited",
        breaks: "a part of a copy is read once it has arrived",
        file: "cuda/tile.cuh",
        find: "if (to > copied) completion_wait(arrivals + c, parity);",
        replace: "if (to > copied) completion_wait(arrivals, parity);",
        tests: STEPS,
        quick: false,
    },
    Fault {
        name: "count_not_atomic",
        breaks: "of the blocks that finish one knows that it is the last",
        file: "cuda/verify.cuh",
        find: "sh.is_last = atomicAdd((u32*)b.scratch, 1u) + 1 == (u32)b.rows;",
        replace: "sh.is_last = ++*(u32*)b.scratch == (u32)b.rows;",
        tests: STEPS,
        quick: false,
    },
    Fault {
        name: "peers_unstarted",
        breaks: "nothing is pushed to a block that has not set its completions up",
        file: "cuda/argmax_stream.cu",
        find: "if (blocks > 1) cluster_wait_started();",
        replace: "",
        tests: GREEDY,
        quick: false,
    },
    Fault {
        name: "kernel_zeros_apart",
        breaks: "both zeros are one value in the kernels' order",
        file: "cuda/source.cuh",
        find: "u32 bits = __float_as_uint(__fadd_rn(x, 0.0f));",
        replace: "u32 bits = __float_as_uint(x);",
        tests: STEPS,
        quick: true,
    },
];
