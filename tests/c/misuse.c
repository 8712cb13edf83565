/* Every function, misused: null pointers, sizes that no struct has, counts without end, types and handles that are none,
 * a second thread. Each gives an error that says what was wrong; none crashes, none changes what is there. */
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

enum { ROWS = 4, VOCAB = 64 };

static samedraw_device *device;
static samedraw_table *table;
static samedraw_sampler *sampler;
static float logits_data[ROWS][VOCAB];
static int64_t positions[ROWS] = {1, 2, 3, 4};
static int32_t tokens[ROWS];

static samedraw_logits logits;
static samedraw_outputs outputs;
static samedraw_verify verify;
static samedraw_drafts drafts;
static samedraw_step step;
static int32_t first_rows[2] = {0, ROWS}, zeros[ROWS], accepted[1];

/* The structs of a step that is in order, with verification beside it. */
static void fresh(void) {
    memset(&logits, 0, sizeof logits);
    logits.size = sizeof logits;
    logits.data = logits_data;
    logits.rows = ROWS;
    logits.vocab = logits.stride = VOCAB;
    memset(&outputs, 0, sizeof outputs);
    outputs.size = sizeof outputs;
    outputs.tokens = tokens;
    outputs.tokens_width = 4;
    memset(&drafts, 0, sizeof drafts);
    drafts.size = sizeof drafts;
    drafts.logprobs = &logits_data[0][0];
    drafts.stride = drafts.width = VOCAB;
    drafts.pool_rows = ROWS;
    memset(&verify, 0, sizeof verify);
    verify.size = sizeof verify;
    verify.mode = SAMEDRAW_REJECTION;
    verify.requests = 1;
    verify.first_rows = first_rows;
    verify.row_to_request = zeros;
    verify.draft_ids = zeros;
    verify.row_to_request_width = verify.draft_ids_width = 4;
    verify.position_stride = SAMEDRAW_POSITIONS_SEQUENTIAL;
    verify.drafts = &drafts;
    verify.accepted = accepted;
    memset(&step, 0, sizeof step);
    step.size = sizeof step;
    step.logits = &logits;
    step.rows = ROWS;
    step.outputs = &outputs;
    step.positions = positions;
}

/* The step with one thing changed is refused, as a step, as a capture and as a recording. */
#define BAD(change, status, text)                                                                      \
    do {                                                                                               \
        fresh();                                                                                       \
        change;                                                                                        \
        samedraw_captured *captured = NULL;                                                            \
        REFUSED(samedraw_sampler_step(sampler, NULL, &step), status, text);                            \
        REFUSED(samedraw_sampler_capture(sampler, (void *)1, &step, 0, &captured), status, text);      \
        REFUSED(samedraw_sampler_record(sampler, NULL, &step, "/nowhere/x", SIZE_MAX), status, text);  \
        CHECK(captured == NULL);                                                                       \
    } while (0)

