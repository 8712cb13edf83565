// Test double: streams, events and captures of the simulated runtime. A stream is a thread that runs its tasks in order,
// a little late, so that a caller who does not wait is found out.
#include "sim.h"

#include <cstring>

namespace {

thread_local int captures_here = 0;

// The stream behind `handle` for a call that no capture allows.
sim::Stream *settled(const char *call, aclrtStream handle, int &code) {
    sim::Stream *stream = sim::stream_of(call, handle, code);
    if (stream && stream->capturing) {
        stream->invalidated = true;
        code = sim::refuse(call, ACL_ERROR_RT_STREAM_CAPTURED, "the stream is capturing");
        return nullptr;
    }
    return stream;
}

// An event of the current context, nullptr otherwise.
sim::Event *event_of(const char *call, aclrtEvent handle, int &code) {
    auto *event = static_cast<sim::Event *>(handle);
    if (!sim::lives("event", event)) {
        code = sim::refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "not a live event");
    } else if (event->context != sim::current()) {
        code = sim::refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "an event of another context");
    } else {
        return event;
    }
    return nullptr;
}

void record(sim::Stream &stream, sim::Event *event) {
    // What runs later must not rely on the event object being alive: a record whose event is gone does nothing.
    auto count = std::make_shared<uint64_t>(0);
    if (!stream.capturing) {
        std::lock_guard<std::mutex> guard(event->lock);
        *count = ++event->recorded;
    }
    sim::submit(stream, [event, count] {
        if (!sim::lives("event", event)) return int{ACL_ERROR_RT_INVALID_HANDLE};
        std::lock_guard<std::mutex> guard(event->lock);
        event->completed = *count ? *count : event->recorded;
        event->when = std::chrono::steady_clock::now();
        event->changed.notify_all();
        return 0;
    });
}

} // namespace

namespace sim {

Stream::Stream(Context *context) : context(context), worker([this] { work(); }) {}

Stream::~Stream() {
    {
        std::lock_guard<std::mutex> guard(lock);
        ending = true;
    }
    changed.notify_all();
    worker.join();
}

void Stream::push(Task task) {
    {
        std::lock_guard<std::mutex> guard(lock);
        queue.push_back(std::move(task));
    }
    changed.notify_all();
}

int Stream::drain() {
    std::unique_lock<std::mutex> guard(lock);
    changed.wait(guard, [this] { return queue.empty() && !busy; });
    int code = error;
    error = 0;
    return code;
}

void Stream::work() {
    std::unique_lock<std::mutex> guard(lock);
    unsigned turn = static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 6);
    for (;;) {
        changed.wait(guard, [this] { return ending || !queue.empty(); });
        if (queue.empty()) return;
        Task task = std::move(queue.front());
        queue.pop_front();
        busy = true;
        guard.unlock();
        turn = turn * 1103515245u + 12345u;
        std::this_thread::sleep_for(std::chrono::microseconds(turn >> 16 & 127));
        int code = task();
        task = nullptr;
        guard.lock();
        busy = false;
        // A failed task does not stop the ones after it; the first failure is kept for the next wait.
        if (code && !error) error = code;
        changed.notify_all();
    }
}

Stream *stream_of(const char *call, aclrtStream handle, int &code) {
    auto *stream = static_cast<Stream *>(handle);
    if (!stream) return current()->default_stream;
    if (!lives("stream", stream)) {
        code = refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "not a live stream");
    } else if (stream->context != current()) {
        code = refuse(call, ACL_ERROR_RT_STREAM_CONTEXT, "a stream of another context");
    } else {
        return stream;
    }
    return nullptr;
}

void submit(Stream &stream, Task task) {
    if (stream.capturing) {
        stream.captured.push_back(std::move(task));
    } else {
        stream.push(std::move(task));
    }
}

bool thread_captures() { return captures_here > 0; }

} // namespace sim

using namespace sim;

