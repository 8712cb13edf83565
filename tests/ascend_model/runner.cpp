// Runs kernels of a library made of a file of rules/ and says what each broke or gave: a line for each line of the input
// "NAME CORES TYPE COUNT", "NAME<tab>REPORT<tab>VALUES". A kernel runs in a process of its own, which may fault.
#include "model/launch.h"

#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sys/wait.h>

namespace {

constexpr size_t BYTES = 65536;

template <typename T> void print(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes + i * sizeof value, sizeof value);
        std::cout << (i ? " " : "") << value;
    }
}

void values(const std::string &type, const uint8_t *bytes, size_t count) {
    std::cout.precision(17);
    if (type == "f32") print<float>(bytes, count);
    if (type == "i32") print<int32_t>(bytes, count);
    if (type == "u32") print<uint32_t>(bytes, count);
    if (type == "u16") print<uint16_t>(bytes, count);
}

void followed(int) {
    std::cout << "a pointer into global memory is followed\t" << std::endl;
    _exit(0);
}

void run(const ascend_model::Entry &entry, uint32_t cores, const std::string &type, size_t count) {
    ascend_model::GlobalMemory memory;
    ascend_model::UbStorage storage;
    ascend_model::Region *in = memory.add(BYTES, 0), *out = memory.add(BYTES, 0);
    for (size_t i = 0; i < BYTES / 4; ++i) {
        float value = float(i);
        std::memcpy(in->data + 4 * i, &value, 4);
    }
    ascend_model::GlobalMemory::define(*in, in->base, BYTES);
    ascend_model::Launch launch;
    launch.memory = &memory;
    launch.storage = &storage;
    launch.blocks = cores;
    const char *truncate = std::getenv("INEXACT");
    launch.inexact.truncate = truncate && std::strstr(truncate, "truncate");
    launch.inexact.flush = truncate && std::strstr(truncate, "flush");
    const uint64_t arguments[] = {in->base, out->base};
    const char *seed = std::getenv("SEED");
    std::cout << entry.launch(entry, arguments, launch, seed ? std::strtoull(seed, nullptr, 10) : 1) << '\t';
    for (size_t i = 0; i < count; ++i) {
        // Values nobody wrote are none.
        if (!out->defined[i]) std::cout << "unwritten ";
    }
    values(type, out->data, count);
    std::cout << std::endl;
}

} // namespace

int main(int, char **words) {
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 2;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream parts(line);
        std::string name, type;
        uint32_t cores = 1;
        size_t count = 0;
        parts >> name >> cores >> type >> count;
        auto *entry = static_cast<const ascend_model::Entry *>(dlsym(library, ("ascend_sim_entry_" + name).c_str()));
        if (!entry || entry->slots != 2) return std::fprintf(stderr, "no kernel %s of two arguments\n", name.c_str()), 2;
        std::cout << name << '\t' << std::flush;
        if (pid_t child = fork()) {
            int status = 0;
            waitpid(child, &status, 0);
            if (status) std::cout << "ended with status " << status << "\t" << std::endl;
            continue;
        }
        std::signal(SIGSEGV, followed);
        run(*entry, cores, type, count);
        _exit(0);
    }
    return 0;
}
