/* Preloaded into the processes of a job: for a while, calls on files below one folder fail or wait, and a process is killed
   or stopped in the midst of one of them.

   The processes of a job share a file of memory, which FUZZ_CONTROL names: disk_faults.py has its layout and fills it. */

#include "../../fuzz/interposed_calls.h"

#include <stdint.h>
#include <stdlib.h>

enum { ROLES = 8, FAULTS = 4, ANY_ROLE = 8 };
enum { SCRIPT, LAUNCHER, RANK_0, RANK_1, WATCHDOG_0, WATCHDOG_1, SENTINEL, COMMAND };
enum { READS = 1, WRITES = 2 };

struct fault {
  int64_t roles;                /* a bit for each role whose calls are struck */
  int64_t calls;                /* READS, WRITES or both */
  int64_t error;                /* errno; 0: the call waits for the end of the window */
  int64_t signal;               /* for the process that makes the call of the moment; 0: the calls are struck */
  int64_t window_ns;
  int64_t role, number;         /* the moment: a role's call of this number; a number of 0 never comes */
  int64_t began_ns;             /* of the window, CLOCK_MONOTONIC; 0 before it */
};
struct control {
  char below[4096];
  int64_t calls[ROLES + 1];     /* calls by path so far, of each role and of all */
  struct fault faults[FAULTS];
};

static struct control *control;
static int own_role = SCRIPT;

static int64_t now_ns(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Attach this process; a rank calls it after it was forked. */
int attach(const char *path, int role) {
  int handle = syscall(SYS_open, path, O_RDWR | O_CLOEXEC, 0);
  if (handle < 0) return -1;
  void *memory = (void *)syscall(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0L);
  syscall(SYS_close, handle);
  own_role = role;
  control = memory;
  return 0;
}

__attribute__((constructor)) static void attach_by_environment(void) {
  const char *path = getenv("FUZZ_CONTROL");
  char line[16384];
  int handle = syscall(SYS_open, "/proc/self/cmdline", O_RDONLY, 0);
  long length = handle < 0 ? 0 : syscall(SYS_read, handle, line, sizeof line - 1), role = SCRIPT;
  if (handle >= 0) syscall(SYS_close, handle);
  if (path == NULL || length <= 0) return;
  for (long place = 0; place < length - 1; place++)
    if (!line[place]) line[place] = ' ';
  line[length] = 0;
  if (strstr(line, "liveness.watchdog ")) {
    const char *host = strrchr(line, ' '); /* the last words are rank and host */
    role = host != NULL && host[-1] == '1' ? WATCHDOG_1 : WATCHDOG_0;
  } else if (strstr(line, "slurm.sentinel "))
    role = SENTINEL;
  else if (strstr(line, "slurm_command.py "))
    role = COMMAND;
  else if (strstr(line, "benchmark.launch job "))
    role = LAUNCHER;
  attach(path, role);
}

static int writes(int kind, int flags) {
  if (kind == OPEN) return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  return !(kind == READ || kind == STAT || kind == LIST);
}

static void come(struct fault *fault) {
  int64_t unset = 0;
  if (!__atomic_compare_exchange_n(&fault->began_ns, &unset, now_ns(), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
  if (fault->signal) syscall(SYS_kill, getpid(), (int)fault->signal);
}

static struct fault *window_for(int kind, int flags) {
  int64_t now = now_ns();
  for (int number = 0; number < FAULTS; number++) {
    struct fault *fault = &control->faults[number];
    int64_t began = fault->began_ns;
    if (!began || fault->signal || now < began || now >= began + fault->window_ns) continue;
    if (fault->roles >> own_role & 1 && fault->calls & (writes(kind, flags) ? WRITES : READS)) return fault;
  }
  return NULL;
}

static int strikes(int kind, const char *path, int handle, int flags) {
  char place[8192], link[64];
  int error = errno, by_path = path != NULL;
  struct fault *fault = NULL;
  if (control == NULL || kind == CLOSE || kind == MAP) return 0;
  if (!by_path && window_for(kind, flags) == NULL) return 0;
  if (!by_path || path[0] != '/') {
    snprintf(link, sizeof link, handle >= 0 ? "/proc/self/fd/%d" : "/proc/self/cwd", handle);
    long length = syscall(SYS_readlink, link, place, sizeof place - 1);
    length = length < 0 ? 0 : length;
    snprintf(place + length, sizeof place - length, "/%s", by_path ? path : "");
    path = place;
  }
  errno = error;
  if (strncmp(path, control->below, strlen(control->below))) return 0;
  if (by_path) {
    int64_t own = __atomic_add_fetch(&control->calls[own_role], 1, __ATOMIC_SEQ_CST);
    int64_t all = __atomic_add_fetch(&control->calls[ANY_ROLE], 1, __ATOMIC_SEQ_CST);
    for (int number = 0; number < FAULTS; number++) {
      struct fault *next = &control->faults[number];
      int64_t count = next->role == own_role ? own : next->role == ANY_ROLE ? all : -1;
      if (next->number && next->number == count) come(next);
    }
  }
  fault = window_for(kind, flags);
  errno = error;
  if (fault == NULL) return 0;
  if (fault->error) return errno = fault->error, 1;
  while (now_ns() < fault->began_ns + fault->window_ns) {
    struct timespec pause = {0, 20000000};
    syscall(SYS_nanosleep, &pause, NULL);
  }
  errno = error;
  return 0;
}
