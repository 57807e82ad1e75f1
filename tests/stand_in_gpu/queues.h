// Streams that do their work late, in an order that only events bind: what a GPU may do, and a quick one seldom does.
// Used with STAND_IN_COMPUTE=1. The work of kernels is handed in by computing.py; copies and messages do their own.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace queues {
typedef std::function<bool()> Work;  // true once it is done; asked again until then
struct Ticket {
    std::atomic<bool> done{false};
    double at = 0;
};
typedef std::shared_ptr<Ticket> Done;

inline bool computing() {
    static bool yes = getenv("STAND_IN_COMPUTE") && atoi(getenv("STAND_IN_COMPUTE"));
    return yes;
}

// Without Python's lock, which the work of kernels needs, if this thread has it.
struct Unlocked {
    void* state = nullptr;
    Unlocked() {
        auto has = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Check");
        auto save = (void* (*)())dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
        auto begun = (int (*)())dlsym(RTLD_DEFAULT, "Py_IsInitialized");
        if (begun && begun() && has && has()) state = save();
    }
    ~Unlocked() {
        if (state) ((void (*)(void*))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"))(state);
    }
};

class Device {
   public:
    static Device& own() {
        static auto* device = new Device;  // never destroyed: threads outlive main
        return *device;
    }
    void put(void* stream, Work work) {
        std::lock_guard<std::mutex> held(lock_);
        if (!worker_.joinable()) worker_ = std::thread([this] { run(); });
        queues_[stream].push_back(std::move(work));
        put_++;
        changed_.notify_all();
    }
    Done mark(void* stream) {
        auto ticket = std::make_shared<Ticket>();
        put(stream, [ticket] {
            timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            ticket->at = t.tv_sec + t.tv_nsec * 1e-9;
            ticket->done = true;
            return true;
        });
        return ticket;
    }
    void wait(const Done& ticket) {
        Unlocked unlocked;
        std::unique_lock<std::mutex> held(lock_);
        waiting_++;
        changed_.notify_all();
        while (!ticket->done) changed_.wait_for(held, std::chrono::milliseconds(50));
        waiting_--;
    }
    void wait_for_all() {
        std::vector<void*> streams;
        {
            std::lock_guard<std::mutex> held(lock_);
            for (auto& one : queues_)
                if (!one.second.empty()) streams.push_back(one.first);
        }
        for (void* stream : streams) wait(mark(stream));
    }

   private:
    // As late as can be: until the host waits, or has handed in nothing for a while. Which stream goes first changes at
    // random; the others get a turn where it is empty or waits for them.
    void run() {
        const char* seed = getenv("STAND_IN_SEED");
        std::mt19937 random((seed ? atoi(seed) : 0) * 1000 + getpid() % 997);
        std::vector<void*> order;
        for (int turn = 0;; turn++) {
            Work work;
            bool done = false;
            {
                std::unique_lock<std::mutex> held(lock_);
                while (true) {
                    long before = put_;
                    if (waiting_) break;
                    changed_.wait_for(held, std::chrono::milliseconds(5));
                    if (waiting_ || before == put_) break;
                }
                if (turn % 64 == 0 || order.size() != queues_.size()) {
                    order.clear();
                    for (auto& one : queues_) order.push_back(one.first);
                    std::shuffle(order.begin(), order.end(), random);
                }
            }
            for (void* stream : order) {
                {
                    std::lock_guard<std::mutex> held(lock_);
                    if (queues_[stream].empty()) continue;
                    work = queues_[stream].front();
                }
                if (!work()) continue;
                std::lock_guard<std::mutex> held(lock_);
                queues_[stream].pop_front();
                changed_.notify_all();
                done = true;
                break;
            }
            if (!done) usleep(200);
        }
    }
    std::mutex lock_;
    std::condition_variable changed_;
    std::map<void*, std::deque<Work>> queues_;
    std::thread worker_;
    long put_ = 0;
    int waiting_ = 0;
};

inline void put(void* stream, Work work) { Device::own().put(stream, std::move(work)); }
inline Done mark(void* stream) { return Device::own().mark(stream); }
inline void wait(const Done& ticket) { Device::own().wait(ticket); }
}  // namespace queues