static void steps(void) {
    BAD(step.logits = NULL, SAMEDRAW_NULL_POINTER, "samedraw_logits is a null pointer");
    BAD(step.outputs = NULL, SAMEDRAW_NULL_POINTER, "samedraw_outputs is a null pointer");
    BAD(logits.data = NULL, SAMEDRAW_NULL_POINTER, "logits is a null pointer");
    BAD(step.positions = NULL, SAMEDRAW_NULL_POINTER, "positions");
    BAD(step.size = 0, SAMEDRAW_STRUCT_SIZE, "samedraw_step.size = 0 is refused");
    BAD(step.size = SIZE_MAX, SAMEDRAW_STRUCT_SIZE, "samedraw_step.size = 18446744073709551615 is refused");
    BAD(logits.size = 8, SAMEDRAW_STRUCT_SIZE, "samedraw_logits.size = 8");
    BAD(outputs.size = 1 << 20, SAMEDRAW_STRUCT_SIZE, "samedraw_outputs.size = 1048576");
    BAD(logits.dtype = 3, SAMEDRAW_ARGUMENT, "dtype = 3 is refused: 0 to 2");
    BAD(logits.reserved = 1, SAMEDRAW_ARGUMENT, "samedraw_logits.reserved = 1");
    BAD(step.reserved = 1, SAMEDRAW_ARGUMENT, "samedraw_step.reserved = 1");
    BAD(outputs.reserved = 1, SAMEDRAW_ARGUMENT, "samedraw_outputs.reserved = 1");
    BAD(logits.data = (char *)logits_data + 1, SAMEDRAW_ARGUMENT, "aligned to its elements");
    BAD(outputs.tokens_width = 2, SAMEDRAW_ARGUMENT, "tokens_width = 2 is refused: 4 or 8");
    BAD((step.gather = zeros, step.gather_width = 16), SAMEDRAW_ARGUMENT, "gather_width = 16");
    BAD((step.row_to_slot = zeros), SAMEDRAW_ARGUMENT, "row_to_slot_width = 0");
    BAD((step.golden = zeros, step.golden_width = 5), SAMEDRAW_ARGUMENT, "golden_width = 5");
    BAD(step.filters = 1, SAMEDRAW_ARGUMENT, "filters = 1 is refused where has_filters is 0");
    BAD((step.filters = 16, step.has_filters = 1), SAMEDRAW_ARGUMENT, "filters = 0x10");
    BAD(step.has_filters = 2, SAMEDRAW_ARGUMENT, "has_filters = 2");
    BAD(step.has_draft_step = 7, SAMEDRAW_ARGUMENT, "has_draft_step = 7");

    static samedraw_slot own[1];
    BAD((step.slots = own, step.slot_count = SIZE_MAX), SAMEDRAW_ARGUMENT, "slots");
    BAD((step.slots = own, step.slot_count = 1), SAMEDRAW_ARGUMENT, "table slots = 1");

    /* Counts without end. */
    BAD(step.rows = 0, SAMEDRAW_ARGUMENT, "rows = 0");
    BAD(step.rows = SIZE_MAX, SAMEDRAW_ARGUMENT, "rows = 18446744073709551615 is refused");
    BAD(logits.rows = SIZE_MAX, SAMEDRAW_ARGUMENT, "logits rows");
    BAD(logits.vocab = SIZE_MAX, SAMEDRAW_ARGUMENT, "vocab");
    BAD(logits.stride = SIZE_MAX, SAMEDRAW_ARGUMENT, "within the address space");
    BAD(step.force_topk = VOCAB - 1, SAMEDRAW_ARGUMENT, "force_topk = 63 is refused: at most the sampler's limit = 0");
    BAD((step.mask = zeros, step.mask_rows = ROWS, step.mask_stride = SIZE_MAX), SAMEDRAW_ARGUMENT, "mask rows");
    BAD((step.mask = zeros, step.mask_rows = SIZE_MAX, step.mask_stride = 2), SAMEDRAW_ARGUMENT, "mask rows");
    BAD((step.mask = zeros, step.mask_rows = ROWS, step.mask_stride = 1), SAMEDRAW_ARGUMENT, "mask stride = 1");
    BAD((step.mask_index = zeros, step.mask_index_width = 4), SAMEDRAW_ARGUMENT, "without a mask");
    float floats[1];
    BAD((outputs.top_ids = zeros, outputs.top_logprobs = floats, outputs.top_width = SIZE_MAX), SAMEDRAW_ARGUMENT, "top_logprobs width");
    BAD((outputs.top_ids = zeros, outputs.top_logprobs = floats), SAMEDRAW_ARGUMENT, "top_logprobs width = 0");
    BAD((outputs.top_logprobs = floats), SAMEDRAW_ARGUMENT, "top_logprobs is given without");
    BAD((outputs.top_ids = zeros, outputs.top_width = 1), SAMEDRAW_NULL_POINTER, "top_logprobs logprobs");
    BAD((outputs.dense = floats, outputs.dense_stride = SIZE_MAX), SAMEDRAW_ARGUMENT, "dense");
    BAD((outputs.dense = floats, outputs.dense_stride = VOCAB - 1), SAMEDRAW_ARGUMENT, "dense stride = 63");
    BAD((outputs.dense_ids = zeros), SAMEDRAW_ARGUMENT, "dense_ids is given without");
    BAD((outputs.kept_ids = zeros, outputs.kept_width = SIZE_MAX), SAMEDRAW_ARGUMENT, "kept width");
    BAD((outputs.column_ids = zeros), SAMEDRAW_ARGUMENT, "column_ids is given without");
    BAD((outputs.column_values = floats, outputs.column_ids = zeros), SAMEDRAW_ARGUMENT, "force_topk");
}

