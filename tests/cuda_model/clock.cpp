#include "clock.h"

#include <algorithm>

namespace model {
namespace {

uint32_t block_threads = 1, block_warps = 1;

// Joins that were asked for last: all threads of a block ask for the same.
struct Asked {
    ClockPtr a, b, both;
};
Asked asked[64];
unsigned next_asked = 0;

// Whether every moment of `more` is known already.
bool covers(const Moments& all, const Moments& more) {
    if (more.size() > all.size()) return false;
    auto at = all.begin();
    for (auto& m : more) {
        while (at != all.end() && at->first < m.first) ++at;
        if (at == all.end() || at->first != m.first || at->second < m.second) return false;
    }
    return true;
}

void merge(Moments& into, const Moments& more) {
    if (covers(into, more)) return;
    if (into.empty()) {
        into = more;
        return;
    }
    Moments all(into.size() + more.size());
    std::merge(into.begin(), into.end(), more.begin(), more.end(), all.begin());
    // Of equal numbers the last has the latest moment.
    Moments unique;
    unique.reserve(all.size());
    for (auto& m : all) {
        if (!unique.empty() && unique.back().first == m.first)
            unique.back() = m;
        else
            unique.push_back(m);
    }
    into.swap(unique);
}

uint32_t moment_of(const Moments& moments, uint32_t number) {
    auto found = std::lower_bound(moments.begin(), moments.end(), std::make_pair(number, 0u));
    return found != moments.end() && found->first == number ? found->second : 0;
}

// Drops what is known of threads that is known of all their warp or block.
void tidy(Clock& c) {
    auto covered = [&](const std::pair<uint32_t, uint32_t>& m) {
        return m.second <= moment_of(c.blocks, m.first / block_threads) ||
               m.second <= moment_of(c.warps, m.first / block_threads * block_warps + m.first % block_threads / 32);
    };
    c.threads.erase(std::remove_if(c.threads.begin(), c.threads.end(), covered), c.threads.end());
    auto in_block = [&](const std::pair<uint32_t, uint32_t>& m) {
        return m.second <= moment_of(c.blocks, m.first / block_warps);
    };
    c.warps.erase(std::remove_if(c.warps.begin(), c.warps.end(), in_block), c.warps.end());
}

void merge(Clock& into, const Clock& more) {
    merge(into.blocks, more.blocks);
    merge(into.warps, more.warps);
    merge(into.threads, more.threads);
    merge(into.completions, more.completions);
}

} // namespace

void clocks_reset(uint32_t threads_of_a_block) {
    block_threads = threads_of_a_block;
    block_warps = (threads_of_a_block + 31) / 32;
    for (Asked& one : asked) one = Asked();
}

void Gathered::add(const ClockPtr& clock) {
    if (clock && std::find(parts.begin(), parts.end(), clock) == parts.end()) parts.push_back(clock);
}

ClockPtr Gathered::copy() const {
    Clock all = own;
    for (Moments* moments : {&all.blocks, &all.warps, &all.threads, &all.completions}) {
        std::sort(moments->begin(), moments->end());
        Moments unique;
        for (auto& m : *moments) {
            if (!unique.empty() && unique.back().first == m.first)
                unique.back() = m;
            else
                unique.push_back(m);
        }
        moments->swap(unique);
    }
    for (const ClockPtr& part : parts) merge(all, *part);
    tidy(all);
    return std::make_shared<Clock>(std::move(all));
}

ClockPtr Gathered::take() {
    ClockPtr all = copy();
    *this = Gathered();
    return all;
}

ClockPtr joined(const ClockPtr& a, const ClockPtr& b) {
    if (!b || a == b) return a;
    if (!a) return b;
    if (covers(a->blocks, b->blocks) && covers(a->warps, b->warps) && covers(a->threads, b->threads) &&
        covers(a->completions, b->completions))
        return a;
    for (const Asked& one : asked)
        if (one.a == a && one.b == b) return one.both;
    Clock all = *a;
    merge(all, *b);
    tidy(all);
    Asked& one = asked[next_asked++ % 64];
    one = Asked{a, b, std::make_shared<Clock>(std::move(all))};
    return one.both;
}

bool knows(const Clock* clock, uint32_t author, uint32_t moment) {
    if (!clock) return false;
    if (author & OF_COMPLETION) return moment_of(clock->completions, author & ~OF_COMPLETION) >= moment;
    uint32_t block = author / block_threads;
    return moment_of(clock->blocks, block) >= moment ||
           moment_of(clock->warps, block * block_warps + author % block_threads / 32) >= moment ||
           moment_of(clock->threads, author) >= moment;
}

} // namespace model
