// What NCCL does between processes, by files in STAND_IN_DIR: each process writes its part when its stream comes to it,
// and goes on when those of all others are there. Sums are in the order of ranks, rounded once.
#pragma once
#include <nccl.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "queues.h"

namespace messages {
typedef std::vector<char> Bytes;

inline std::string path(const std::string& name) { return std::string(getenv("STAND_IN_DIR")) + "/" + name; }
inline void publish(const std::string& name, const void* data, size_t size) {
    std::string final = path(name), partial = final + ".partial";
    FILE* file = fopen(partial.c_str(), "wb");
    fwrite(data, 1, size, file);
    fclose(file);
    rename(partial.c_str(), final.c_str());
}
inline bool there(const std::string& name) {
    struct stat s;
    return stat(path(name).c_str(), &s) == 0;
}
inline Bytes take(const std::string& name, size_t size) {
    Bytes data(size);
    FILE* file = fopen(path(name).c_str(), "rb");
    size_t got = fread(data.data(), 1, size, file);
    bool more = fgetc(file) != EOF;
    fclose(file);
    if (got != size || more) {
        fprintf(stderr, "stand-in: message %s has not the %zu bytes expected\n", name.c_str(), size);
        _exit(71);
    }
    return data;
}

inline float widened(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
inline uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (std::isnan(value)) return 0x7fc0;
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
template <typename T>
T joined(T a, T b, ncclRedOp_t op) {
    return op == ncclMax ? std::max(a, b) : op == ncclMin ? std::min(a, b) : op == ncclProd ? a * b : a + b;
}
template <typename T>
void reduce(T* out, const std::vector<Bytes>& parts, size_t from, size_t count, ncclRedOp_t op) {
    for (size_t i = 0; i < count; i++) {
        T value = ((const T*)parts[0].data())[from + i];
        for (size_t r = 1; r < parts.size(); r++) value = joined(value, ((const T*)parts[r].data())[from + i], op);
        out[i] = op == ncclAvg ? value / (T)parts.size() : value;
    }
}
inline void reduce_bf16(uint16_t* out, const std::vector<Bytes>& parts, size_t from, size_t count, ncclRedOp_t op) {
    for (size_t i = 0; i < count; i++) {
        float value = widened(((const uint16_t*)parts[0].data())[from + i]);
        for (size_t r = 1; r < parts.size(); r++)
            value = joined(value, widened(((const uint16_t*)parts[r].data())[from + i]), op);
        out[i] = rounded(op == ncclAvg ? value / parts.size() : value);
    }
}
inline void reduce(void* out, const std::vector<Bytes>& parts, size_t from, size_t count, ncclDataType_t type,
                   ncclRedOp_t op) {
    if (type == ncclFloat32) return reduce((float*)out, parts, from, count, op);
    if (type == ncclFloat64) return reduce((double*)out, parts, from, count, op);
    if (type == ncclInt64) return reduce((int64_t*)out, parts, from, count, op);
    if (type == ncclInt32) return reduce((int32_t*)out, parts, from, count, op);
    if (type == ncclUint8) return reduce((uint8_t*)out, parts, from, count, op);
    if (type == ncclBfloat16) return reduce_bf16((uint16_t*)out, parts, from, count, op);
    fprintf(stderr, "stand-in: no sum of NCCL's type %d\n", (int)type);
    _exit(71);
}

// Calls of one communicator are done in the order in which they were made, also on several streams, as NCCL does.
struct Turns {
    long made = 0;
    std::atomic<long> done{0};
    std::vector<std::string> sent, sent_before;  // files of this turn and of the last one
    void end() {
        for (auto& name : sent_before) unlink(path(name).c_str());  // all came to this turn, so they have done that one
        sent_before.swap(sent);
        sent.clear();
        done++;
    }
};
// One call of NCCL: what it publishes when the stream comes to it, and what it asks again until it is done.
struct Call {
    void* stream;
    std::function<void()> begin;
    std::function<bool()> end;
    std::shared_ptr<Turns> turns = nullptr;
};
inline void queue(std::vector<Call> calls) {
    std::map<void*, std::vector<Call>> by_stream;
    for (auto& call : calls) by_stream[call.stream].push_back(call);
    for (auto& [stream, own] : by_stream) {
        auto begun = std::make_shared<bool>(false);
        auto rest = std::make_shared<std::vector<Call>>(own);
        std::map<std::shared_ptr<Turns>, long> turns;
        for (auto& call : own)
            if (!turns.count(call.turns)) turns[call.turns] = call.turns->made++;
        queues::put(stream, [begun, rest, turns] {
            if (!*begun) {
                for (auto& [each, own] : turns)
                    if (each->done != own) return false;
                for (auto& call : *rest) call.begin();
            }
            *begun = true;
            rest->erase(std::remove_if(rest->begin(), rest->end(), [](Call& call) { return call.end(); }), rest->end());
            if (!rest->empty()) return false;
            for (auto& one : turns) one.first->end();
            return true;
        });
    }
}

// ``combine`` gets the parts of all ranks, of ``size`` bytes each.
inline Call collective(std::shared_ptr<Turns> turns, const std::string& group, long number, int rank, int ranks, const void* own, size_t size,
                       void* stream, std::function<void(const std::vector<Bytes>&)> combine) {
    std::string base = group + "." + std::to_string(number) + ".";
    return {stream,
            [=] {
                publish(base + std::to_string(rank), own, size);
                turns->sent.push_back(base + std::to_string(rank));
            },
            [=] {
                for (int r = 0; r < ranks; r++)
                    if (!there(base + std::to_string(r))) return false;
                std::vector<Bytes> parts;
                for (int r = 0; r < ranks; r++) parts.push_back(take(base + std::to_string(r), size));
                combine(parts);
                return true;
            }};
}
inline Call send(const std::string& name, const void* from, size_t size, void* stream) {
    return {stream, [=] { publish(name, from, size); }, [] { return true; }};
}
inline Call receive(const std::string& name, void* to, size_t size, void* stream) {
    return {stream, [] {}, [=] {
                if (!there(name)) return false;
                Bytes data = take(name, size);
                memcpy(to, data.data(), size);
                unlink(path(name).c_str());
                return true;
            }};
}
}  // namespace messages
