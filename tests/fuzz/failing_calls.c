/* Preloaded into a process: makes one of its system calls on files below one folder fail, or changes a file meanwhile.

   arm_calls(below, call, number, what, victim): at the call number NUMBER of the kind CALL on a path below BELOW
     what > 0   the call fails with this errno
     KILL       the process is killed
     VANISH, EMPTY, HALVE, SPOIL, GROW   VICTIM is removed, emptied, halved, its first bytes overwritten, made longer;
                the call goes on
     SHORT      a read or write does half of what it was asked for
     AHEAD, BACK   the clock jumps by years (the kind is "clock", of which all calls count)
   calls_seen(call): how many there were since. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { KILL = -1, VANISH = -2, EMPTY = -3, HALVE = -4, SPOIL = -5, GROW = -6, SHORT = -7, AHEAD = -8, BACK = -9 };
static const char *kinds[] = {"open", "read", "write", "sync", "rename", "mkdir", "remove", "stat", "list",
                              "lock", "close", "truncate", "map", "link", "clock"};
enum { OPEN, READ, WRITE, SYNC, RENAME, MKDIR, REMOVE, STAT, LIST, LOCK, CLOSE, TRUNCATE, MAP, LINK, CLOCK, KINDS };

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

/* 1: the call is to fail, errno is set; 2: it is to do half. */
static int strikes(int kind, const char *path, int handle) {
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

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILING(result, name, parameters, arguments, kind, path, handle) \
  result name parameters {                                               \
    if (strikes(kind, path, handle) == 1) return (result)-1;             \
    return REAL(name) arguments;                                         \
  }
#define TRANSFERRING(name, parameters, halved, arguments, kind) \
  ssize_t name parameters {                                     \
    int strike = strikes(kind, NULL, fd);                       \
    if (strike == 1) return -1;                                 \
    if (strike == 2) halved;                                    \
    return REAL(name) arguments;                                \
  }
#define OPENING(name, first, pass_first, handle)                \
  int name(first const char *path, int flags, ...) {            \
    va_list rest;                                               \
    va_start(rest, flags);                                      \
    mode_t mode = va_arg(rest, mode_t);                         \
    va_end(rest);                                               \
    if (strikes(OPEN, path, handle) == 1) return -1;            \
    return REAL(name)(pass_first path, flags, mode);            \
  }
#define WITH_FOLDER int folder,
#define PASS_FOLDER folder,
OPENING(open, , , -1)
OPENING(open64, , , -1)
OPENING(openat, WITH_FOLDER, PASS_FOLDER, folder)
OPENING(openat64, WITH_FOLDER, PASS_FOLDER, folder)

FILE *fopen(const char *path, const char *mode) { return strikes(OPEN, path, -1) == 1 ? NULL : REAL(fopen)(path, mode); }
FILE *fopen64(const char *path, const char *mode) {
  return strikes(OPEN, path, -1) == 1 ? NULL : REAL(fopen64)(path, mode);
}
TRANSFERRING(read, (int fd, void *data, size_t count), count = (count + 1) / 2, (fd, data, count), READ)
TRANSFERRING(pread, (int fd, void *data, size_t count, off_t at), count = (count + 1) / 2, (fd, data, count, at), READ)
TRANSFERRING(pread64, (int fd, void *data, size_t count, off64_t at), count = (count + 1) / 2, (fd, data, count, at), READ)
TRANSFERRING(preadv, (int fd, const struct iovec *v, int n, off_t at), (void)0, (fd, v, n, at), READ)
TRANSFERRING(preadv64, (int fd, const struct iovec *v, int n, off64_t at), (void)0, (fd, v, n, at), READ)
TRANSFERRING(write, (int fd, const void *data, size_t count), count = (count + 1) / 2, (fd, data, count), WRITE)
TRANSFERRING(pwrite, (int fd, const void *data, size_t count, off_t at), count = (count + 1) / 2, (fd, data, count, at), WRITE)
TRANSFERRING(pwrite64, (int fd, const void *data, size_t count, off64_t at), count = (count + 1) / 2, (fd, data, count, at), WRITE)
TRANSFERRING(writev, (int fd, const struct iovec *v, int n), (void)0, (fd, v, n), WRITE)
FAILING(int, fsync, (int fd), (fd), SYNC, NULL, fd)
FAILING(int, fdatasync, (int fd), (fd), SYNC, NULL, fd)
FAILING(int, rename, (const char *from, const char *to), (from, to), RENAME, from, -1)
FAILING(int, renameat, (int folder, const char *from, int other, const char *to), (folder, from, other, to), RENAME, from, folder)
FAILING(int, mkdir, (const char *path, mode_t mode), (path, mode), MKDIR, path, -1)
FAILING(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), MKDIR, path, folder)
FAILING(int, unlink, (const char *path), (path), REMOVE, path, -1)
FAILING(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), REMOVE, path, folder)
FAILING(int, rmdir, (const char *path), (path), REMOVE, path, -1)
FAILING(int, stat, (const char *path, struct stat *state), (path, state), STAT, path, -1)
FAILING(int, lstat, (const char *path, struct stat *state), (path, state), STAT, path, -1)
FAILING(int, fstat, (int fd, struct stat *state), (fd, state), STAT, NULL, fd)
FAILING(int, fstatat, (int folder, const char *path, struct stat *state, int flags), (folder, path, state, flags), STAT, path, folder)
FAILING(int, stat64, (const char *path, struct stat64 *state), (path, state), STAT, path, -1)
FAILING(int, lstat64, (const char *path, struct stat64 *state), (path, state), STAT, path, -1)
FAILING(int, fstat64, (int fd, struct stat64 *state), (fd, state), STAT, NULL, fd)
FAILING(int, fstatat64, (int folder, const char *path, struct stat64 *state, int flags), (folder, path, state, flags), STAT, path, folder)
FAILING(int, flock, (int fd, int operation), (fd, operation), LOCK, NULL, fd)
FAILING(int, truncate, (const char *path, off_t length), (path, length), TRUNCATE, path, -1)
FAILING(int, truncate64, (const char *path, off64_t length), (path, length), TRUNCATE, path, -1)
FAILING(int, ftruncate, (int fd, off_t length), (fd, length), TRUNCATE, NULL, fd)
FAILING(int, ftruncate64, (int fd, off64_t length), (fd, length), TRUNCATE, NULL, fd)
FAILING(int, link, (const char *from, const char *to), (from, to), LINK, to, -1)
FAILING(int, linkat, (int one, const char *from, int two, const char *to, int flags), (one, from, two, to, flags), LINK, to, two)

int close(int fd) {
  int strike = strikes(CLOSE, NULL, fd), error = errno;
  int answer = REAL(close)(fd);
  if (strike != 1) return answer;
  errno = error;
  return -1;
}

DIR *opendir(const char *path) { return strikes(LIST, path, -1) == 1 ? NULL : REAL(opendir)(path); }
DIR *fdopendir(int fd) { return strikes(LIST, NULL, fd) == 1 ? NULL : REAL(fdopendir)(fd); }
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
  if (!(flags & MAP_ANONYMOUS) && strikes(MAP, NULL, fd) == 1) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
  if (!(flags & MAP_ANONYMOUS) && strikes(MAP, NULL, fd) == 1) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
