/* The system calls on files that a preloaded library stands before, by their kinds. The library that includes this file
   defines strikes(), which is asked before each of them. */

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

enum { OPEN, READ, WRITE, SYNC, RENAME, MKDIR, REMOVE, STAT, LIST, LOCK, CLOSE, TRUNCATE, MAP, LINK, CLOCK, KINDS };

/* 1: the call is to fail, errno is set; 2: it is to do half. PATH is NULL where HANDLE is an open file, and may be relative
   to the folder HANDLE. FLAGS: of an open call, else 0. */
static int strikes(int kind, const char *path, int handle, int flags);

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILING(result, name, parameters, arguments, kind, path, handle) \
  result name parameters {                                               \
    if (strikes(kind, path, handle, 0) == 1) return (result)-1;          \
    return REAL(name) arguments;                                         \
  }
#define TRANSFERRING(name, parameters, halved, arguments, kind) \
  ssize_t name parameters {                                     \
    int strike = strikes(kind, NULL, fd, 0);                    \
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
    if (strikes(OPEN, path, handle, flags) == 1) return -1;     \
    return REAL(name)(pass_first path, flags, mode);            \
  }
#define WITH_FOLDER int folder,
#define PASS_FOLDER folder,
OPENING(open, , , -1)
OPENING(open64, , , -1)
OPENING(openat, WITH_FOLDER, PASS_FOLDER, folder)
OPENING(openat64, WITH_FOLDER, PASS_FOLDER, folder)

static int flags_of(const char *mode) { return strpbrk(mode, "wa+") ? O_WRONLY : O_RDONLY; }

FILE *fopen(const char *path, const char *mode) {
  return strikes(OPEN, path, -1, flags_of(mode)) == 1 ? NULL : REAL(fopen)(path, mode);
}
FILE *fopen64(const char *path, const char *mode) {
  return strikes(OPEN, path, -1, flags_of(mode)) == 1 ? NULL : REAL(fopen64)(path, mode);
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
  int strike = strikes(CLOSE, NULL, fd, 0), error = errno;
  int answer = REAL(close)(fd);
  if (strike != 1) return answer;
  errno = error;
  return -1;
}

DIR *opendir(const char *path) { return strikes(LIST, path, -1, 0) == 1 ? NULL : REAL(opendir)(path); }
DIR *fdopendir(int fd) { return strikes(LIST, NULL, fd, 0) == 1 ? NULL : REAL(fdopendir)(fd); }
void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
  if (!(flags & MAP_ANONYMOUS) && strikes(MAP, NULL, fd, 0) == 1) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t length, int protection, int flags, int fd, off64_t offset) {
  if (!(flags & MAP_ANONYMOUS) && strikes(MAP, NULL, fd, 0) == 1) return MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}
