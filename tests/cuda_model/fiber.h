// Threads of a kernel as fibers of one thread of the host: each has a stack of its own, and one runs at a time.
#ifndef CUDA_MODEL_FIBER
#define CUDA_MODEL_FIBER

#include "model.h"

#include <cstddef>

namespace model {

// Stack number `n`; its lowest page cannot be touched.
unsigned char* stack_of(size_t n);

// A stack pointer that, switched to, calls `entry`, which never returns.
void* prepare_stack(unsigned char* stack, void (*entry)());

// Leaves the running fiber in `*from` and goes on with `to`.
void switch_to(void** from, void* to);

} // namespace model

#endif
