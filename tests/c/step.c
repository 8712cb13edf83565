/* A step with all its outputs, verification, prompt logprobs, captured variants and a recording, on the CPU device, from
 * C. Expected values are worked out by hand or by check.h. Argument: the path for the recording. */
#include "check.h"

#include <math.h>

enum { VOCAB = 5, FLAT = 1000 };

/* Probabilities .50 .25 .15 .06 .04. */
static const float LOGITS[VOCAB] = {-0.6931472f, -1.3862944f, -1.8971200f, -2.8134107f, -3.2188758f};

static int near(float a, double b) { return fabs((double)a - b) < 1e-5; }

static void set(samedraw_table *table, size_t slot, float top_p, int64_t top_k, uint64_t seed) {
    STRUCT(samedraw_params, params);
    OK(samedraw_params_init(&params));
    CHECK(params.temperature == 1 && params.top_p == 1 && params.top_k == -1 && params.min_p == 0 && !params.has_seed);
    params.top_p = top_p;
    params.top_k = top_k;
    params.has_seed = 1;
    params.seed = seed;
    uint64_t used = 0;
    OK(samedraw_table_set(table, NULL, slot, &params, &used));
    CHECK(used == seed);
}

static samedraw_sampler *sampler_of(samedraw_device *device, samedraw_table *table, size_t rows, size_t vocab) {
    STRUCT(samedraw_limits, limits);
    limits.rows = rows;
    limits.vocab = vocab;
    limits.force_topk = 4;
    limits.verify = 1;
    samedraw_sampler *sampler = NULL;
    OK(samedraw_sampler_create(device, &limits, table, &sampler));
    return sampler;
}

