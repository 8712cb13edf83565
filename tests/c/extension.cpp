// A C++ extension in the manner of a serving stack: it owns memory, streams and the workspace, and chooses the device by
// name. The arguments are the device ("cpu", "cuda", "cuda:1") and the path of the driver. Exits with 77 where there is no
// such device. With SAMEDRAW_TEST_FAKE_DRIVER set the kernels compute nothing, and tokens are not compared.
#include "check.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kRows = 8, kVocab = 1000, kSteps = 12;
constexpr int64_t kStart = 40;

// Where the stack's tensors live. On the CPU: host memory.
class Memory {
public:
    virtual ~Memory() = default;
    virtual void *allocate(size_t bytes) = 0;
    virtual void release(void *memory) = 0;
    virtual void upload(void *to, const void *from, size_t bytes) = 0;
    virtual void download(void *to, const void *from, size_t bytes) = 0;
    virtual void *stream() = 0;
};

class Host final : public Memory {
    void *allocate(size_t bytes) override { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); }
    void release(void *memory) override { std::free(memory); }
    void upload(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void download(void *to, const void *from, size_t bytes) override { std::memcpy(to, from, bytes); }
    void *stream() override { return reinterpret_cast<void *>(0x57); }
};

// By the driver's calls, as a stack that has CUDA makes them; looked up, so that the program builds without.
class Cuda final : public Memory {
    void *library_, *stream_ = nullptr;

    template <class... Arguments> void call(const char *name, Arguments... arguments) {
        auto found = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
        CHECK(found != nullptr);
        CHECK(found(arguments...) == 0);
    }

public:
    Cuda(void *library, int ordinal) : library_(library) {
        int device = 0;
        void *context = nullptr;
        call("cuInit", 0u);
        call("cuDeviceGet", &device, ordinal);
        call("cuDevicePrimaryCtxRetain", &context, device);
        call("cuCtxPushCurrent_v2", context);
        call("cuStreamCreate", &stream_, 1u);
    }
    ~Cuda() override { call("cuStreamDestroy_v2", stream_); }
    void *allocate(size_t bytes) override {
        unsigned long long memory = 0;
        call("cuMemAlloc_v2", &memory, bytes);
        return reinterpret_cast<void *>(memory);
    }
    void release(void *memory) override { call("cuMemFree_v2", reinterpret_cast<unsigned long long>(memory)); }
    void upload(void *to, const void *from, size_t bytes) override {
        call("cuMemcpyHtoDAsync_v2", reinterpret_cast<unsigned long long>(to), from, bytes, stream_);
        call("cuStreamSynchronize", stream_);
    }
    void download(void *to, const void *from, size_t bytes) override {
        call("cuMemcpyDtoHAsync_v2", to, reinterpret_cast<unsigned long long>(from), bytes, stream_);
        call("cuStreamSynchronize", stream_);
    }
    void *stream() override { return stream_; }
};

// A tensor of the stack's.
template <class T> class Tensor {
    Memory &memory_;
    size_t count_;
    T *data_;

public:
    Tensor(Memory &memory, const std::vector<T> &values)
        : memory_(memory), count_(values.size()), data_(static_cast<T *>(memory.allocate(count_ * sizeof(T)))) {
        write(values);
    }
    Tensor(const Tensor &) = delete;
    ~Tensor() { memory_.release(data_); }
    T *data() { return data_; }
    void write(const std::vector<T> &values) { memory_.upload(data_, values.data(), count_ * sizeof(T)); }
    std::vector<T> read() {
        std::vector<T> values(count_);
        memory_.download(values.data(), data_, count_ * sizeof(T));
        return values;
    }
};

struct Free {
    void operator()(samedraw_device *handle) const { OK(samedraw_device_free(handle)); }
    void operator()(samedraw_table *handle) const { OK(samedraw_table_free(handle)); }
    void operator()(samedraw_sampler *handle) const { OK(samedraw_sampler_free(handle)); }
    void operator()(samedraw_captured *handle) const { OK(samedraw_captured_free(handle)); }
};
template <class T> using Handle = std::unique_ptr<T, Free>;

