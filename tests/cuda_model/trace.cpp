// Where in a kernel something happened: its calls, with lines of the source, and accesses that the host's memory refuses.

#include "fiber.h"
#include "model.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <ucontext.h>
#include <unistd.h>

namespace model {

u32 place_of(const void* code) {
    const Library* library = now->launch.library;
    auto p = (const unsigned char*)code;
    // The call itself, not what follows it.
    return p > library->begin && p < library->end ? (u32)(p - library->begin) - 1 : 0;
}

std::string lines(const std::vector<u32>& places) {
    std::string command = "addr2line -p -i -f -C -e '" + now->launch.library->path + "'";
    bool any = false;
    for (u32 place : places) {
        if (place == 0) continue;
        char text[32];
        snprintf(text, sizeof text, " %#x", place);
        command += text;
        any = true;
    }
    if (!any) return "(no place in the kernel is known)";
    std::string all;
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    if (!pipe) return "(addr2line cannot be run)";
    char line[512];
    std::string root = std::string(MODEL_ROOT) + "/";
    while (fgets(line, sizeof line, pipe)) {
        std::string one = line;
        for (size_t at; (at = one.find(root)) != std::string::npos;) one.erase(at, root.size());
        // What the model's headers put between the kernel and the model says nothing.
        if (one.find("cuda_model/") != std::string::npos || one.find("model_entry_") != std::string::npos) continue;
        size_t inlined = one.find(" (inlined by) ");
        if (inlined == 0) one.erase(0, 14);
        all += "  " + one;
    }
    pclose(pipe);
    while (!all.empty() && all.back() == '\n') all.pop_back();
    return all.empty() ? "(no line is known)" : all;
}

std::vector<u32> calls_of(const void* frame, const Thread& thread) {
    std::vector<u32> places;
    // A frame begins with where the one before it is, and where it goes on.
    auto at = (const uintptr_t*)frame;
    auto low = (uintptr_t)thread.stack, high = low + STACK_BYTES;
    while (places.size() < 24 && (uintptr_t)at >= low && (uintptr_t)at + 16 <= high && (uintptr_t)at % 8 == 0) {
        if (u32 place = place_of((const void*)at[1])) places.push_back(place);
        if (at[0] <= (uintptr_t)at) break;
        at = (const uintptr_t*)at[0];
    }
    return places;
}

std::vector<u32> calls_of(const Thread& thread) {
#if defined(__x86_64__)
    // The frame's register was the first that the switch saved.
    return calls_of((const void*)((const uintptr_t*)thread.stack_pointer)[5], thread);
#else
    (void)thread;
    return {};
#endif
}

#if defined(__x86_64__)
namespace {

struct sigaction before;
uintptr_t fault_at, fault_code, fault_frame;

void report_fault() {
    std::vector<u32> places = {(u32)(place_of((const void*)(fault_code + 1)))};
    for (u32 place : calls_of((const void*)fault_frame, *self)) places.push_back(place);
    std::string text = lines(places);
    fail("touches memory at %p, which it may not (%s)\n%s", (void*)fault_at, describe_device(fault_at).c_str(),
         text.c_str());
}

void on_fault(int signal, siginfo_t* info, void* context) {
    auto registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    if (!self) {
        // None of a kernel's: as if the model had not been asked.
        sigaction(signal, &before, nullptr);
        return;
    }
    fault_at = (uintptr_t)info->si_addr;
    fault_code = (uintptr_t)registers[REG_RIP];
    fault_frame = (uintptr_t)registers[REG_RBP];
    auto stack = (uintptr_t)registers[REG_RSP];
    if (stack < (uintptr_t)self->stack + 8192) {
        const char text[] = "cuda model: a thread of the kernel has used up its stack\n";
        if (write(2, text, sizeof text - 1) < 0) _exit(1);
        _exit(1);
    }
    registers[REG_RSP] = (greg_t)((stack - 256) / 16 * 16 - 8);
    registers[REG_RIP] = (greg_t)(uintptr_t)report_fault;
}

} // namespace
#endif

void catch_faults() {
#if defined(__x86_64__)
    static bool done = false;
    if (done) return;
    done = true;
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before);
#endif
}

} // namespace model
