"""Close this process: it then reads and writes the files of its subject alone, and reaches no network and no process.

The official tools evaluate code and form paths (docs/notes/official_tools.md). They read copies without a stranger's
paths (log_copies.py); this is the second wall. Files are closed by Landlock (Linux 5.13 and later), sockets, processes
and signals by a seccomp filter (x86-64 and ARM). Neither needs privileges. This module runs in the tools' processes,
with the standard library alone; :func:`closed_doors` says what really held.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import stat
import struct
from collections.abc import Callable, Iterable, Mapping

from foundation.this_machine import process_control

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls: the same on every architecture."""
LANDLOCK_VERSION = 1
"""Flag of the first call: it returns the version of Landlock."""
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
BASE_RIGHTS = (1 << 13) - 1
"""Rights to files of Landlock's first version; later versions add one bit each."""
FOLDER_ONLY = READ_DIR | (BASE_RIGHTS & ~(EXECUTE | WRITE_FILE | READ_FILE)) | 1 << 13
"""Rights that a rule for a file must not have."""
READ_ONLY = READ_FILE | READ_DIR
NEWER_RIGHTS = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Moves between folders, truncation, and device commands, by the version that added the right."""
SINCE_NETWORK, SINCE_SCOPES = 4, 6
SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/sys/devices/system/cpu")
"""Folders with libraries, and the list of processors that numpy asks for."""
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/dev/urandom")

REFUSED_CALLS: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53,
        "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "ptrace": 101, "mount": 165, "tkill": 200, "keyctl": 250,
        "unshare": 272, "perf_event_open": 298, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
        "bpf": 321, "execveat": 322, "pidfd_send_signal": 424, "io_uring_setup": 425,
    },
    "aarch64": {
        "mount": 40, "unshare": 97, "ptrace": 117, "kill": 129, "tkill": 130, "socket": 198, "socketpair": 199,
        "bind": 200, "listen": 201, "connect": 203, "sendto": 206, "sendmsg": 211, "keyctl": 219, "execve": 221,
        "perf_event_open": 241, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "bpf": 280,
        "execveat": 281, "pidfd_send_signal": 424, "io_uring_setup": 425,
    },
}  # fmt: skip
"""System calls that are answered with "not permitted", by architecture."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE3, CLONE_THREAD = 435, 0x10000
"""A thread is allowed, a process is not; clone3 hides the difference from a filter, and libraries do without it."""
X32 = 0x40000000
"""Bit of the system calls of x86-64 with short pointers, which are refused."""
LOAD, EQUAL, GREATER_EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE = 0x00050000
"""A filter's answer; its lower half is the error number."""

Limits = Mapping[int, int]


def enter(writable: Iterable[str], readable: Iterable[str], limits: Limits) -> None:
    """Close this process for good; what the kernel lacks stays open. Call it before anything of a stranger is read."""
    library = ctypes.CDLL(None, use_errno=True)
    if not process_control(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return  # not Linux: its calls have other numbers elsewhere
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    _close_files(library, writable, readable)
    _close_calls(library)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end it at once if the parent has ended already."""
    process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def closed_doors(outside: str) -> dict[str, bool]:
    """Return which doors are closed here, each tried: files (by the file ``outside``), network, processes."""
    return {
        "files": _fails(lambda: os.close(os.open(outside, os.O_RDONLY))),
        "network": _fails(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "processes": _fails(_start_process),
    }


def _fails(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM, errno.ENOSYS)
    return False


def _start_process() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _close_files(library: ctypes.CDLL, writable: Iterable[str], readable: Iterable[str]) -> None:
    version = library.syscall(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_VERSION)
    if version < 1:
        return
    rights = BASE_RIGHTS | sum(right for since, right in NEWER_RIGHTS.items() if since <= version)
    attributes = struct.pack("QQQ", rights, 3 * (version >= SINCE_NETWORK), 3 * (version >= SINCE_SCOPES))
    rules = library.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return
    for path in writable:
        _allow(library, rules, path, rights & ~EXECUTE)
    for path in (*readable, *SYSTEM_FOLDERS, *SYSTEM_FILES):
        _allow(library, rules, path, READ_ONLY)
    _allow(library, rules, os.devnull, READ_FILE | WRITE_FILE)
    library.syscall(LANDLOCK_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(library: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    """Allow ``rights`` at and below a path; a path that is not there needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= ~FOLDER_ONLY
        library.syscall(LANDLOCK_ADD_RULE, rules, 1, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


def _close_calls(library: ctypes.CDLL) -> None:
    filter_ = call_filter(platform.machine())
    if filter_:
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in filter_))
        program = struct.pack("HxxxxxxP", len(filter_), ctypes.addressof(code))
        library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)


def call_filter(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the filter of system calls as steps (code, steps to skip if true, if false, operand); empty for an
    architecture without a list."""
    if machine not in ARCHITECTURES:
        return []
    refuse = (RETURN, 0, 0, REFUSE | errno.EPERM)
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURES[machine]), (RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        steps += [(GREATER_EQUAL, 0, 1, X32), refuse]
    for number in REFUSED_CALLS[machine].values():
        steps += [(EQUAL, 0, 1, number), refuse]
    steps += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    steps += [(EQUAL, 0, 3, CLONE[machine]), (LOAD, 0, 0, 16), (ANY_BIT, 1, 0, CLONE_THREAD), refuse]
    return [*steps, (RETURN, 0, 0, ALLOW)]