static void verifications(void) {
#define BAD_VERIFY(change, status, text) BAD((step.verify = &verify, change), status, text)
    BAD_VERIFY(verify.size = 1, SAMEDRAW_STRUCT_SIZE, "samedraw_verify.size = 1");
    BAD_VERIFY(drafts.size = 1, SAMEDRAW_STRUCT_SIZE, "samedraw_drafts.size = 1");
    BAD_VERIFY(verify.mode = 3, SAMEDRAW_ARGUMENT, "mode = 3 is refused: 0 to 2");
    BAD_VERIFY(verify.reserved = 1, SAMEDRAW_ARGUMENT, "samedraw_verify.reserved");
    BAD_VERIFY(drafts.reserved = 1, SAMEDRAW_ARGUMENT, "samedraw_drafts.reserved");
    BAD_VERIFY(verify.requests = SIZE_MAX, SAMEDRAW_ARGUMENT, "requests to verify");
    BAD_VERIFY(verify.first_rows = NULL, SAMEDRAW_NULL_POINTER, "first_rows");
    BAD_VERIFY(verify.row_to_request = NULL, SAMEDRAW_NULL_POINTER, "row_to_request");
    BAD_VERIFY(verify.draft_ids = NULL, SAMEDRAW_NULL_POINTER, "draft_ids");
    BAD_VERIFY(verify.draft_ids_width = 0, SAMEDRAW_ARGUMENT, "draft_ids_width = 0");
    BAD_VERIFY(verify.position_stride = 2, SAMEDRAW_ARGUMENT, "position_stride = 2");
    BAD_VERIFY(verify.accepted = NULL, SAMEDRAW_NULL_POINTER, "accepted");
    BAD_VERIFY((verify.accept_index = zeros, verify.accept_width = SIZE_MAX), SAMEDRAW_ARGUMENT, "accept_index");
    BAD_VERIFY(verify.drafts = NULL, SAMEDRAW_NULL_POINTER, "drafts");
    BAD_VERIFY(verify.mode = SAMEDRAW_CHAIN, SAMEDRAW_ARGUMENT, "Chain does not use them");
    BAD_VERIFY(drafts.logprobs = NULL, SAMEDRAW_NULL_POINTER, "draft logprobs");
    BAD_VERIFY(drafts.width = SIZE_MAX, SAMEDRAW_ARGUMENT, "draft width");
    BAD_VERIFY(drafts.stride = SIZE_MAX, SAMEDRAW_ARGUMENT, "draft pool rows");
    BAD_VERIFY(drafts.pool_rows = SIZE_MAX, SAMEDRAW_ARGUMENT, "draft pool rows");
    BAD_VERIFY((drafts.rows = zeros, drafts.rows_width = 3), SAMEDRAW_ARGUMENT, "rows_width = 3");
    BAD_VERIFY((drafts.columns = zeros), SAMEDRAW_ARGUMENT, "do not remap");
    BAD_VERIFY(outputs.tokens = NULL, SAMEDRAW_NULL_POINTER, "tokens");
}

