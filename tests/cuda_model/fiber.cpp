#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace model {

unsigned char* stack_of(size_t n) {
    static std::vector<unsigned char*> stacks;
    while (stacks.size() <= n) {
        void* at = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED || mprotect(at, 4096, PROT_NONE) != 0) {
            perror("a stack for a thread of the model");
            abort();
        }
        stacks.push_back((unsigned char*)at);
    }
    return stacks[n];
}

#if defined(__x86_64__)

// The registers that a call leaves alone go onto the stack; everything else the caller has saved.
asm(R"(
.text
.globl cuda_model_switch
.hidden cuda_model_switch
.type cuda_model_switch, @function
cuda_model_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_model_switch, .-cuda_model_switch
)");
extern "C" void cuda_model_switch(void** from, void* to);

void* prepare_stack(unsigned char* stack, void (*entry)()) {
    // At its entry a function finds the stack 8 bytes past a multiple of 16, where its return address is.
    auto top = (uintptr_t*)(stack + STACK_BYTES - 64);
    *--top = 0;
    *--top = (uintptr_t)entry;
    for (int i = 0; i < 6; i++) *--top = 0;
    return top;
}

void switch_to(void** from, void* to) { cuda_model_switch(from, to); }

#else

void* prepare_stack(unsigned char* stack, void (*entry)()) {
    auto context = (ucontext_t*)(stack + STACK_BYTES - (sizeof(ucontext_t) + 63) / 64 * 64);
    getcontext(context);
    context->uc_stack.ss_sp = stack + 4096;
    context->uc_stack.ss_size = (unsigned char*)context - stack - 4096;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}

void switch_to(void** from, void* to) {
    ucontext_t here;
    *from = &here;
    swapcontext(&here, (ucontext_t*)to);
}

#endif

} // namespace model