SIM_EXPORT aclError aclrtCreateStream(aclrtStream *out) {
    SIM_ENTER_CONTEXT("aclrtCreateStream");
    auto *stream = new Stream(current());
    born("stream", stream);
    *out = stream;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtDestroyStream(aclrtStream handle) {
    SIM_ENTER_CONTEXT("aclrtDestroyStream");
    int code = 0;
    if (!handle) return refuse("aclrtDestroyStream", ACL_ERROR_RT_PARAM_INVALID, "the default stream");
    Stream *stream = stream_of("aclrtDestroyStream", handle, code);
    if (!stream) return code;
    died("stream", stream);
    delete stream;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtSynchronizeStream(aclrtStream handle) {
    SIM_ENTER_CONTEXT("aclrtSynchronizeStream");
    int code = 0;
    Stream *stream = settled("aclrtSynchronizeStream", handle, code);
    if (!stream) return code;
    code = stream->drain();
    return code ? refuse("aclrtSynchronizeStream", code, "a kernel or copy on the stream failed. " + broken_rule()) : ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtCreateEventExWithFlag(aclrtEvent *out, uint32_t flag) {
    SIM_ENTER_CONTEXT("aclrtCreateEventExWithFlag");
    if (!(flag & ACL_EVENT_SYNC) || (flag & ~uint32_t{ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE})) {
        return refuse("aclrtCreateEventExWithFlag", ACL_ERROR_RT_PARAM_INVALID, "flags no caller here should use");
    }
    auto *event = new Event;
    event->context = current();
    event->flags = flag;
    born("event", event);
    *out = event;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtDestroyEvent(aclrtEvent handle) {
    SIM_ENTER_CONTEXT("aclrtDestroyEvent");
    int code = 0;
    Event *event = event_of("aclrtDestroyEvent", handle, code);
    if (!event) return code;
    {
        std::lock_guard<std::mutex> guard(event->lock);
        if (event->completed != event->recorded) {
            return refuse("aclrtDestroyEvent", ACL_ERROR_RT_PARAM_INVALID, "a recording is still under way");
        }
    }
    died("event", event);
    delete event;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream on) {
    SIM_ENTER_CONTEXT("aclrtRecordEvent");
    int code = 0;
    Event *event = event_of("aclrtRecordEvent", handle, code);
    Stream *stream = event ? stream_of("aclrtRecordEvent", on, code) : nullptr;
    if (!stream) return code;
    record(*stream, event);
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus *status) {
    SIM_ENTER_CONTEXT("aclrtQueryEventStatus");
    int code = 0;
    Event *event = event_of("aclrtQueryEventStatus", handle, code);
    if (!event) return code;
    if (thread_captures()) {
        return refuse("aclrtQueryEventStatus", ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "a query in a capture");
    }
    std::lock_guard<std::mutex> guard(event->lock);
    bool done = event->recorded != 0 && event->completed == event->recorded;
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtSynchronizeEvent(aclrtEvent handle) {
    SIM_ENTER_CONTEXT("aclrtSynchronizeEvent");
    int code = 0;
    Event *event = event_of("aclrtSynchronizeEvent", handle, code);
    if (!event) return code;
    std::unique_lock<std::mutex> guard(event->lock);
    event->changed.wait(guard, [event] { return event->completed == event->recorded; });
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    SIM_ENTER_CONTEXT("aclrtEventElapsedTime");
    int code = 0;
    Event *start = event_of("aclrtEventElapsedTime", startEvent, code);
    Event *end = start ? event_of("aclrtEventElapsedTime", endEvent, code) : nullptr;
    if (!end) return code;
    for (Event *event : {start, end}) {
        std::lock_guard<std::mutex> guard(event->lock);
        if (!(event->flags & ACL_EVENT_TIME_LINE) || !event->recorded || event->completed != event->recorded) {
            return refuse("aclrtEventElapsedTime", ACL_ERROR_RT_PARAM_INVALID, "an event without a time");
        }
    }
    *ms = std::chrono::duration<float, std::milli>(end->when - start->when).count();
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode mode) {
    SIM_ENTER_CONTEXT("aclmdlRICaptureBegin");
    int code = 0;
    if (!handle) return refuse("aclmdlRICaptureBegin", ACL_ERROR_RT_PARAM_INVALID, "the default stream");
    Stream *stream = settled("aclmdlRICaptureBegin", handle, code);
    if (!stream) return code;
    if (mode != ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL) {
        return refuse("aclmdlRICaptureBegin", ACL_ERROR_RT_PARAM_INVALID, "a mode no caller here should use");
    }
    stream->capturing = true;
    stream->invalidated = false;
    stream->capturer = std::this_thread::get_id();
    ++captures_here;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus *status, aclmdlRI *modelRI) {
    SIM_ENTER_CONTEXT("aclmdlRICaptureGetInfo");
    int code = 0;
    Stream *stream = stream_of("aclmdlRICaptureGetInfo", handle, code);
    if (!stream) return code;
    *modelRI = nullptr;
    *status = !stream->capturing    ? ACL_MODEL_RI_CAPTURE_STATUS_NONE
              : stream->invalidated ? ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED
                                    : ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI *modelRI) {
    SIM_ENTER_CONTEXT("aclmdlRICaptureEnd");
    int code = 0;
    Stream *stream = stream_of("aclmdlRICaptureEnd", handle, code);
    if (!stream) return code;
    if (!stream->capturing || stream->capturer != std::this_thread::get_id()) {
        return refuse("aclmdlRICaptureEnd", ACL_ERROR_RT_PARAM_INVALID, "no capture of this thread on the stream");
    }
    stream->capturing = false;
    --captures_here;
    auto tasks = std::move(stream->captured);
    stream->captured.clear();
    if (stream->invalidated) {
        return refuse("aclmdlRICaptureEnd", ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED, "a call was not allowed in it");
    }
    auto *graph = new Graph{std::move(tasks)};
    born("graph", graph);
    *modelRI = graph;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclmdlRIExecuteAsync(aclmdlRI modelRI, aclrtStream handle) {
    SIM_ENTER_CONTEXT("aclmdlRIExecuteAsync");
    int code = 0;
    auto *graph = static_cast<Graph *>(modelRI);
    if (!lives("graph", graph)) {
        return refuse("aclmdlRIExecuteAsync", ACL_ERROR_RT_INVALID_HANDLE, "not a live graph");
    }
    Stream *stream = settled("aclmdlRIExecuteAsync", handle, code);
    if (!stream) return code;
    for (const Task &task : graph->tasks) stream->push(task);
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclmdlRIDestroy(aclmdlRI modelRI) {
    SIM_ENTER_CONTEXT("aclmdlRIDestroy");
    auto *graph = static_cast<Graph *>(modelRI);
    if (!lives("graph", graph)) return refuse("aclmdlRIDestroy", ACL_ERROR_RT_INVALID_HANDLE, "not a live graph");
    died("graph", graph);
    delete graph;
    return ACL_ERROR_NONE;
}
