// A stand-in for a GPU: the functions of the CUDA runtime, cuBLAS, the driver and NCCL that PyTorch calls. Calls are
// logged, memory is counted, nothing is computed without STAND_IN_COMPUTE=1 (queues.h). Variables STAND_IN_...: see run.py.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "messages.h"
#include "queues.h"

using queues::computing;

namespace {
std::recursive_mutex lock;
typedef std::lock_guard<std::recursive_mutex> Held;

FILE* log_file() {
    static FILE* file = nullptr;
    static pid_t of = 0;
    const char* name = getenv("STAND_IN_LOG");
    if (!name) return nullptr;
    if (!file || of != getpid()) {
        of = getpid();
        file = fopen((std::string(name) + "." + std::to_string(of)).c_str(), "a");
    }
    return file;
}
__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
    Held held(lock);
    FILE* file = log_file();
    if (!file) return;
    va_list args;
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    fputc('\n', file);
    fflush(file);
}
long number(const char* name, long otherwise) {
    const char* given = getenv(name);
    return given ? atol(given) : otherwise;
}
double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
struct Range {
    size_t size;
    int kind;
    int device;
};  // kind 1 host, 2 device
std::map<const char*, Range>& ranges() {
    static auto* r = new std::map<const char*, Range>;
    return *r;
}
size_t& used() {
    static size_t u = 0;
    return u;
}
size_t total() { return (size_t)number("STAND_IN_MIB", 143771) << 20; }
const Range* range_of(const void* pointer) {
    Held held(lock);
    auto after = ranges().upper_bound((const char*)pointer);
    if (after == ranges().begin()) return nullptr;
    --after;
    return (const char*)pointer < after->first + after->second.size ? &after->second : nullptr;
}
thread_local int device_now = 0;
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t fail(cudaError_t error) {
    last_error = error;
    return error;
}
struct Event {
    double at;
    bool timing;
    bool recorded;
    queues::Done done;
};
std::unordered_map<const void*, std::string>& kernels() {
    static auto* k = new std::unordered_map<const void*, std::string>;
    return *k;
}
bool contexts[64];
void touch(const char* what) {
    if (!contexts[device_now]) {
        contexts[device_now] = true;
        say("CONTEXT device %d by %s", device_now, what);
    }
}
size_t host_alloc(void** pointer, size_t size) {
    size_t rounded = (size + 4095) & ~(size_t)4095;
    *pointer = mmap(nullptr, rounded ? rounded : 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return rounded ? rounded : 4096;
}
}  // namespace

// Functions that do nothing: they succeed, refuse, or answer one value.
#define SUCCEEDS(name, ...) \
    cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#define REFUSES(name, ...) \
    cudaError_t name(__VA_ARGS__) { return fail(cudaErrorNotSupported); }
#define ANSWERS(name, value, ...)    \
    cudaError_t name(__VA_ARGS__) { \
        *answer = value;            \
        return cudaSuccess;         \
    }