// The logits of a request: flat, or hilly, by its number.
float logit(size_t request, size_t token) {
    return request % 2 == 0 ? 0.0f : static_cast<float>(splitmix64(request, token) >> 40) * 1e-6f;
}

class Sampler {
    Memory &memory_;
    Handle<samedraw_device> device_;
    Handle<samedraw_table> table_;
    Handle<samedraw_sampler> sampler_;
    void *workspace_ = nullptr;
    Tensor<float> logits_;
    Tensor<int64_t> slots_, positions_;
    Tensor<int32_t> tokens_;
    samedraw_logits view_{};
    samedraw_outputs outputs_{};
    samedraw_step step_{};

public:
    Sampler(Memory &memory, Handle<samedraw_device> device)
        : memory_(memory), device_(std::move(device)), logits_(memory, std::vector<float>(kRows * kVocab)),
          slots_(memory, std::vector<int64_t>(kRows, -1)), positions_(memory, std::vector<int64_t>(kRows)),
          tokens_(memory, std::vector<int32_t>(kRows, -99)) {
        samedraw_table *table = nullptr;
        OK(samedraw_table_create(device_.get(), kRows, &table));
        table_.reset(table);
        for (size_t slot = 0; slot < kRows; slot++) {
            samedraw_params params{};
            params.size = sizeof params;
            OK(samedraw_params_init(&params));
            params.has_seed = 1;
            params.seed = 1000 + slot;
            if (slot % 2 == 1) params.top_p = 0.9f;
            if (slot % 4 == 3) params.top_k = 20;
            OK(samedraw_table_set(table, memory.stream(), slot, &params, nullptr));
        }
        // The stack's allocator lends the workspace.
        samedraw_limits limits{};
        limits.size = sizeof limits;
        limits.rows = kRows;
        limits.vocab = kVocab;
        size_t bytes = 0;
        OK(samedraw_workspace_bytes(device_.get(), &limits, &bytes));
        workspace_ = memory.allocate(bytes);
        samedraw_sampler *sampler = nullptr;
        OK(samedraw_sampler_create_with_workspace(device_.get(), &limits, table, workspace_, bytes, &sampler));
        sampler_.reset(sampler);
        view_.size = sizeof view_;
        view_.data = logits_.data();
        view_.rows = kRows;
        view_.vocab = view_.stride = kVocab;
        outputs_.size = sizeof outputs_;
        outputs_.tokens = tokens_.data();
        outputs_.tokens_width = 4;
        step_.size = sizeof step_;
        step_.logits = &view_;
        step_.rows = kRows;
        step_.outputs = &outputs_;
        step_.row_to_slot = slots_.data();
        step_.row_to_slot_width = 8;
        step_.positions = positions_.data();
    }
    ~Sampler() {
        sampler_.reset();
        memory_.release(workspace_);
    }

    // These requests, one a row; the rows behind them are padding.
    void batch(const std::vector<size_t> &requests) {
        std::vector<float> logits(kRows * kVocab);
        std::vector<int64_t> slots(kRows, -1);
        for (size_t row = 0; row < requests.size(); row++) {
            slots[row] = static_cast<int64_t>(requests[row]);
            for (size_t token = 0; token < kVocab; token++) logits[row * kVocab + token] = logit(requests[row], token);
        }
        logits_.write(logits);
        slots_.write(slots);
    }
    void positions(size_t step) {
        positions_.write(std::vector<int64_t>(kRows, kStart + static_cast<int64_t>(step)));
    }
    void enqueue() { OK(samedraw_sampler_step(sampler_.get(), memory_.stream(), &step_)); }
    Handle<samedraw_captured> capture() {
        samedraw_captured *captured = nullptr;
        OK(samedraw_sampler_capture(sampler_.get(), memory_.stream(), &step_, SAMEDRAW_VARIANT_DEFAULT, &captured));
        return Handle<samedraw_captured>(captured);
    }
    std::vector<int32_t> tokens() { return tokens_.read(); }
    void forget() { tokens_.write(std::vector<int32_t>(kRows, -99)); }
    void *stream() { return memory_.stream(); }
};

using Tokens = std::vector<std::vector<int32_t>>;

