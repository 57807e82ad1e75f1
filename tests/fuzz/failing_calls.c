/* Preloaded into a process: makes one of its system calls on files below one folder fail, or changes a file meanwhile.

   arm_calls(below, call, number, what, victim): at the call number NUMBER of the kind CALL on a path below BELOW
     what > 0   the call fails with this errno
     KILL       the process is killed
     VANISH, EMPTY, HALVE, SPOIL, GROW   VICTIM is removed, emptied, halved, its first bytes overwritten, made longer;
                the call goes on
     SHORT      a read or write does half of what it was asked for
     AHEAD, BACK   the clock jumps by years (the kind is "clock", of which all calls count)
   calls_seen(call): how many there were since. */

#include "interposed_calls.h"

enum { KILL = -1, VANISH = -2, EMPTY = -3, HALVE = -4, SPOIL = -5, GROW = -6, SHORT = -7, AHEAD = -8, BACK = -9 };
static const char *kinds[] = {"open", "read", "write", "sync", "rename", "mkdir", "remove", "stat", "list",
                              "lock", "close", "truncate", "map", "link", "clock"};

static char below[4096], victim[4096];
static long seen[KINDS], wanted_number;
static long ahead_s;
static int wanted_kind = -1, what, armed;

static int kind_of(const char *call) {
  for (int kind = 0; kind < KINDS; kind++)
    if (!strcmp(kinds[kind], call)) return kind;
  return -1;
}

int arm_calls(const char *folder, const char *call, long number, int action, const char *changed) {
  snprintf(below, sizeof below, "%s", folder);
  snprintf(victim, sizeof victim, "%s", changed);
  memset(seen, 0, sizeof seen);
  wanted_kind = kind_of(call), wanted_number = number, what = action, ahead_s = 0, armed = 1;
  return wanted_kind;
}

long calls_seen(const char *call) { return seen[kind_of(call)]; }

static void change_victim(void) {
  struct stat state;
  int handle;
  if (what == VANISH) syscall(SYS_unlink, victim);
  if (what == EMPTY) syscall(SYS_truncate, victim, 0L);
  if (what == HALVE && !syscall(SYS_stat, victim, &state)) syscall(SYS_truncate, victim, (long)state.st_size / 2);
  int flags = O_WRONLY | (what == GROW ? O_APPEND : 0);
  if ((what == SPOIL || what == GROW) && (handle = syscall(SYS_open, victim, flags, 0)) >= 0) {
    syscall(SYS_write, handle, "spoilt", 6L);
    syscall(SYS_close, handle);
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int answer = ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
  if (clock != CLOCK_REALTIME || !armed) return answer;
  if (__atomic_add_fetch(&seen[CLOCK], 1, __ATOMIC_SEQ_CST) == wanted_number && wanted_kind == CLOCK)
    ahead_s = what == AHEAD ? 300000000L : what == BACK ? -300000000L : 0;
  now->tv_sec += ahead_s;
  return answer;
}

static int strikes(int kind, const char *path, int handle, int flags) {
  (void)flags;
  char place[4096], link[64];
  int error = errno, answer = 0;
  if (!armed) return 0;
  if (path == NULL || (path[0] != '/' && handle >= 0)) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    long length = syscall(SYS_readlink, link, place, sizeof place - 1);
    place[length < 0 ? 0 : length] = 0;
    path = place;
  }
  errno = error;
  if (strncmp(path, below, strlen(below))) return 0;
  if (__atomic_add_fetch(&seen[kind], 1, __ATOMIC_SEQ_CST) != wanted_number || kind != wanted_kind) return 0;
  if (what == KILL) syscall(SYS_kill, getpid(), SIGKILL);
  if (what == SHORT) answer = 2;
  if (what <= VANISH && what >= GROW) change_victim();
  errno = error;
  if (what > 0) errno = what, answer = 1;
  return answer;
}