static void creation(void) {
    samedraw_device *other = NULL;
    REFUSED(samedraw_device_open(NULL, &other), SAMEDRAW_NULL_POINTER, "name");
    REFUSED(samedraw_device_open("cpu", NULL), SAMEDRAW_NULL_POINTER, "device");
    REFUSED(samedraw_device_open("tpu", &other), SAMEDRAW_UNSUPPORTED, "\"tpu\"");
    REFUSED(samedraw_device_open("cuda:x", &other), SAMEDRAW_UNSUPPORTED, "cuda:x");
    REFUSED(samedraw_device_open("\xff", &other), SAMEDRAW_ARGUMENT, "UTF-8");
    REFUSED(samedraw_device_open_cpu(0, &other), SAMEDRAW_ARGUMENT, "threads = 0");
    REFUSED(samedraw_device_open_cpu(SIZE_MAX, &other), SAMEDRAW_ARGUMENT, "threads = 18446744073709551615");
    STRUCT(samedraw_device_info, info);
    REFUSED(samedraw_device_describe(NULL, &info), SAMEDRAW_NULL_POINTER, "samedraw_device is a null pointer");
    REFUSED(samedraw_device_describe(device, NULL), SAMEDRAW_NULL_POINTER, "samedraw_device_info");
    info.size = 4;
    REFUSED(samedraw_device_describe(device, &info), SAMEDRAW_STRUCT_SIZE, "samedraw_device_info.size = 4");
    REFUSED(samedraw_device_synchronize(NULL, NULL), SAMEDRAW_NULL_POINTER, "samedraw_device");

    samedraw_table *no_table = NULL;
    REFUSED(samedraw_table_create(NULL, 1, &no_table), SAMEDRAW_NULL_POINTER, "samedraw_device");
    REFUSED(samedraw_table_create(device, 1, NULL), SAMEDRAW_NULL_POINTER, "table");
    REFUSED(samedraw_table_create(device, 0, &no_table), SAMEDRAW_ARGUMENT, "slots = 0");
    REFUSED(samedraw_table_create(device, SIZE_MAX, &no_table), SAMEDRAW_ARGUMENT, "slots = 18446744073709551615");

    STRUCT(samedraw_params, params);
    REFUSED(samedraw_params_init(NULL), SAMEDRAW_NULL_POINTER, "samedraw_params");
    params.size = 3;
    REFUSED(samedraw_params_init(&params), SAMEDRAW_STRUCT_SIZE, "samedraw_params.size = 3");
    params.size = sizeof params;
    OK(samedraw_params_init(&params));
    samedraw_slot row;
    REFUSED(samedraw_params_to_slot(NULL, &row), SAMEDRAW_NULL_POINTER, "samedraw_params");
    REFUSED(samedraw_params_to_slot(&params, NULL), SAMEDRAW_NULL_POINTER, "slot");
    REFUSED(samedraw_table_set(NULL, NULL, 0, &params, NULL), SAMEDRAW_NULL_POINTER, "samedraw_table");
    REFUSED(samedraw_table_set(table, NULL, 0, NULL, NULL), SAMEDRAW_NULL_POINTER, "samedraw_params");
    REFUSED(samedraw_table_set(table, NULL, SIZE_MAX, &params, NULL), SAMEDRAW_ARGUMENT, "slot = 18446744073709551615");
    REFUSED(samedraw_table_clear(NULL, NULL, 0), SAMEDRAW_NULL_POINTER, "samedraw_table");
    REFUSED(samedraw_table_clear(table, NULL, ROWS), SAMEDRAW_ARGUMENT, "slot = 4");
#define BAD_PARAMS(change, status, text)                                              \
    do {                                                                              \
        samedraw_params bad = params;                                                 \
        change;                                                                       \
        REFUSED(samedraw_table_set(table, NULL, 0, &bad, NULL), status, text);        \
    } while (0)
    BAD_PARAMS(bad.temperature = NAN, SAMEDRAW_PARAMETER, "temperature = NaN");
    BAD_PARAMS(bad.top_p = 0, SAMEDRAW_PARAMETER, "top_p = 0");
    BAD_PARAMS(bad.top_k = 0, SAMEDRAW_PARAMETER, "top_k = 0");
    BAD_PARAMS(bad.min_p = 2, SAMEDRAW_PARAMETER, "min_p = 2");
    BAD_PARAMS(bad.filter_order = 2, SAMEDRAW_ARGUMENT, "filter_order = 2");
    BAD_PARAMS(bad.has_seed = 2, SAMEDRAW_ARGUMENT, "has_seed = 2");
    BAD_PARAMS(bad.reserved = 1, SAMEDRAW_ARGUMENT, "reserved = 1");
    BAD_PARAMS(bad.size = 4097, SAMEDRAW_STRUCT_SIZE, "size = 4097");
    /* Of a later release: a field more, 0 at first, then set. */
    struct {
        samedraw_params known;
        uint64_t later;
    } newer = {params, 0};
    newer.known.size = sizeof newer;
    OK(samedraw_table_set(table, NULL, 0, &newer.known, NULL));
    newer.later = 1;
    REFUSED(samedraw_table_set(table, NULL, 0, &newer.known, NULL), SAMEDRAW_STRUCT_SIZE, "byte 48 is set");

    STRUCT(samedraw_limits, limits);
    limits.rows = ROWS;
    limits.vocab = VOCAB;
    size_t bytes = 0;
    samedraw_sampler *none = NULL;
    OK(samedraw_workspace_bytes(device, &limits, &bytes));
    REFUSED(samedraw_workspace_bytes(NULL, &limits, &bytes), SAMEDRAW_NULL_POINTER, "samedraw_device");
    REFUSED(samedraw_workspace_bytes(device, NULL, &bytes), SAMEDRAW_NULL_POINTER, "samedraw_limits");
    REFUSED(samedraw_workspace_bytes(device, &limits, NULL), SAMEDRAW_NULL_POINTER, "bytes");
    REFUSED(samedraw_sampler_create(NULL, &limits, table, &none), SAMEDRAW_NULL_POINTER, "samedraw_device");
    REFUSED(samedraw_sampler_create(device, &limits, NULL, &none), SAMEDRAW_NULL_POINTER, "samedraw_table");
    REFUSED(samedraw_sampler_create(device, &limits, table, NULL), SAMEDRAW_NULL_POINTER, "sampler");
    REFUSED(samedraw_sampler_create(device, NULL, table, &none), SAMEDRAW_NULL_POINTER, "samedraw_limits");
#define BAD_LIMITS(change, status, text)                                                \
    do {                                                                                \
        samedraw_limits good = limits;                                                  \
        change;                                                                         \
        REFUSED(samedraw_workspace_bytes(device, &limits, &bytes), status, text);       \
        REFUSED(samedraw_sampler_create(device, &limits, table, &none), status, text);  \
        limits = good;                                                                  \
    } while (0)
    BAD_LIMITS(limits.size = 12, SAMEDRAW_STRUCT_SIZE, "samedraw_limits.size = 12");
    BAD_LIMITS(limits.rows = 0, SAMEDRAW_ARGUMENT, "rows = 0");
    BAD_LIMITS(limits.rows = SIZE_MAX, SAMEDRAW_ARGUMENT, "rows = 18446744073709551615");
    BAD_LIMITS(limits.vocab = SIZE_MAX, SAMEDRAW_ARGUMENT, "vocab = 18446744073709551615");
    BAD_LIMITS(limits.verify = 2, SAMEDRAW_ARGUMENT, "verify = 2");
    BAD_LIMITS(limits.remap = 9, SAMEDRAW_ARGUMENT, "remap = 9");
    static _Alignas(256) unsigned char lent[1 << 16];
    CHECK(bytes <= sizeof lent);
#define LEND(at, n) samedraw_sampler_create_with_workspace(device, &limits, table, at, n, &none)
    REFUSED(LEND(NULL, bytes), SAMEDRAW_WORKSPACE, "workspace");
    REFUSED(LEND(lent + 1, bytes), SAMEDRAW_WORKSPACE, "aligned to 256");
    REFUSED(LEND(lent, bytes - 1), SAMEDRAW_WORKSPACE, "needed");
    OK(LEND(lent, bytes));
    OK(samedraw_sampler_free(none));

    /* Handles of another kind, and what is no handle at all. */
    uint64_t nothing[8] = {0};
    REFUSED(samedraw_device_describe((samedraw_device *)table, &info), SAMEDRAW_HANDLE, "is no samedraw_device");
    REFUSED(samedraw_table_clear((samedraw_table *)sampler, NULL, 0), SAMEDRAW_HANDLE, "is no samedraw_table");
    REFUSED(samedraw_sampler_step((samedraw_sampler *)nothing, NULL, &step), SAMEDRAW_HANDLE, "is no samedraw_sampler");
    REFUSED(samedraw_captured_replay((samedraw_captured *)device, NULL), SAMEDRAW_HANDLE, "is no samedraw_captured");
    REFUSED(samedraw_sampler_free((samedraw_sampler *)device), SAMEDRAW_HANDLE, "is no samedraw_sampler");
    REFUSED(samedraw_device_free((samedraw_device *)((char *)nothing + 1)), SAMEDRAW_HANDLE, "is no samedraw_device");
    OK(samedraw_device_free(NULL));
    OK(samedraw_table_free(NULL));
    OK(samedraw_sampler_free(NULL));
    OK(samedraw_captured_free(NULL));
    OK(samedraw_prompt_plan_free(NULL));
    samedraw_captured *captured = NULL;
    fresh();
    REFUSED(samedraw_sampler_step(NULL, NULL, &step), SAMEDRAW_NULL_POINTER, "samedraw_sampler");
    REFUSED(samedraw_sampler_step(sampler, NULL, NULL), SAMEDRAW_NULL_POINTER, "samedraw_step");
    REFUSED(samedraw_sampler_capture(NULL, (void *)1, &step, 0, &captured), SAMEDRAW_NULL_POINTER, "samedraw_sampler");
    REFUSED(samedraw_sampler_capture(sampler, (void *)1, &step, 0, NULL), SAMEDRAW_NULL_POINTER, "captured");
    REFUSED(samedraw_sampler_capture(sampler, (void *)1, &step, 7, &captured), SAMEDRAW_ARGUMENT, "variant = 7");
    REFUSED(samedraw_captured_replay(NULL, NULL), SAMEDRAW_NULL_POINTER, "samedraw_captured");
    REFUSED(samedraw_sampler_record(NULL, NULL, &step, "x", 1), SAMEDRAW_NULL_POINTER, "samedraw_sampler");
    REFUSED(samedraw_sampler_record(sampler, NULL, &step, NULL, 1), SAMEDRAW_NULL_POINTER, "path");
    REFUSED(samedraw_sampler_record(sampler, NULL, &step, "/nowhere/x", 1 << 20), SAMEDRAW_IO, "/nowhere/x");
}

