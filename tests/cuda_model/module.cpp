// From the text that NVRTC is given to a library of the host: PTX replaced by calls of the model, shared variables looked
// up by block, an entry for each kernel. Compiled by the C++ compiler once a kernel of it is launched, and kept.

#include "model.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <regex>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace model {

struct Module {
    std::string image, failed;
    void* library = nullptr;
    Library info;
    std::map<std::string, std::unique_ptr<Kernel>> kernels;
};

namespace {

std::string from_env(const char* name, const char* otherwise) {
    const char* text = getenv(name);
    return text && *text ? text : otherwise;
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

u64 hash(const std::string& text) {
    u64 h = 0xcbf29ce484222325ull;
    for (unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
    return h;
}

// Kernels of a text: names in the order they come, each with its largest number of threads.
std::vector<std::pair<std::string, u32>> kernels_of(const std::string& text) {
    static const std::regex kernel(R"(__global__\s+void\s+(?:__launch_bounds__\(\s*(\d+)[^)]*\)\s*)?(\w+)\s*\()");
    std::vector<std::pair<std::string, u32>> found;
    for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it)
        found.push_back({(*it)[2], (*it)[1].matched ? (u32)std::stoul((*it)[1]) : 1024});
    return found;
}

// Puts the names of the source files back, for the compiler's messages, and the model's file in the place of the PTX.
std::string with_files(std::string text, std::string* wrong) {
    std::string folder = std::string(MODEL_ROOT) + "/cuda/", machine = read(folder + "machine.cuh");
    size_t at = text.find(machine);
    if (machine.empty() || at == std::string::npos) {
        *wrong = "the kernels were not built with cuda/machine.cuh as it is now";
        return text;
    }
    text.replace(at, machine.size(), "#include \"machine.h\"\n#line 1 \"kernel\"\n");
    FILE* list = popen(("ls " + folder).c_str(), "r");
    char name[256];
    while (list && fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = 0;
        std::string file = read(folder + name);
        size_t where = file.empty() ? std::string::npos : text.find(file);
        if (where != std::string::npos && (where == 0 || text[where - 1] == '\n'))
            text.insert(where, "#line 1 \"" + folder + name + "\"\n");
    }
    if (list) pclose(list);
    return text;
}

std::string translate(const std::string& image, std::string* wrong) {
    std::string text = with_files(image.substr(image.find('\n') + 1), wrong);
    auto kernels = kernels_of(text);
    // extern __shared__ __align__(128) unsigned char memory[];
    static const std::regex dynamic(R"(extern\s+__shared__\s+(?:__align__\((\d+)\)\s*)?([\w ]+?)\s+(\w+)\[\];)");
    text = std::regex_replace(text, dynamic, "$2* $3 = ($2*)model_dynamic_shared(0 + $1 + 0);");
    // __shared__ [__align__(n)] Type name[n][m];
    static const std::regex fixed(R"(__shared__\s+(__align__\(\d+\)\s*)?([\w:<>, ]+?)\s+(\w+)((?:\[[^\]]*\])*);)");
    std::string out;
    auto from = text.cbegin();
    u32 site = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), fixed), end; it != end; ++it) {
        const std::smatch& m = *it;
        std::string name = m[3], number = std::to_string(site++), type = "model_shared_" + number;
        out.append(from, m[0].first);
        out += "typedef " + m[1].str() + m[2].str() + " " + type + m[4].str() + "; " + type + "& " + name + " = *(" + type +
               "*)model_static_shared(" + number + ", sizeof(" + type + "), alignof(" + type + "), \"" + name + "\");";
        from = m[0].second;
    }
    out.append(from, text.cend());
    std::string head = "#include \"kernel.h\"\n";
    for (auto& [name, threads] : kernels) {
        std::string type = "model_kernel<decltype(&" + name + ")>";
        out += "\nextern \"C\" __attribute__((visibility(\"default\"))) void model_entry_" + name + "(void** params) { " +
               type + "::call(&" + name +
               ", params); }\nextern \"C\" __attribute__((visibility(\"default\"))) const unsigned* const model_sizes_" +
               name + ";\nconst unsigned* const model_sizes_" + name + " = " + type + "::sizes;\n";
    }
    return head + out;
}

