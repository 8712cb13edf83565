// An NVRTC that keeps the text it is given: the driver of the model has it compiled when a kernel of it is launched.

#include <cstring>
#include <string>

namespace {
struct Program {
    std::string source, code, log;
};
constexpr int COMPILATION_ERROR = 6;
} // namespace

#pragma GCC visibility push(default)
extern "C" {
int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
const char* nvrtcGetErrorString(int status) {
    return status == COMPILATION_ERROR ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}
int nvrtcCreateProgram(void** p, const char* source, const char*, int headers, const char* const*, const char* const*) {
    if (headers != 0) return 3;
    *p = new Program{source, "", ""};
    return 0;
}
int nvrtcCompileProgram(void* p, int n, const char* const* flags) {
    auto program = (Program*)p;
    std::string arch;
    int exact = 0;
    for (int i = 0; i < n; i++) {
        std::string flag = flags[i];
        size_t at = flag.find("sm_");
        if (flag.find("-arch") != std::string::npos && at != std::string::npos) arch = flag.substr(at + 3);
        exact += flag == "-fmad=false" || flag == "-ftz=false" || flag == "-prec-div=true";
    }
    while (!arch.empty() && (arch.back() < '0' || arch.back() > '9')) arch.pop_back();
    if (arch.empty() || exact != 3) {
        program->log = "the model knows no such flags";
        return COMPILATION_ERROR;
    }
    program->code = arch + "\n" + program->source;
    return 0;
}
int nvrtcDestroyProgram(void** p) {
    delete (Program*)*p;
    *p = nullptr;
    return 0;
}
int nvrtcGetProgramLogSize(void* p, size_t* n) {
    *n = ((Program*)p)->log.size() + 1;
    return 0;
}
int nvrtcGetProgramLog(void* p, char* text) {
    strcpy(text, ((Program*)p)->log.c_str());
    return 0;
}
int nvrtcGetCUBINSize(void* p, size_t* n) {
    *n = ((Program*)p)->code.size() + 1;
    return 0;
}
int nvrtcGetCUBIN(void* p, char* out) {
    memcpy(out, ((Program*)p)->code.c_str(), ((Program*)p)->code.size() + 1);
    return 0;
}
}
#pragma GCC visibility pop
