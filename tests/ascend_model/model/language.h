// What device code may not say at all (page "C++ support: features"): no virtual functions, no exceptions, no memory from a
// heap, no RTTI, no standard library. g++ would take it, so the text is looked through before it is compiled.
#pragma once

#include <cctype>
#include <string>

namespace ascend_model {

// `source` with comments and literals blanked, lines kept.
inline std::string code_of(const std::string &source) {
    std::string code = source;
    for (size_t i = 0; i < code.size();) {
        auto blank = [&](size_t until) {
            for (; i < until && i < code.size(); ++i) {
                if (code[i] != '\n') code[i] = ' ';
            }
        };
        if (code.compare(i, 2, "//") == 0) {
            blank(code.find('\n', i));
        } else if (code.compare(i, 2, "/*") == 0) {
            size_t end = code.find("*/", i + 2);
            blank(end == std::string::npos ? end : end + 2);
        } else if (code[i] == '"') {
            size_t end = i + 1;
            while (end < code.size() && code[end] != '"') end += code[end] == '\\' ? 2 : 1;
            // What `extern` and `#include` name stays.
            size_t line = code.find_last_of('\n', i),
                   start = code.find_first_not_of(" \t", line == std::string::npos ? 0 : line + 1);
            if (code.compare(i, 3, "\"C\"") == 0 || code[start] == '#')
                i = end + 1;
            else
                blank(end + 1);
        } else {
            ++i;
        }
    }
    return code;
}

// The first thing in `source` that device code may not say, with its line; empty for none.
inline std::string language_fault(const std::string &source) {
    const std::string code = code_of(source);
    static const char *const words[] = {
        "std", "virtual", "new",   "delete", "malloc", "free",    "calloc", "realloc",      "typeid",      "dynamic_cast",
        "try", "catch",   "throw", "memcpy", "memset", "memmove", "printf", "thread_local", "ascend_model"};
    size_t line = 1;
    for (size_t i = 0; i < code.size();) {
        if (code[i] == '\n') ++line;
        if (!std::isalpha(static_cast<unsigned char>(code[i])) && code[i] != '_') {
            // A number takes its suffix along.
            bool number = std::isdigit(static_cast<unsigned char>(code[i]));
            ++i;
            while (number && i < code.size() && (std::isalnum(static_cast<unsigned char>(code[i])) || code[i] == '_')) ++i;
            continue;
        }
        size_t end = i;
        while (end < code.size() && (std::isalnum(static_cast<unsigned char>(code[end])) || code[end] == '_')) ++end;
        const std::string word = code.substr(i, end - i);
        for (const char *known : words) {
            // A function may be deleted.
            size_t before = code.find_last_not_of(" \t\n", i ? i - 1 : 0);
            bool deleted = word == "delete" && before != std::string::npos && code[before] == '=';
            if (word == known && !deleted) return "line " + std::to_string(line) + ": device code has no '" + word + "'";
        }
        if (word == "include") {
            size_t stop = code.find('\n', end);
            std::string name = code.substr(end, stop - end);
            bool known = false;
            for (const char *header : {"\"kernel_operator.h\"", "<cstdint>", "<cstddef>"})
                known = known || name.find(header) != std::string::npos;
            if (!known)
                return "line " + std::to_string(line) +
                       ": device code includes kernel_operator.h, <cstdint> and <cstddef> alone, not" + name;
            end = stop == std::string::npos ? code.size() : stop;
        }
        i = end;
    }
    return "";
}

} // namespace ascend_model