extern "C" {
// registration
void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
    Held held(lock);
    kernels()[host] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
thread_local struct {
    dim3 grid, block;
    size_t shared;
    void* stream;
} call;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
    call = {grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = call.grid;
    *block = call.block;
    *shared = call.shared;
    *(void**)stream = call.stream;
    return cudaSuccess;
}
ANSWERS(__cudaGetKernel, (void*)host, void** answer, const void* host)
static cudaError_t launched(const void* function, dim3 grid, dim3 block, size_t shared, void* stream) {
    touch("launch");
    if (!grid.x || !grid.y || !grid.z || block.x * block.y * block.z > 1024 || !block.x || grid.y > 65535 ||
        grid.z > 65535 || shared > 232448) {
        say("BAD LAUNCH %s grid %u %u %u block %u %u %u shared %zu", kernels()[function].c_str(), grid.x, grid.y,
            grid.z, block.x, block.y, block.z, shared);
        return fail(cudaErrorInvalidConfiguration);
    }
    if (log_file()) {
        Held held(lock);
        say("kernel stream %p grid %u,%u,%u block %u,%u,%u %s", stream, grid.x, grid.y, grid.z, block.x, block.y,
            block.z, kernels()[function].c_str());
    }
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t stream) {
    return launched(kernel, grid, block, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void**) {
    return launched(f, c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->ptxVersion = a->binaryVersion = 90;
    a->maxDynamicSharedSizeBytes = 232448;
    return cudaSuccess;
}
SUCCEEDS(cudaFuncSetAttribute, const void*, cudaFuncAttribute, int)
ANSWERS(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 2, int* answer, const void*, int, size_t, unsigned)
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
    if (computing())
        queues::put(s, [f, data] { return f(data), true; });
    else
        f(data);
    return cudaSuccess;
}

// devices
cudaError_t cudaGetDeviceCount(int* n) {
    *n = (int)number("STAND_IN_DEVICES", 1);
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
ANSWERS(cudaGetDevice, device_now, int* answer)
cudaError_t cudaSetDevice(int d) {
    if (d >= number("STAND_IN_DEVICES", 1)) return fail(cudaErrorInvalidDevice);
    if (d != device_now) {
        device_now = d;
    }
    touch("cudaSetDevice");
    return cudaSuccess;
}
const int MULTIPROCESSORS = 132, SHARED_OPT_IN = 232448, SHARED_PER_MULTIPROCESSOR = 233472, SHARED_PER_BLOCK = 49152;
const int L2_BYTES = 60 << 20, MOST_X = 0x7fffffff, MOST_YZ = 65535;
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
    memset(p, 0, sizeof *p);
    const char* name = getenv("STAND_IN_NAME");
    strncpy(p->name, name ? name : "NVIDIA H200", 255);
    memset(&p->uuid, 0x11 + d, 16);
    p->totalGlobalMem = total();
    p->sharedMemPerBlock = SHARED_PER_BLOCK, p->sharedMemPerBlockOptin = SHARED_OPT_IN;
    p->sharedMemPerMultiprocessor = SHARED_PER_MULTIPROCESSOR;
    p->regsPerBlock = p->regsPerMultiprocessor = p->totalConstMem = 65536;
    p->warpSize = p->maxBlocksPerMultiProcessor = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxGridSize[0] = MOST_X, p->maxGridSize[1] = p->maxGridSize[2] = MOST_YZ;
    p->major = (int)number("STAND_IN_MAJOR", 9), p->minor = (int)number("STAND_IN_MINOR", 0);
    p->multiProcessorCount = MULTIPROCESSORS;
    p->pciBusID = 0x1b + d;
    p->l2CacheSize = L2_BYTES;
    p->textureAlignment = 512;
    p->memPitch = 0x7fffffff;
    p->concurrentKernels = p->unifiedAddressing = p->cooperativeLaunch = 1;
    p->memoryPoolsSupported = p->canMapHostMemory = 1;
    return cudaSuccess;
}
const struct {
    cudaDeviceAttr name;
    int value;
} ATTRIBUTES[] = {
    {cudaDevAttrMultiProcessorCount, MULTIPROCESSORS},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, SHARED_OPT_IN},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, SHARED_PER_MULTIPROCESSOR},
    {cudaDevAttrMaxSharedMemoryPerBlock, SHARED_PER_BLOCK},
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxGridDimX, MOST_X},
    {cudaDevAttrMaxGridDimY, MOST_YZ},
    {cudaDevAttrMaxGridDimZ, MOST_YZ},
    {cudaDevAttrL2CacheSize, L2_BYTES},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrConcurrentKernels, 1},
};
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
    *v = a == cudaDevAttrComputeCapabilityMajor   ? (int)number("STAND_IN_MAJOR", 9)
         : a == cudaDevAttrComputeCapabilityMinor ? (int)number("STAND_IN_MINOR", 0)
                                                  : 0;
    for (const auto& attribute : ATTRIBUTES)
        if (attribute.name == a) *v = attribute.value;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int n, int d) {
    snprintf(text, n, "0000:%02X:00.0", 0x1b + d);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
ANSWERS(cudaDeviceCanAccessPeer, 1, int* answer, int, int)
SUCCEEDS(cudaDeviceEnablePeerAccess, int, unsigned)
cudaError_t cudaDeviceSynchronize() {
    say("SYNC cudaDeviceSynchronize");
    if (computing()) queues::Device::own().wait_for_all();
    return cudaSuccess;
}
ANSWERS(cudaDriverGetVersion, 13000, int* answer)
ANSWERS(cudaRuntimeGetVersion, 13000, int* answer)
ANSWERS(cudaDeviceGetDefaultMemPool, nullptr, cudaMemPool_t* answer, int)
SUCCEEDS(cudaMemPoolGetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
SUCCEEDS(cudaMemPoolSetAttribute, cudaMemPool_t, cudaMemPoolAttr, void*)
SUCCEEDS(cudaMemPoolSetAccess, cudaMemPool_t, const cudaMemAccessDesc*, size_t)
SUCCEEDS(cudaMemPoolTrimTo, cudaMemPool_t, size_t)
const char* cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory"
           : e == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
                                          : "stand-in error";
}
const char* cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorStandIn";
}
cudaError_t cudaGetLastError() {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
SUCCEEDS(cudaProfilerStart)
SUCCEEDS(cudaProfilerStop)

// memory
cudaError_t cudaMalloc(void** pointer, size_t size) {
    Held held(lock);
    touch("cudaMalloc");
    size_t rounded = (size + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    if (used() + rounded > total() - ((size_t)600 << 20)) {
        say("OUT OF MEMORY %zu, %zu used", size, used());
        return fail(cudaErrorMemoryAllocation);
    }
    *pointer = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ranges()[(char*)*pointer] = {rounded, 2, device_now};
    used() += rounded;
    say("cudaMalloc %zu, %zu used", rounded, used());
    return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    if (computing()) queues::Device::own().wait_for_all();
    Held held(lock);
    auto found = ranges().find((char*)pointer);
    if (found == ranges().end()) return fail(cudaErrorInvalidValue);
    munmap(pointer, found->second.size);
    used() -= found->second.size;
    say("SYNC cudaFree %zu", found->second.size);
    ranges().erase(found);
    return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
    Held held(lock);
    touch("cudaHostAlloc");
    size_t rounded = host_alloc(pointer, size);
    ranges()[(char*)*pointer] = {rounded, 1, device_now};
    say("cudaHostAlloc %zu", size);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
    if (computing()) queues::Device::own().wait_for_all();
    Held held(lock);
    auto found = ranges().find((char*)pointer);
    if (found == ranges().end()) return fail(cudaErrorInvalidValue);
    munmap(pointer, found->second.size);
    ranges().erase(found);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned) {
    Held held(lock);
    if (range_of(pointer) || range_of((char*)pointer + size - 1)) return fail(cudaErrorHostMemoryAlreadyRegistered);
    ranges()[(char*)pointer] = {size, 1, device_now};
    say("cudaHostRegister %zu", size);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
    Held held(lock);
    ranges().erase((char*)pointer);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* pointer) {
    memset(a, 0, sizeof *a);
    const Range* range = range_of(pointer);
    a->type = !range ? cudaMemoryTypeUnregistered : range->kind == 1 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    a->device = range ? range->device : -1;
    a->devicePointer = a->hostPointer = (void*)pointer;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_, size_t* total_) {
    Held held(lock);
    touch("cudaMemGetInfo");
    *total_ = total();
    *free_ = total() - used() - ((size_t)600 << 20);
    return cudaSuccess;
}
static const char* copied(void* to, const void* from, size_t size) {
    const Range *a = range_of(to), *b = range_of(from);
    bool to_device = a && a->kind == 2, from_device = b && b->kind == 2;
    if (size <= (size_t)number("STAND_IN_COPY", 64 << 20) && !(to_device && from_device && size > 65536))
        memcpy(to, from, size);
    if (to_device && from_device) return "D2D";
    if (to_device) return b ? "H2D pinned" : "H2D pageable";
    return a ? "D2H pinned" : "D2H pageable";
}
// In the order of the stream. Memory that is not pinned is read at once, or waited for.
static void queue_copy(void* to, const void* from, size_t size, void* stream, bool wait) {
    const Range *a = range_of(to), *b = range_of(from);
    if (b)
        queues::put(stream, [=] { return memcpy(to, from, size), true; });
    else {
        auto staged = std::make_shared<messages::Bytes>((const char*)from, (const char*)from + size);
        queues::put(stream, [=] { return memcpy(to, staged->data(), size), true; });
    }
    if (wait || !a) queues::wait(queues::mark(stream));
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
    const char* k = copied(to, from, computing() ? 0 : size);
    if (computing()) queue_copy(to, from, size, nullptr, true);
    say("SYNC cudaMemcpy %s %zu", k, size);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t s) {
    const char* k = copied(to, from, computing() ? 0 : size);
    if (computing()) queue_copy(to, from, size, s, false);
    say("%scopy %s %zu stream %p", strstr(k, "pageable") ? "SYNC " : "", k, size, (void*)s);
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, cudaStream_t s) {
    if (computing())
        queue_copy(to, from, size, s, false);
    else
        copied(to, from, size);
    return cudaSuccess;
}
SUCCEEDS(cudaMemcpyToSymbol, const void*, const void*, size_t, size_t, cudaMemcpyKind)
cudaError_t cudaGetSymbolAddress(void** p, const void*) {
    static char symbol[65536];
    *p = symbol;
    return cudaSuccess;
}
static void filled(void* to, int value, size_t size) {
    if (value == 0 && size > (1 << 20)) {  // give the pages back, they read as zeros then
        char *begin = (char*)(((size_t)to + 4095) & ~(size_t)4095),
             *end = (char*)((size_t)((char*)to + size) & ~(size_t)4095);
        memset(to, 0, begin - (char*)to);
        madvise(begin, end - begin, MADV_DONTNEED);
        memset(end, 0, (char*)to + size - end);
    } else
        memset(to, value, size);
}
cudaError_t cudaMemset(void* to, int value, size_t size) {
    if (computing()) {
        queues::put(nullptr, [=] { return memset(to, value, size), true; });
        queues::wait(queues::mark(nullptr));
    } else
        filled(to, value, size);
    say("memset %zu", size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t s) {
    if (computing())
        queues::put(s, [=] { return memset(to, value, size), true; });
    else
        filled(to, value, size);
    say("memset %zu stream %p", size, (void*)s);
    return cudaSuccess;
}
SUCCEEDS(cudaIpcCloseMemHandle, void*)
REFUSES(cudaIpcGetEventHandle, cudaIpcEventHandle_t*, cudaEvent_t)
REFUSES(cudaIpcGetMemHandle, cudaIpcMemHandle_t*, void*)
REFUSES(cudaIpcOpenEventHandle, cudaEvent_t*, cudaIpcEventHandle_t)
REFUSES(cudaIpcOpenMemHandle, void**, cudaIpcMemHandle_t, unsigned)

// streams and events
static char* next_stream() {
    static char* n = (char*)0x1000;
    Held held(lock);
    return n += 0x10;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
    *s = (cudaStream_t)next_stream();
    say("stream %p created", (void*)*s);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int p) {
    *s = (cudaStream_t)next_stream();
    say("stream %p created, priority %d", (void*)*s, p);
    return cudaSuccess;
}
SUCCEEDS(cudaStreamDestroy, cudaStream_t)
ANSWERS(cudaStreamGetPriority, 0, cudaStream_t, int* answer)
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (computing()) queues::wait(queues::mark(s));
    say("SYNC cudaStreamSynchronize %p", (void*)s);
    return cudaSuccess;
}
SUCCEEDS(cudaStreamQuery, cudaStream_t)
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    say("wait stream %p event %p", (void*)s, (void*)e);
    if (auto done = ((Event*)e)->done) queues::put(s, [done] { return done->done.load(); });
    return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* d, unsigned) {
    f(s, cudaSuccess, d);
    return cudaSuccess;
}
ANSWERS(cudaStreamIsCapturing, cudaStreamCaptureStatusNone, cudaStream_t, cudaStreamCaptureStatus* answer)
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* s, unsigned long long* id, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
    *s = cudaStreamCaptureStatusNone;
    if (id) *id = 0;
    return cudaSuccess;
}
ANSWERS(cudaThreadExchangeStreamCaptureMode, cudaStreamCaptureModeRelaxed, cudaStreamCaptureMode* answer)
REFUSES(cudaStreamBeginCapture, cudaStream_t, cudaStreamCaptureMode)
REFUSES(cudaStreamEndCapture, cudaStream_t, cudaGraph_t*)
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
    *e = (cudaEvent_t) new Event{0, !(flags & cudaEventDisableTiming), false, nullptr};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete (Event*)e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ((Event*)e)->at = now();
    ((Event*)e)->recorded = true;
    if (computing()) ((Event*)e)->done = queues::mark(s);
    say("record event %p stream %p", (void*)e, (void*)s);
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) { return cudaEventRecord(e, s); }
cudaError_t cudaEventQuery(cudaEvent_t e) {
    auto done = ((Event*)e)->done;
    return done && !done->done ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (auto done = ((Event*)e)->done) queues::wait(done);
    say("SYNC cudaEventSynchronize %p", (void*)e);
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
    Event *x = (Event*)a, *y = (Event*)b;
    if (!x->timing || !y->timing || !x->recorded || !y->recorded) return fail(cudaErrorInvalidResourceHandle);
    if (x->done && y->done) {
        if (!x->done->done || !y->done->done) return cudaErrorNotReady;
        x->at = x->done->at, y->at = y->done->at;
    }
    *ms = (float)((y->at - x->at) * 1e3);
    return cudaSuccess;
}
REFUSES(cudaGraphDebugDotPrint, cudaGraph_t, const char*, unsigned)
SUCCEEDS(cudaGraphDestroy, cudaGraph_t)
SUCCEEDS(cudaGraphExecDestroy, cudaGraphExec_t)
ANSWERS(cudaGraphGetNodes, 0, cudaGraph_t, cudaGraphNode_t*, size_t* answer)
REFUSES(cudaGraphInstantiateWithFlags, cudaGraphExec_t*, cudaGraph_t, unsigned long long)
REFUSES(cudaGraphLaunch, cudaGraphExec_t, cudaStream_t)
REFUSES(cudaGraphNodeGetDependencies, cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*)