static void all_outputs(samedraw_device *device, samedraw_table *table, const char *recording) {
    samedraw_sampler *sampler = sampler_of(device, table, 2, VOCAB);
    float rows[2][VOCAB + 3];
    for (int row = 0; row < 2; row++) {
        memcpy(rows[row], LOGITS, sizeof LOGITS);
        for (int pad = VOCAB; pad < VOCAB + 3; pad++) rows[row][pad] = 1e30f;
    }
    STRUCT(samedraw_logits, logits);
    logits.data = rows;
    logits.rows = 2;
    logits.vocab = VOCAB;
    logits.stride = VOCAB + 3;
    int64_t positions[2] = {41, 100};
    int32_t slots[2] = {0, 1};
    int64_t tokens[2] = {77, 77};
    int32_t ranks[2], kept[2], status[2], top_ids[2][4], top_counts[2], dense_ids[2][VOCAB], kept_ids[2][4];
    float logprobs[2], raw[2], smaller[2], top[2][4], dense[2][VOCAB];
    STRUCT(samedraw_outputs, out);
    out.tokens = tokens;
    out.tokens_width = 8;
    out.logprobs = logprobs;
    out.ranks = ranks;
    out.kept_counts = kept;
    out.status = status;
    out.raw_logprobs = raw;
    out.sum_smaller_probs = smaller;
    out.top_width = 4;
    out.top_ids = &top_ids[0][0];
    out.top_logprobs = &top[0][0];
    out.top_counts = top_counts;
    out.dense = &dense[0][0];
    out.dense_ids = &dense_ids[0][0];
    out.dense_stride = VOCAB;
    out.kept_ids = &kept_ids[0][0];
    out.kept_width = 4;
    STRUCT(samedraw_step, step);
    step.logits = &logits;
    step.rows = 2;
    step.outputs = &out;
    step.positions = positions;
    step.row_to_slot = slots;
    step.row_to_slot_width = 4;
    OK(samedraw_sampler_step(sampler, NULL, &step));

    /* Row 0: top-p 0.8 keeps .50 .25 .15 = .90. Row 1: top-k 1 is the most likely token. */
    CHECK(kept[0] == 3 && kept[1] == 1 && status[0] == 0 && status[1] == 0);
    CHECK(tokens[0] >= 0 && tokens[0] < 3 && tokens[1] == 0 && ranks[0] == tokens[0] + 1 && ranks[1] == 1);
    const double p[VOCAB] = {.50, .25, .15, .06, .04};
    CHECK(near(logprobs[0], log(p[tokens[0]] / .90)) && near(logprobs[1], 0));
    CHECK(near(raw[0], log(p[tokens[0]])) && near(raw[1], log(.50)));
    double below = 0;
    for (int id = (int)tokens[0]; id < 3; id++) below += p[id] / .90;
    CHECK(near(smaller[0], below) && near(smaller[1], 1));
    CHECK(top_counts[0] == 3 && top_counts[1] == 1);
    for (int i = 0; i < 4; i++) {
        CHECK(top_ids[0][i] == (i < 3 ? i : -1) && kept_ids[0][i] == (i < 3 ? i : -1));
        CHECK(i < 3 ? near(top[0][i], log(p[i] / .90)) : isinf(top[0][i]));
    }
    for (int id = 0; id < VOCAB; id++) {
        CHECK(dense_ids[0][id] == id);
        CHECK(id < 3 ? near(dense[0][id], log(p[id] / .90)) : isinf(dense[0][id]));
    }

    /* Rows of parameters that the caller keeps: the same step with the slots changed over. */
    samedraw_slot own[2];
    for (int i = 0; i < 2; i++) {
        STRUCT(samedraw_params, params);
        OK(samedraw_params_init(&params));
        params.top_p = i == 0 ? 1.0f : 0.8f;
        params.top_k = i == 0 ? 1 : -1;
        params.has_seed = 1;
        OK(samedraw_params_to_slot(&params, &own[i]));
    }
    CHECK(own[0].live == 1 && own[0].top_k == 1 && own[1].top_k == UINT64_MAX);
    step.slots = own;
    step.slot_count = 2;
    OK(samedraw_sampler_step(sampler, NULL, &step));
    CHECK(kept[0] == 1 && kept[1] == 3 && tokens[0] == 0);
    step.slots = NULL;

    /* A mask of row 0 alone forbids tokens 0 and 1; force_topk hands its columns out. */
    int32_t words[1] = {0x1C}, mask_index[2] = {0, -1}, column_ids[2][2];
    float columns[2][2];
    step.mask = words;
    step.mask_rows = 1;
    step.mask_stride = 1;
    step.mask_index = mask_index;
    step.mask_index_width = 4;
    step.force_topk = 2;
    out.dense = NULL;
    out.dense_ids = NULL;
    out.column_values = &columns[0][0];
    out.column_ids = &column_ids[0][0];
    OK(samedraw_sampler_step(sampler, NULL, &step));
    CHECK(column_ids[0][0] == 2 && column_ids[0][1] == 3 && column_ids[1][0] == 0 && column_ids[1][1] == 1);
    CHECK(columns[0][0] == LOGITS[2] && columns[1][1] == LOGITS[1] && tokens[0] >= 2 && tokens[1] == 0);

    /* What it took goes to disk, within a bound. */
    REFUSED(samedraw_sampler_record(sampler, NULL, &step, recording, 100), SAMEDRAW_ARGUMENT, "max_bytes = 100");
    OK(samedraw_sampler_record(sampler, NULL, &step, recording, 1 << 20));
    printf("recorded %d %d\n", (int)tokens[0], (int)tokens[1]);
    OK(samedraw_sampler_free(sampler));
}

static void captured_variants(samedraw_device *device, samedraw_table *table) {
    samedraw_sampler *sampler = sampler_of(device, table, 1, FLAT);
    static float row[FLAT];
    void *stream = (void *)0x57;
    int64_t position = 0, slot = 2;
    int32_t token = 0, status = 0;
    STRUCT(samedraw_logits, logits);
    logits.data = row;
    logits.rows = 1;
    logits.vocab = logits.stride = FLAT;
    STRUCT(samedraw_outputs, out);
    out.tokens = &token;
    out.tokens_width = 4;
    out.status = &status;
    STRUCT(samedraw_step, step);
    step.logits = &logits;
    step.rows = 1;
    step.outputs = &out;
    step.positions = &position;
    step.row_to_slot = &slot;
    step.row_to_slot_width = 8;
    samedraw_captured *any = NULL, *top_k = NULL;
    OK(samedraw_sampler_capture(sampler, stream, &step, SAMEDRAW_VARIANT_DEFAULT, &any));
    OK(samedraw_sampler_capture(sampler, stream, &step, SAMEDRAW_VARIANT_TOP_K, &top_k));
    REFUSED(samedraw_sampler_capture(sampler, stream, &step, SAMEDRAW_VARIANT_VERIFY, &any), SAMEDRAW_ARGUMENT, "verif");
    OK(samedraw_sampler_free(sampler)); /* the captured steps keep what they need */
    token = 77;
    for (position = 1; position < 20; position++) {
        OK(samedraw_captured_replay(any, stream));
        CHECK(token == flat_token(12, position, FLAT) && status == 0);
        OK(samedraw_captured_replay(top_k, stream));
        CHECK(token == flat_token(12, position, FLAT));
    }
    slot = 0; /* uses top-p, which the variant excludes */
    OK(samedraw_captured_replay(top_k, stream));
    CHECK(token == -1 && status == SAMEDRAW_ROW_BAD_INDEX);
    OK(samedraw_captured_free(top_k));
    OK(samedraw_captured_free(any));
}

