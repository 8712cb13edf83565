// What a thread knows to have happened: for the other threads of the launch, up to which moment their accesses lie before
// its own. Moments count the times anyone handed knowledge on, so one number serves all threads.
#ifndef CUDA_MODEL_CLOCK
#define CUDA_MODEL_CLOCK

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace model {

typedef std::vector<std::pair<uint32_t, uint32_t>> Moments;

struct Clock {
    // By number of the block, of the warp, of the thread, counted over the launch, and of the completion (how many of its
    // phases); each ascending. What is known of a whole block or warp is not repeated for its threads.
    Moments blocks, warps, threads, completions;
};
typedef std::shared_ptr<const Clock> ClockPtr;

// Number of an access's author: a thread of the launch, or what a completion counts.
constexpr uint32_t OF_COMPLETION = 0x80000000u;

// Knowledge on its way from some threads to others.
class Gathered {
  public:
    void add(const ClockPtr& clock);
    void add_thread(uint32_t thread, uint32_t moment) { own.threads.push_back({thread, moment}); }
    void add_warp(uint32_t warp, uint32_t moment) { own.warps.push_back({warp, moment}); }
    void add_block(uint32_t block, uint32_t moment) { own.blocks.push_back({block, moment}); }
    void add_completion(uint32_t completion, uint32_t phases) { own.completions.push_back({completion, phases}); }
    // Forgets what was added.
    ClockPtr take();
    ClockPtr copy() const;

  private:
    Clock own;
    std::vector<ClockPtr> parts;
};

// Both.
ClockPtr joined(const ClockPtr& a, const ClockPtr& b);

// Numbers of threads per block, for the launch that runs.
void clocks_reset(uint32_t threads_of_a_block);

bool knows(const Clock* clock, uint32_t author, uint32_t moment);

} // namespace model

#endif