// the driver, as far as PyTorch asks for it
static int not_supported() { return 801; }
static int fine() { return 0; }
static int address_range(char** base, size_t* size, char* pointer) {
    Held held(lock);
    auto after = ranges().upper_bound(pointer);
    if (after == ranges().begin()) return 1;
    --after;
    if (base) *base = (char*)after->first;
    if (size) *size = after->second.size;
    return 0;
}
static int error_string(int, const char** text) {
    *text = "stand-in";
    return 0;
}
static int primary_state(int d, unsigned* flags, int* active) {
    *flags = 0;
    *active = contexts[d];
    return 0;
}
static void* entry(const char* name) {
    if (!strncmp(name, "cuMemGetAddressRange", 20)) return (void*)address_range;
    if (!strcmp(name, "cuGetErrorString")) return (void*)error_string;
    if (!strcmp(name, "cuDevicePrimaryCtxGetState")) return (void*)primary_state;
    if (!strcmp(name, "cuDeviceGet")) return (void*)fine;
    return (void*)not_supported;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** pointer, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    *pointer = entry(name);
    if (found) *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
int cuDevicePrimaryCtxGetState(int d, unsigned* flags, int* active) { return primary_state(d, flags, active); }
int cuInit(unsigned) { return 100; }
int cuCtxGetCurrent(void** c) {
    *c = (void*)0x77;
    return 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuDevicePrimaryCtxRetain(void** c, int) {
    *c = (void*)0x77;
    return 0;
}
int cuGetErrorString(int e, const char** t) { return error_string(e, t); }
int cuGetErrorName(int e, const char** t) { return error_string(e, t); }
int cuModuleLoadData(void** m, const void*) {
    say("cuModuleLoadData");
    *m = (void*)0x88;
    return 0;
}
int cuModuleGetFunction(void** f, void*, const char* n) {
    say("cuModuleGetFunction %s", n);
    *f = (void*)0x99;
    return 0;
}
int cuFuncGetAttribute(int* v, int, void*) {
    *v = 0;
    return 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned, unsigned, unsigned, unsigned, void* s) {
    say("kernel stream %p grid %u,%u,%u driver", s, x, y, z);
    return 0;
}

// cuBLAS: functions that do nothing, then the products
#define DOES_NOTHING(name) \
    int name() { return 0; }
DOES_NOTHING(cublasDestroy_v2)
DOES_NOTHING(cublasSetStream_v2)
DOES_NOTHING(cublasSetWorkspace_v2)
DOES_NOTHING(cublasSetMathMode)
DOES_NOTHING(cublasSetPointerMode_v2)
DOES_NOTHING(cublasDgemm_v2)
DOES_NOTHING(cublasSgemmEx)
DOES_NOTHING(cublasSgemmStridedBatched)
DOES_NOTHING(cublasDgemmStridedBatched)
DOES_NOTHING(cublasSgemv_v2)
DOES_NOTHING(cublasDgemv_v2)
DOES_NOTHING(cublasSdot_v2)
DOES_NOTHING(cublasDdot_v2)
DOES_NOTHING(cublasDotEx)
DOES_NOTHING(cublasLtMatmulDescDestroy)
DOES_NOTHING(cublasLtMatmulDescSetAttribute)
DOES_NOTHING(cublasLtMatmulPreferenceDestroy)
DOES_NOTHING(cublasLtMatmulPreferenceSetAttribute)
DOES_NOTHING(cublasLtMatrixLayoutDestroy)
DOES_NOTHING(cublasLtMatrixLayoutSetAttribute)
#define MAKES_HANDLE(name, ...)     \
    int name(void** h, ##__VA_ARGS__) { \
        *h = malloc(64);            \
        return 0;                   \
    }
MAKES_HANDLE(cublasLtCreate)
MAKES_HANDLE(cublasLtMatmulDescCreate, int, int)
MAKES_HANDLE(cublasLtMatmulPreferenceCreate)
#define ANSWERS_ZERO(name)     \
    int name(void*, int* m) { \
        *m = 0;               \
        return 0;             \
    }
ANSWERS_ZERO(cublasGetMathMode)
ANSWERS_ZERO(cublasGetPointerMode_v2)
typedef long long Long;
size_t cublasLtGetVersion() { return 130000; }
int cublasCreate_v2(void** h) {
    *h = malloc(64);
    say("cublasCreate device %d", device_now);
    return 0;
}
int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, const void*, const void*, int at, int, const void*, int bt,
                 int, const void*, void*, int ct, int, int compute, int) {
    say("gemm m %d n %d k %d %c%c types %d %d %d compute %d", m, n, k, "nt"[ta], "nt"[tb], at, bt, ct, compute);
    return 0;
}
int cublasGemmStridedBatchedEx(void*, int, int, int m, int n, int k, const void*, const void*, int, int, Long,
                               const void*, int, int, Long, const void*, void*, int, int, Long, int count, int, int) {
    say("batched gemm m %d n %d k %d x %d", m, n, k, count);
    return 0;
}
int cublasSgemm_v2(void*, int, int, int m, int n, int k) {
    say("sgemm m %d n %d k %d", m, n, k);
    return 0;
}
int cublasLtMatrixLayoutCreate(void** d, int type, unsigned long rows, unsigned long cols, long) {
    long* l = (long*)malloc(64);
    l[0] = type;
    l[1] = rows;
    l[2] = cols;
    *d = l;
    return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void* results, int* count) {
    memset(results, 0, 64);
    *count = 1;
    return 0;
}
int cublasLtMatmul(void*, void*, const void*, const void*, long* a, const void*, long* b, const void*, const void*,
                   void*, void*, long* d) {
    say("lt gemm a %ld x %ld (type %ld) b %ld x %ld d %ld x %ld (type %ld)", a[1], a[2], a[0], b[1], b[2], d[1], d[2],
        d[0]);
    return 0;
}

// NCCL
struct ncclComm {
    int rank, size;
    char name[64];
    std::string group;           // the same on all of its processes
    long calls = 0, splits = 0;  // so far, the same on all of them
    std::map<std::string, long> letters;
    std::shared_ptr<messages::Turns> turns = std::make_shared<messages::Turns>();
};
static thread_local int depth = 0;
static thread_local std::vector<messages::Call> grouped;
static void ask(ncclComm_t c, messages::Call call) {
    call.turns = c->turns;
    grouped.push_back(std::move(call));
    if (depth) return;
    messages::queue(grouped);
    grouped.clear();
}
static size_t width(ncclDataType_t t) {
    static const size_t w[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return w[t];
}
#define NCCL(...)                 \
    {                             \
        say("nccl " __VA_ARGS__); \
        return ncclSuccess;       \
    }
static ncclResult_t made(ncclComm_t* c, int rank, int size, const char* how, const std::string& group = "") {
    static int n = 0;
    *c = new ncclComm{rank, size, "", group};
    snprintf((*c)->name, 64, "%s%d", how, n++);
    say("nccl comm %s: rank %d of %d", (*c)->name, rank, size);
    return ncclSuccess;
}
ncclResult_t ncclGetVersion(int* v) {
    *v = 22809;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int n = 0;
    memset(id, 0, sizeof *id);
    snprintf((char*)id, sizeof *id, "%d_%d_%.9f", getpid(), n++, now());
    return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* c, int n, ncclUniqueId id, int r) {
    touch("nccl");
    return made(c, r, n, "world", (char*)&id);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int n, ncclUniqueId id, int r, ncclConfig_t*) {
    touch("nccl");
    return made(c, r, n, "config", (char*)&id);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* c, int n, int r, int, ncclUniqueId* id, ncclConfig_t*) {
    touch("nccl");
    return made(c, r, n, "scalable", (char*)id);
}
// Place and number of those who chose the same colour, by their keys; waits for all, as NCCL does.
static std::pair<int, int> split_among(ncclComm_t c, const std::string& name, int color, int key) {
    queues::Unlocked unlocked;
    int own[2] = {color, key};
    messages::publish(name + std::to_string(c->rank), own, sizeof own);
    int place = 0, size = 0;
    for (int r = 0; r < c->size; r++) {
        while (!messages::there(name + std::to_string(r))) usleep(500);
        auto data = messages::take(name + std::to_string(r), sizeof own);
        int* other = (int*)data.data();
        if (other[0] != color) continue;
        size++;
        place += other[1] < key || (other[1] == key && r < c->rank);
    }
    return {place, size};
}
ncclResult_t ncclCommInitAll(ncclComm_t*, int, const int*) { return ncclInternalError; }
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t* n, ncclConfig_t* config) {
    if (config && config->maxCTAs != NCCL_CONFIG_UNDEF_INT) say("nccl split with at most %d CTAs", config->maxCTAs);
    int size = -1;
    std::string name;
    if (computing()) {
        name = c->group + "_split" + std::to_string(c->splits++) + "_";
        std::tie(key, size) = split_among(c, name, color, key);
        name += std::to_string(color);
    }
    if (color < 0) {
        *n = nullptr;
        say("nccl split of %s: none", c->name);
        return ncclSuccess;
    }
    return made(n, key, size, "split", name);
}
ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int) { return ncclInternalError; }
ncclResult_t ncclCommCount(const ncclComm_t c, int* n) {
    *n = c->size;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* n) {
    *n = c->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) NCCL("destroy %s", c->name)
