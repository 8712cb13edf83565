// The simulated aclrtc: a test double that hands kernel sources to g++ and gives a shared library for an object. A library
// of its own, as the vendor's is, with its own failures (ascend_sim_fail of this library).
#include "sim.h"

#include "../ascend_model/model/language.h"

extern "C" {
#include "../../ffi/aclrtc_abi.h"
}

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace {

struct Program {
    std::string source, name, log, binary;
    bool compiled = false;
};

// The vendor's codes.
enum { INVALID_PROG = 176000, INVALID_INPUT = 176001, INVALID_OPTION = 176002, COMPILATION = 176003, FAILURE = 576000 };

// The vendor's library finds its compiler by its own path and fails where it does not look like an installation.
bool is_installed() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void *>(&is_installed), &info)) return false;
    const std::string path = info.dli_fname, end = "/lib64/libacl_rtc.so";
    return path.size() > end.size() && path.compare(path.size() - end.size(), end.size(), end) == 0;
}

std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The source with, for every kernel in it, what the simulated runtime looks up.
std::string with_entries(const std::string &source) {
    std::string text = "#include \"kernel_operator.h\"\n#line 1\n" + source + "\n";
    // A kernel is declared as `extern "C" __global__ ... void NAME(`.
    for (size_t at = source.find("__global__"); at != std::string::npos; at = source.find("__global__", at + 1)) {
        size_t start = source.find("void ", at), end = source.find('(', at);
        if (start == std::string::npos || end == std::string::npos || start > end) continue;
        const std::string name = source.substr(start + 5, end - start - 5);
        text += "extern \"C\" __attribute__((visibility(\"default\"))) const ascend_model::Entry ascend_sim_entry_" + name +
                " = ascend_model::entry<" + name + ">();\n";
    }
    return text;
}

int compile(Program &program) {
    program.log = ascend_model::language_fault(program.source);
    if (!program.log.empty()) return sim::refuse("aclrtcCompileProg", COMPILATION, "the source does not compile");
    char folder[] = "/tmp/ascend_sim_rtc_XXXXXX";
    if (!mkdtemp(folder)) return sim::refuse("aclrtcCompileProg", FAILURE, "no temporary folder");
    const std::string base = folder, source = base + "/kernel.cpp", object = base + "/kernel.so", log = base + "/log";
    std::ofstream(source) << with_entries(program.source);
    // ASCEND_SIM_CXXFLAGS: what the simulator itself was sanitized with.
    const char *compiler = std::getenv("CXX");
    const std::string command = std::string(compiler ? compiler : "g++") +
                                " -std=c++17 -O2 -ffp-contract=off -fno-strict-aliasing -shared -fPIC -fvisibility=hidden -I" ASCEND_MODEL_DIR " " +
                                sim::setting("CXXFLAGS", "") + " -o " + object + " " + source + " > " + log + " 2>&1";
    const bool done = std::system(command.c_str()) == 0;
    program.log = read_file(log);
    program.binary = done ? read_file(object) : "";
    for (const std::string &file : {source, object, log}) unlink(file.c_str());
    rmdir(folder);
    if (!done) return sim::refuse("aclrtcCompileProg", COMPILATION, "the source does not compile");
    program.compiled = true;
    return 0;
}

Program *program_of(aclrtcProg handle) { return sim::lives("program", handle) ? static_cast<Program *>(handle) : nullptr; }

} // namespace

using namespace sim;

SIM_EXPORT aclError aclrtcCreateProg(
    aclrtcProg *prog, const char *src, const char *name, int numHeaders, const char **headers,
    const char **includeNames) {
    SIM_ENTER("aclrtcCreateProg");
    if (!is_installed()) return refuse("aclrtcCreateProg", FAILURE, "the library is not in its place in a toolkit");
    if (!prog || !src || !name || numHeaders || headers || includeNames) {
        return refuse("aclrtcCreateProg", INVALID_INPUT, "no source, or headers, which are not to be relied on");
    }
    auto *program = new Program;
    program->source = src;
    program->name = name;
    born("program", program);
    *prog = program;
    return 0;
}

SIM_EXPORT aclError aclrtcCompileProg(aclrtcProg prog, int numOptions, const char **options) {
    SIM_ENTER("aclrtcCompileProg");
    Program *program = program_of(prog);
    if (!program) return refuse("aclrtcCompileProg", INVALID_PROG, "not a live program");
    bool architecture = false;
    for (int i = 0; i < numOptions; ++i) {
        if (!options[i] || !*options[i]) return refuse("aclrtcCompileProg", INVALID_OPTION, "an empty option");
        architecture = architecture || !std::strcmp(options[i], "--npu-arch=dav-2201");
    }
    if (!architecture) return refuse("aclrtcCompileProg", INVALID_OPTION, "--npu-arch=dav-2201 is missing");
    return compile(*program);
}

SIM_EXPORT aclError aclrtcDestroyProg(aclrtcProg *prog) {
    SIM_ENTER("aclrtcDestroyProg");
    Program *program = prog ? program_of(*prog) : nullptr;
    if (!program) return refuse("aclrtcDestroyProg", INVALID_PROG, "not a live program");
    died("program", program);
    delete program;
    *prog = nullptr;
    return 0;
}

SIM_EXPORT aclError aclrtcGetBinDataSize(aclrtcProg prog, size_t *binDataSizeRet) {
    SIM_ENTER("aclrtcGetBinDataSize");
    Program *program = program_of(prog);
    if (!program || !program->compiled) return refuse("aclrtcGetBinDataSize", INVALID_PROG, "nothing was compiled");
    *binDataSizeRet = program->binary.size();
    return 0;
}

SIM_EXPORT aclError aclrtcGetBinData(aclrtcProg prog, char *binData) {
    SIM_ENTER("aclrtcGetBinData");
    Program *program = program_of(prog);
    if (!program || !program->compiled) return refuse("aclrtcGetBinData", INVALID_PROG, "nothing was compiled");
    std::memcpy(binData, program->binary.data(), program->binary.size());
    return 0;
}

SIM_EXPORT aclError aclrtcGetCompileLogSize(aclrtcProg prog, size_t *logSizeRet) {
    SIM_ENTER("aclrtcGetCompileLogSize");
    Program *program = program_of(prog);
    if (!program) return refuse("aclrtcGetCompileLogSize", INVALID_PROG, "not a live program");
    *logSizeRet = program->log.size();
    return 0;
}

SIM_EXPORT aclError aclrtcGetCompileLog(aclrtcProg prog, char *log) {
    SIM_ENTER("aclrtcGetCompileLog");
    Program *program = program_of(prog);
    if (!program) return refuse("aclrtcGetCompileLog", INVALID_PROG, "not a live program");
    std::memcpy(log, program->log.data(), program->log.size());
    return 0;
}