static void verification(samedraw_device *device, samedraw_table *table) {
    samedraw_sampler *sampler = sampler_of(device, table, 4, FLAT);
    static float rows[4][FLAT];
    int32_t first_rows[3] = {0, 3, 4}, of[4] = {0, 0, 0, 1}, accepted[2], row_accepts[4], index[2][3], slots[4] = {2, 2, 2, 2};
    int64_t positions[2] = {50, 7}, drafts[4], tokens[4];
    /* Chain: the first draft is what the row draws, the second is not. */
    int64_t drawn[3];
    for (int j = 0; j < 3; j++) drawn[j] = flat_token(12, 50 + j * SAMEDRAW_POSITIONS_STRIDED, FLAT);
    drafts[0] = drawn[0];
    drafts[1] = (drawn[1] + 1) % FLAT;
    drafts[2] = drafts[3] = -1;
    STRUCT(samedraw_logits, logits);
    logits.data = rows;
    logits.rows = 4;
    logits.vocab = logits.stride = FLAT;
    STRUCT(samedraw_outputs, out);
    out.tokens = tokens;
    out.tokens_width = 8;
    STRUCT(samedraw_verify, verify);
    verify.mode = SAMEDRAW_CHAIN;
    verify.requests = 2;
    verify.first_rows = first_rows;
    verify.row_to_request = of;
    verify.row_to_request_width = 4;
    verify.draft_ids = drafts;
    verify.draft_ids_width = 8;
    verify.position_stride = SAMEDRAW_POSITIONS_STRIDED;
    verify.accepted = accepted;
    verify.accept_index = &index[0][0];
    verify.accept_width = 3;
    verify.row_accepts = row_accepts;
    STRUCT(samedraw_step, step);
    step.logits = &logits;
    step.rows = 4;
    step.outputs = &out;
    step.verify = &verify;
    step.positions = positions;
    step.row_to_slot = slots;
    step.row_to_slot_width = 4;
    OK(samedraw_sampler_step(sampler, NULL, &step));
    CHECK(accepted[0] == 1 && accepted[1] == 0);
    CHECK(tokens[0] == drawn[0] && tokens[1] == drawn[1] && tokens[2] == -1);
    CHECK(tokens[3] == flat_token(12, 7, FLAT));
    CHECK(row_accepts[0] == 1 && row_accepts[1] == 0 && row_accepts[2] == 0 && row_accepts[3] == 0);
    CHECK(index[0][0] == 0 && index[0][1] == 1 && index[0][2] == -1 && index[1][0] == 3 && index[1][1] == -1);

    /* Rejection against drafts that are sure of what the flat target gives 1/1000: nearly always refused, and a draft
     * that is equal to the target is always accepted. */
    static float pool[4][FLAT];
    const float flat = logf(1.0f / FLAT);
    for (int j = 0; j < 4; j++)
        for (int id = 0; id < FLAT; id++) pool[j][id] = j == 0 ? flat : id == 5 ? 0.0f : -INFINITY;
    drafts[0] = 123;
    drafts[1] = 5;
    STRUCT(samedraw_drafts, distributions);
    distributions.logprobs = &pool[0][0];
    distributions.stride = distributions.width = FLAT;
    distributions.pool_rows = 4;
    verify.mode = SAMEDRAW_REJECTION;
    verify.drafts = &distributions;
    OK(samedraw_sampler_step(sampler, NULL, &step));
    /* Case 1 of the hash at the second row decides: accepted if bits / 2^53 is below 1/1000. */
    uint64_t n = 3 * (uint64_t)(50 + SAMEDRAW_POSITIONS_STRIDED) + 1;
    CHECK((splitmix64(12, n) >> 11) * 1.0 / 9007199254740992.0 > 0.0011);
    CHECK(accepted[0] == 1 && tokens[0] == 123 && tokens[1] != 5 && tokens[1] >= 0 && tokens[2] == -1);
    OK(samedraw_sampler_free(sampler));
}

struct prompt {
    const float (*rows)[VOCAB];
    const int32_t *scored;
    float chunk[2][VOCAB];
    size_t calls;
    samedraw_sampler *sampler;
};