// Every step of the decode loop, eagerly, then from a graph: the same tokens.
Tokens decode(Sampler &sampler, bool computes) {
    std::vector<size_t> everyone(kRows);
    for (size_t row = 0; row < kRows; row++) everyone[row] = row;
    sampler.batch(everyone);
    Tokens eager;
    for (size_t step = 0; step < kSteps; step++) {
        sampler.positions(step);
        sampler.enqueue();
        eager.push_back(sampler.tokens());
    }
    auto captured = sampler.capture();
    for (size_t step = 0; step < kSteps; step++) {
        sampler.positions(step);
        sampler.forget();
        OK(samedraw_captured_replay(captured.get(), sampler.stream()));
        CHECK(!computes || sampler.tokens() == eager[step]);
    }
    // Fewer requests, in other rows of the same graph: each draws what it drew, the padding is not written.
    sampler.batch({6, 1});
    sampler.forget();
    OK(samedraw_captured_replay(captured.get(), sampler.stream()));
    auto tokens = sampler.tokens();
    if (computes) {
        CHECK(tokens[0] == eager.back()[6] && tokens[1] == eager.back()[1]);
        for (size_t row = 2; row < kRows; row++) CHECK(tokens[row] == -99);
    }
    return eager;
}

// What a call costs the host. A GPU that is behind would hold the host up once its queue is full, so calls come in bursts
// far shorter than that, with nothing of the one before left in the queue.
void cost(Sampler &sampler, const char *device) {
    constexpr int kBursts = 200, kWarm = 20, kCalls = 50;
    std::vector<double> spent;
    for (int burst = 0; burst < kWarm + kBursts; burst++) {
        sampler.tokens();
        auto start = std::chrono::steady_clock::now();
        for (int call = 0; call < kCalls; call++) sampler.enqueue();
        std::chrono::duration<double, std::micro> burst_spent = std::chrono::steady_clock::now() - start;
        if (burst >= kWarm) spent.push_back(burst_spent.count() / kCalls);
    }
    sampler.tokens();
    std::sort(spent.begin(), spent.end());
    std::printf("%s: %.2f us a call of samedraw_sampler_step, the median of %d bursts of %d, %.2f to %.2f%s\n", device,
                spent[kBursts / 2], kBursts, kCalls, spent.front(), spent.back(),
                std::string(device) == "cpu" ? " (on the CPU device the step itself, too)" : "");
}

Handle<samedraw_device> open_or_skip(const char *name) {
    samedraw_device *device = nullptr;
    auto status = samedraw_device_open(name, &device);
    if (status == SAMEDRAW_UNAVAILABLE) {
        std::printf("SKIPPED: %s\n", samedraw_last_error());
        std::exit(77);
    }
    OK(status);
    return Handle<samedraw_device>(device);
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 3);
    std::string name = arguments[1];
    bool computes = std::getenv("SAMEDRAW_TEST_FAKE_DRIVER") == nullptr;
    auto device = open_or_skip(arguments[1]);
    std::unique_ptr<Memory> memory;
    if (name == "cpu") {
        memory = std::make_unique<Host>();
    } else {
        void *library = dlopen(arguments[2], RTLD_NOW);
        CHECK(library != nullptr);
        memory = std::make_unique<Cuda>(library, name.find(':') == name.npos ? 0 : std::stoi(name.substr(5)));
    }
    Tokens here, host;
    {
        Sampler sampler(*memory, std::move(device));
        here = decode(sampler, computes);
        cost(sampler, arguments[1]);
    }
    // On two threads at once, each with a sampler of its own: the same tokens as on this device and on any other.
    std::vector<std::thread> threads;
    Tokens others[2];
    for (auto &tokens : others)
        threads.emplace_back([&tokens] {
            Host memory;
            Sampler sampler(memory, open_or_skip("cpu"));
            tokens = decode(sampler, true);
        });
    for (auto &thread : threads) thread.join();
    CHECK(others[0] == others[1] && (!computes || others[0] == here));
    for (size_t step = 0; step < kSteps; step++)
        for (size_t row = 0; row < kRows; row += 2)
            CHECK(others[0][step][row] == flat_token(1000 + row, kStart + static_cast<int64_t>(step), kVocab));
    std::puts("done");
}
