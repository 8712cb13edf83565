/* What the programs check with, and the random numbers of the semantics by their published definition. */
#ifndef CHECK_H
#define CHECK_H

#include <samedraw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                       \
    do {                                                                                                  \
        if (!(what)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #what, samedraw_last_error()); \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define OK(call) CHECK((call) == SAMEDRAW_OK)

/* The call returns that status, and its message holds that text. */
#define REFUSED(call, status, text)                               \
    do {                                                          \
        CHECK((call) == (status));                                \
        CHECK(strstr(samedraw_last_error(), (text)) != NULL);     \
    } while (0)

/* A struct of zeros that knows its size. */
#define STRUCT(type, name)         \
    type name;                     \
    memset(&name, 0, sizeof name); \
    name.size = sizeof name

static inline uint64_t splitmix64(uint64_t seed, uint64_t n) {
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The token that a row of `vocab` equal logits draws afresh: floor(bits * vocab / 2^53). */
static inline int64_t flat_token(uint64_t seed, int64_t position, uint64_t vocab) {
    uint64_t bits = splitmix64(seed, 3 * (uint64_t)position) >> 11;
    /* Two halves, as C has no 128 bits. */
    uint64_t high = bits >> 32, low = bits & 0xFFFFFFFFu;
    return (int64_t)((high * vocab + (low * vocab >> 32)) >> 21);
}

#endif