static int32_t source(void *user, size_t first, size_t count, samedraw_logits *logits) {
    struct prompt *prompt = user;
    if (prompt->calls++ == 7) return 42;
    CHECK(logits->size == sizeof *logits && count <= 2);
    for (size_t i = 0; i < count; i++) memcpy(prompt->chunk[i], prompt->rows[prompt->scored[first + i]], sizeof LOGITS);
    logits->data = prompt->chunk;
    logits->rows = count;
    logits->vocab = logits->stride = VOCAB;
    /* The sampler is at work: on this thread, too. */
    CHECK(samedraw_sampler_free(prompt->sampler) == SAMEDRAW_BUSY);
    return 0;
}

static void prompt_logprobs(samedraw_device *device, samedraw_table *table) {
    samedraw_sampler *sampler = sampler_of(device, table, 2, VOCAB); /* chunks of two rows */
    const int64_t tokens[6] = {3, 1, 4, 0, 2, 1};
    samedraw_prompt_chunk chunks[2];
    memset(chunks, 0, sizeof chunks);
    for (int i = 0; i < 2; i++) {
        chunks[i].size = sizeof chunks[i];
        chunks[i].prompt = tokens;
        chunks[i].prompt_length = chunks[i].seqlen_k = chunks[i].seqlen_q = 6;
        chunks[i].slot = 2;
    }
    chunks[0].off = "its prompt was cached";
    samedraw_prompt_plan *plan = NULL;
    OK(samedraw_prompt_plan_create(chunks, 2, VOCAB, &plan));
    STRUCT(samedraw_prompt_rows, rows);
    OK(samedraw_prompt_plan_rows(plan, &rows));
    size_t first = 9, count = 9;
    const char *off = "";
    OK(samedraw_prompt_plan_request(plan, 0, &first, &count, &off));
    CHECK(count == 0 && strcmp(off, "its prompt was cached") == 0);
    OK(samedraw_prompt_plan_request(plan, 1, &first, &count, &off));
    CHECK(first == 0 && count == 5 && off == NULL && rows.count == 5 && rows.rows[0] == 6 && rows.targets[0] == 1);

    float states[12][VOCAB], logprobs[5];
    for (int row = 0; row < 12; row++) memcpy(states[row], LOGITS, sizeof LOGITS);
    struct prompt prompt = {.rows = (const float (*)[VOCAB])states, .scored = rows.rows, .sampler = sampler};
    OK(samedraw_sampler_prompt_logprobs(sampler, NULL, 5, rows.targets, 8, rows.row_to_slot, 4, source, &prompt, logprobs));
    CHECK(prompt.calls == 3);
    for (int i = 0; i < 5; i++) CHECK(near(logprobs[i], LOGITS[tokens[i + 1]]));
    prompt.calls = 6;
    REFUSED(samedraw_sampler_prompt_logprobs(sampler, NULL, 5, rows.targets, 8, rows.row_to_slot, 4, source, &prompt, logprobs),
            SAMEDRAW_CALLBACK, "source returned 42 for the rows 2..4");
    OK(samedraw_prompt_plan_free(plan));
    OK(samedraw_sampler_free(sampler));
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(samedraw_abi_version() == SAMEDRAW_ABI_VERSION && strlen(samedraw_version()) > 0);
    CHECK(strcmp(samedraw_last_error(), "") == 0);
    samedraw_device *device = NULL;
    OK(samedraw_device_open_cpu(2, &device));
    STRUCT(samedraw_device_info, info);
    OK(samedraw_device_describe(device, &info));
    CHECK(info.platform == SAMEDRAW_CPU && info.exact == 1 && info.max_force_topk == 0 && info.max_vocab == 1 << 23);
    CHECK(strcmp(info.name, "2 host threads") == 0);
    samedraw_table *table = NULL;
    OK(samedraw_table_create(device, 3, &table));
    OK(samedraw_device_free(device)); /* the table keeps it */
    OK(samedraw_device_open("cpu", &device));
    OK(samedraw_table_free(table));
    OK(samedraw_table_create(device, 3, &table));
    set(table, 0, 0.8f, -1, 1);
    set(table, 1, 1.0f, 1, 2);
    set(table, 2, 1.0f, -1, 12);
    all_outputs(device, table, arguments[1]);
    captured_variants(device, table);
    verification(device, table);
    prompt_logprobs(device, table);
    OK(samedraw_table_free(table));
    OK(samedraw_device_free(device));
    puts("done");
    return 0;
}
