"""Count the files, sockets included, that a process of a run has open at once, and raise its limit.

The counts are from 2 to 16 processes under gloo (PyTorch 2.13). A process holds a socket to every other process of the
whole group and of its group along each axis of the mesh, whatever carries the gradients. Rank 0, where all meet, holds
one more for each process. NCCL adds files for the links of a group, and the driver adds files for each device.

    processes              512      2,048
    own, driver, NCCL      832        832
    to the others          536      2,120
    on rank 0            1,024      4,096    two for each process: PyTorch's watchdog of NCCL opens another one
    all                  2,392      7,048
"""

import contextlib
import resource
from collections.abc import Sequence

OWN = 256
"""Files of the interpreter, logs, token files, checkpoint files being written; 45 were counted before the first
step."""
WITH_DEVICE = 256
"""Files of the driver, for each GPU of the machine that a process sees."""
NCCL_PER_GROUP = 64
"""Sockets and event files of a group's links; NCCL needs more if it has nothing but sockets (NCCL_NSOCKS_PERTHREAD)."""
STORE_PER_PROCESS = 2
MOST_RAISED = 1 << 20
"""Highest limit that is set: beyond it, programs that close all possible files take long."""


def files_needed(group_sizes: Sequence[int], *, gpus: bool) -> int:
    """Return the files of rank 0, which has most; ``group_sizes`` are the processes along each axis of the mesh."""
    world = 1
    for size in group_sizes:
        world *= size
    sockets = (world - 1) + sum(size - 1 for size in group_sizes)
    groups = 1 + len(group_sizes)
    return OWN + sockets + STORE_PER_PROCESS * world + (WITH_DEVICE + NCCL_PER_GROUP * groups if gpus else 0)


def raise_file_limit() -> None:
    """Raise the soft limit of this process, and of its later children, to the hard limit if that is granted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_RAISED if hard == resource.RLIM_INFINITY else min(hard, MOST_RAISED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