// Runs the compiler; its messages.
std::string compile(const std::string& source, const std::string& library, const std::string& arch, bool checks) {
    std::string log = library + ".log", command = from_env("CXX", "g++");
    command +=
        " -std=c++17 -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fPIC -c -x c++ -w -fno-strict-aliasing "
        "-fwrapv -ffp-contract=off -fno-fast-math -fno-exceptions"
        " -fvisibility=hidden -D__CUDACC_VER_MAJOR__=13 -D__CUDACC_VER_MINOR__=0 -D__CUDA_ARCH__=" +
        arch + "0";
    if (checks) command += " -fsanitize=thread";
    command += std::string(" -I ") + MODEL_ROOT + "/tests/cuda_model -o " + library + ".o " + source + " > " + log +
               " 2>&1 && " + from_env("CXX", "g++") + " -shared -o " + library + " " + library + ".o " +
               from_env("SAMEDRAW_CUDA_DRIVER", "libcuda.so.1") + " >> " + log + " 2>&1";
    int status = system(command.c_str());
    std::string said = read(log);
    unlink(log.c_str());
    unlink((library + ".o").c_str());
    if (status == 0) return "";
    return "the C++ compiler refused the kernel (status " + std::to_string(status) + "), source " + source + ":\n" +
           said.substr(0, 4000);
}

void load(Module& module) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    if (module.library || !module.failed.empty()) return;
    // The first line says what NVRTC was asked for.
    std::string arch = module.image.substr(0, module.image.find('\n'));
    std::string text = translate(module.image, &module.failed);
    if (!module.failed.empty()) return;
    bool checks = from_env("SAMEDRAW_MODEL_CHECKS", "1") != "0";
    char name[64];
    std::string headers;
    for (const char* file : {"kernel.h", "runtime.h", "collectives.h", "numbers.h", "machine.h"})
        headers += read(std::string(MODEL_ROOT) + "/tests/cuda_model/" + file);
    snprintf(name, sizeof name, "/%016llx-sm_%s%s", (unsigned long long)hash(text + headers + MODEL_ROOT), arch.c_str(),
             checks ? "-checked" : "");
    std::string base = from_env("SAMEDRAW_MODEL_DIR", "/tmp") + name, library = base + ".so";
    struct stat there;
    if (stat(library.c_str(), &there) != 0) {
        // Processes may do this side by side: each makes files of its own, and the last to finish gives the name.
        std::string own = base + "-" + std::to_string(getpid());
        std::ofstream(own + ".cpp", std::ios::binary) << text;
        module.failed = compile(own + ".cpp", own + ".so", arch, checks);
        if (!module.failed.empty()) return;
        rename((own + ".cpp").c_str(), (base + ".cpp").c_str());
        rename((own + ".so").c_str(), library.c_str());
    }
    module.library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module.library) {
        module.failed = dlerror();
        return;
    }
    module.info.path = library;
    module.info.checked = checks;
}

} // namespace

Module* module_load(const char* image) {
    auto module = new Module;
    module->image = image;
    for (auto& [name, threads] : kernels_of(module->image)) {
        auto kernel = std::make_unique<Kernel>();
        kernel->name = name;
        kernel->entry = nullptr;
        kernel->most_threads = threads;
        module->kernels[name] = std::move(kernel);
    }
    return module;
}

void module_unload(Module* module) {
    if (module->library) dlclose(module->library);
    delete module;
}

Kernel* module_kernel(Module* module, const char* name) {
    auto found = module->kernels.find(name);
    return found == module->kernels.end() ? nullptr : found->second.get();
}

bool kernel_ready(Module* module, Kernel* kernel, std::string* why) {
    if (kernel->entry) return true;
    load(*module);
    if (!module->failed.empty()) {
        *why = module->failed;
        return false;
    }
    auto find = [&](const std::string& name) {
        void* at = dlsym(module->library, name.c_str());
        if (!at) *why = "the compiled kernel lacks " + name;
        return at;
    };
    auto self = (const ModelThread** const*)find("model_self_place");
    auto sizes = (const u32* const*)find("model_sizes_" + kernel->name);
    auto entry = (void (*)(void**))find("model_entry_" + kernel->name);
    if (!self || !sizes || !entry) return false;
    Dl_info found;
    if (module->info.begin == nullptr && dladdr((void*)entry, &found) != 0) {
        module->info.begin = (unsigned char*)found.dli_fbase;
        dl_iterate_phdr(
            [](dl_phdr_info* one, size_t, void* data) {
                auto info = (Library*)data;
                if ((unsigned char*)one->dlpi_addr != info->begin) return 0;
                for (int i = 0; i < one->dlpi_phnum; i++) {
                    auto end = info->begin + one->dlpi_phdr[i].p_vaddr + one->dlpi_phdr[i].p_memsz;
                    if (one->dlpi_phdr[i].p_type == PT_LOAD && end > info->end) info->end = end;
                }
                return 1;
            },
            &module->info);
    }
    kernel->library = &module->info;
    kernel->self = *self;
    kernel->sizes = *sizes;
    kernel->entry = entry;
    return true;
}

} // namespace model
