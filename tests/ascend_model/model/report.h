// What a broken rule becomes: an exception that ends the kernel and whose text names call, rule and values. Numbers that
// the vendor's structs keep in few bits are taken in 64, so that a value which does not fit is seen and not cut.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace ascend_model {

// Where in the kernel's source a call stands; every call of the model takes it as its last, defaulted parameter.
struct Where {
    const char *file;
    int line;
    static Where here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

#define ASCEND_MODEL_AT ::ascend_model::Where at = ::ascend_model::Where::here(__builtin_FILE(), __builtin_LINE())

struct Broken {
    std::string text;
};

// The call at work on this thread, for the report.
struct Call {
    const char *name = "(no call)";
    Where at{"", 0};
};
inline thread_local Call current_call;

[[noreturn]] inline void broken(const std::string &rule) {
    std::string file = current_call.at.file ? current_call.at.file : "";
    size_t slash = file.rfind('/');
    if (slash != std::string::npos) file.erase(0, slash + 1);
    throw Broken{std::string(current_call.name) + " at " + file + ":" + std::to_string(current_call.at.line) + ": " + rule};
}

template <typename... Parts> std::string text(const Parts &...parts) {
    std::string all;
    auto add = [&all](const auto &part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
            all += std::to_string(part);
        } else if constexpr (std::is_invocable_v<decltype(part)>) {
            all += part();
        } else {
            all += part;
        }
    };
    (add(parts), ...);
    return all;
}

// `require(holds, parts...)`: the parts become text only where the rule is broken; a part that is costly to make is a function.
template <typename... Parts> inline void require(bool holds, const Parts &...parts) {
    if (__builtin_expect(!holds, 0)) broken(text(parts...));
}

inline void enter(const char *name, Where at) {
    current_call.name = name;
    current_call.at = at;
}

// A field of a vendor's struct that holds a T there.
template <typename T> class Field {
  public:
    template <typename V, typename = std::enable_if_t<std::is_integral_v<V>>>
    Field(V given) : value(static_cast<T>(given)) {
        bool negative = std::is_signed_v<V> && given < V(0);
        bool fits = !negative && static_cast<uint64_t>(given) <= static_cast<uint64_t>(std::numeric_limits<T>::max());
        require(fits, std::to_string(given), " does not fit the ", sizeof(T) * 8, " bits that the call has for it");
    }
    operator T() const { return value; }

  private:
    T value;
};

} // namespace ascend_model