static int32_t no_logits(void *user, size_t first, size_t count, samedraw_logits *given) {
    (void)first;
    (void)count;
    if (user) memcpy(given, user, sizeof *given);
    return 0;
}

static void prompts(void) {
    const int64_t prompt[3] = {1, 2, 3};
    STRUCT(samedraw_prompt_chunk, chunk);
    chunk.prompt = prompt;
    chunk.prompt_length = chunk.seqlen_q = chunk.seqlen_k = 3;
    samedraw_prompt_plan *plan = NULL;
#define PLAN(n) samedraw_prompt_plan_create(&chunk, n, VOCAB, &plan)
    REFUSED(samedraw_prompt_plan_create(NULL, 1, VOCAB, &plan), SAMEDRAW_NULL_POINTER, "samedraw_prompt_chunk");
    REFUSED(samedraw_prompt_plan_create(&chunk, 1, VOCAB, NULL), SAMEDRAW_NULL_POINTER, "plan");
    REFUSED(PLAN(SIZE_MAX), SAMEDRAW_ARGUMENT, "chunks = 18446744073709551615");
    REFUSED(samedraw_prompt_plan_create(&chunk, 1, 2, &plan), SAMEDRAW_ARGUMENT, "prompt token = 2");
    chunk.prompt_length = SIZE_MAX;
    REFUSED(PLAN(1), SAMEDRAW_ARGUMENT, "prompt_length = 18446744073709551615");
    chunk.prompt_length = 3;
    chunk.seqlen_k = SIZE_MAX;
    REFUSED(PLAN(1), SAMEDRAW_ARGUMENT, "seqlen_k = 18446744073709551615");
    chunk.seqlen_k = 3;
    chunk.prompt = NULL;
    REFUSED(PLAN(1), SAMEDRAW_NULL_POINTER, "prompt");
    chunk.prompt = prompt;
    chunk.reserved = 1;
    REFUSED(PLAN(1), SAMEDRAW_ARGUMENT, "reserved");
    chunk.reserved = 0;
    chunk.size = 1;
    REFUSED(PLAN(1), SAMEDRAW_STRUCT_SIZE, "samedraw_prompt_chunk.size = 1");
    chunk.size = sizeof chunk;
    OK(PLAN(1));
    STRUCT(samedraw_prompt_rows, rows);
    size_t first, count;
    const char *off;
    REFUSED(samedraw_prompt_plan_rows(NULL, &rows), SAMEDRAW_NULL_POINTER, "samedraw_prompt_plan");
    REFUSED(samedraw_prompt_plan_rows(plan, NULL), SAMEDRAW_NULL_POINTER, "samedraw_prompt_rows");
    REFUSED(samedraw_prompt_plan_request(plan, 1, &first, &count, &off), SAMEDRAW_ARGUMENT, "chunk = 1");
    REFUSED(samedraw_prompt_plan_request(plan, 0, NULL, &count, &off), SAMEDRAW_NULL_POINTER, "first");
    OK(samedraw_prompt_plan_free(plan));

    int64_t targets[1] = {1};
    float logprobs[1];
#define SCORE(n, t, w, source, user) \
    samedraw_sampler_prompt_logprobs(sampler, NULL, n, t, w, zeros, 4, source, user, logprobs)
    REFUSED(SCORE(1, NULL, 8, no_logits, NULL), SAMEDRAW_NULL_POINTER, "targets");
    REFUSED(SCORE(1, targets, 7, no_logits, NULL), SAMEDRAW_ARGUMENT, "targets_width = 7");
    REFUSED(SCORE(1, targets, 8, NULL, NULL), SAMEDRAW_NULL_POINTER, "source");
    REFUSED(SCORE(SIZE_MAX, targets, 8, no_logits, NULL), SAMEDRAW_ARGUMENT, "rows = 18446744073709551615");
    REFUSED(SCORE(1, targets, 8, no_logits, NULL), SAMEDRAW_ARGUMENT, "vocab = 0");
    fresh();
    logits.dtype = 9;
    REFUSED(SCORE(1, targets, 8, no_logits, &logits), SAMEDRAW_ARGUMENT, "dtype = 9");
    logits.size = 0;
    REFUSED(SCORE(1, targets, 8, no_logits, &logits), SAMEDRAW_STRUCT_SIZE, "samedraw_logits.size = 0");
}

