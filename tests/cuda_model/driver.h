// What the files of the driver share: codes, the context, what went wrong, streams.
#ifndef CUDA_MODEL_DRIVER
#define CUDA_MODEL_DRIVER

#include "model.h"

#include <cstdlib>
#include <functional>

namespace model {

typedef int Result;
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    CAPTURING = 900
};

// Whether the primary context is current on this thread.
bool context_is_current();
#define NEED_CONTEXT \
    if (!context_is_current()) return INVALID_CONTEXT

// The code, for which the driver has this text from now on, on this thread; the text goes to stderr, too.
Result wrong(Result code, const std::string& text);

inline u64 setting(const char* name, u64 otherwise) {
    const char* text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

// Does the work, or keeps it for the graph while the stream captures.
Result on(void* stream, std::function<Result()> work);

} // namespace model

#endif