ncclResult_t ncclCommAbort(ncclComm_t c) NCCL("abort %s", c->name)
ncclResult_t ncclCommFinalize(ncclComm_t c) NCCL("finalize %s", c->name)
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* e) {
    *e = ncclSuccess;
    return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void**) { return ncclSuccess; }
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int) { return ncclSuccess; }
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }

const char* ncclGetErrorString(ncclResult_t) { return "stand-in"; }
const char* ncclGetLastError(ncclComm_t) { return "stand-in"; }
ncclResult_t ncclGroupStart() {
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (--depth) return ncclSuccess;
    say("nccl group ends");
    messages::queue(grouped);
    grouped.clear();
    return ncclSuccess;
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) { return ncclSuccess; }
ncclResult_t ncclMemAlloc(void** p, size_t n) { return cudaMalloc(p, n) ? ncclUnhandledCudaError : ncclSuccess; }
ncclResult_t ncclMemFree(void* p) {
    cudaFree(p);
    return ncclSuccess;
}
static void through(const void* a, void* b, size_t n) {
    if (a != b && n <= 65536) memmove(b, a, n);
}
typedef std::vector<messages::Bytes> Parts;
static void collective(ncclComm_t c, const void* own, size_t size, void* stream,
                       std::function<void(const Parts&)> then) {
    ask(c, messages::collective(c->turns, c->group, c->calls++, c->rank, c->size, own, size, stream, then));
}
static std::string letter(ncclComm_t c, int from, int to) {
    std::string name = c->group + ".p" + std::to_string(from) + "." + std::to_string(to) + ".";
    return name + std::to_string(c->letters[name]++);
}
ncclResult_t ncclAllReduce(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                           cudaStream_t s) {
    if (computing())
        collective(c, a, n * width(t), s, [=](const Parts& parts) { messages::reduce(b, parts, 0, n, t, op); });
    else
        through(a, b, n * width(t));
    NCCL("all-reduce %s bytes %zu stream %p depth %d", c->name, n * width(t), (void*)s, depth)
}
ncclResult_t ncclAllGather(const void* a, void* b, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
    if (computing())
        collective(c, a, n * width(t), s, [=](const Parts& parts) {
            for (size_t r = 0; r < parts.size(); r++)
                memcpy((char*)b + r * n * width(t), parts[r].data(), n * width(t));
        });
    else if (c->size == 1)
        through(a, b, n * width(t));
    NCCL("all-gather %s bytes %zu stream %p depth %d", c->name, n * width(t), (void*)s, depth)
}
ncclResult_t ncclReduceScatter(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c,
                               cudaStream_t s) {
    int rank = c->rank;
    if (computing())
        collective(c, a, n * c->size * width(t), s,
                   [=](const Parts& parts) { messages::reduce(b, parts, rank * n, n, t, op); });
    else if (c->size == 1)
        through(a, b, n * width(t));
    NCCL("reduce-scatter %s bytes %zu stream %p depth %d", c->name, n * width(t), (void*)s, depth)
}
ncclResult_t ncclBroadcast(const void* a, void* b, size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t s) {
    if (computing())
        collective(c, a, n * width(t), s, [=](const Parts& parts) { memcpy(b, parts[root].data(), n * width(t)); });
    else
        through(a, b, n * width(t));
    NCCL("broadcast %s bytes %zu stream %p", c->name, n * width(t), (void*)s)
}
ncclResult_t ncclBcast(void* b, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
    return ncclBroadcast(b, b, n, t, root, c, s);
}
ncclResult_t ncclReduce(const void* a, void* b, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c,
                        cudaStream_t s) {
    bool receives = c->rank == root;
    if (computing())
        collective(c, a, n * width(t), s, [=](const Parts& parts) {
            if (receives) messages::reduce(b, parts, 0, n, t, op);
        });
    NCCL("reduce %s bytes %zu stream %p", c->name, n * width(t), (void*)s)
}
ncclResult_t ncclSend(const void* a, size_t n, ncclDataType_t t, int to, ncclComm_t c, cudaStream_t s) {
    if (computing()) ask(c, messages::send(letter(c, c->rank, to), a, n * width(t), s));
    NCCL("send %s bytes %zu to %d stream %p depth %d", c->name, n * width(t), to, (void*)s, depth)
}
ncclResult_t ncclRecv(void* b, size_t n, ncclDataType_t t, int from, ncclComm_t c, cudaStream_t s) {
    if (computing()) ask(c, messages::receive(letter(c, from, c->rank), b, n * width(t), s));
    NCCL("recv %s bytes %zu from %d stream %p depth %d", c->name, n * width(t), from, (void*)s, depth)
}
// What kernels would compute, by computing.py.
void stand_in_compute(void* stream, void (*compute)(long), long number) {
    queues::put(stream, [=] { return compute(number), true; });
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* o, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) {
    *o = ncclSum;
    return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }
}