/* A second thread, while the first is inside a call: the source of prompt logits holds it there. */
static sem_t inside, leave;

static int32_t waits(void *user, size_t first, size_t count, samedraw_logits *given) {
    sem_post(&inside);
    sem_wait(&leave);
    return no_logits(user, first, count, given);
}

static void *first_thread(void *nothing) {
    static int64_t targets[1] = {1};
    float logprobs[1];
    OK(samedraw_sampler_prompt_logprobs(sampler, NULL, 1, targets, 8, zeros, 4, waits, &logits, logprobs));
    CHECK(strcmp(samedraw_last_error(), "") == 0); /* errors are each thread's own */
    return nothing;
}

static void second_thread(void) {
    fresh();
    CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&leave, 0, 0) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, first_thread, NULL) == 0);
    sem_wait(&inside);
    samedraw_captured *captured = NULL;
    REFUSED(samedraw_sampler_step(sampler, NULL, &step), SAMEDRAW_BUSY, "in use by another call");
    REFUSED(samedraw_sampler_capture(sampler, (void *)1, &step, 0, &captured), SAMEDRAW_BUSY, "in use");
    REFUSED(samedraw_sampler_record(sampler, NULL, &step, "x", 1 << 20), SAMEDRAW_BUSY, "in use");
    REFUSED(samedraw_sampler_free(sampler), SAMEDRAW_BUSY, "in use");
    /* The table is anybody's. */
    OK(samedraw_table_clear(table, NULL, 3));
    sem_post(&leave);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(samedraw_sampler_step(sampler, NULL, &step));
}

int main(void) {
    OK(samedraw_device_open("cpu", &device));
    OK(samedraw_table_create(device, ROWS, &table));
    STRUCT(samedraw_params, params);
    OK(samedraw_params_init(&params));
    for (size_t slot = 0; slot < ROWS; slot++) OK(samedraw_table_set(table, NULL, slot, &params, NULL));
    STRUCT(samedraw_limits, limits);
    limits.rows = ROWS;
    limits.vocab = VOCAB;
    limits.verify = 1;
    OK(samedraw_sampler_create(device, &limits, table, &sampler));
    creation();
    steps();
    verifications();
    prompts();
    fresh();
    OK(samedraw_sampler_step(sampler, NULL, &step)); /* after all that, a step that is in order */
    second_thread();
    OK(samedraw_sampler_free(sampler));
    OK(samedraw_table_free(table));
    OK(samedraw_device_free(device));
    puts("done");
    return 0;
}
