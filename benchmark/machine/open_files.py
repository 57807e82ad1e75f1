"""How many files a process of a run has open at once, sockets too, and how many it may.

Counted on 2 to 16 processes under gloo (PyTorch 2.13): a process holds a socket to every other one of the whole group
and of its group along each axis of the mesh, whatever carries the gradients; rank 0, where all meet, one more for each
process. NCCL and the driver add theirs for the links of a group and for each device.

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
"""The interpreter's, logs, token files, checkpoint files being written; 45 were counted before the first step."""
WITH_DEVICE = 256
"""The driver's, for each GPU of the machine a process sees."""
NCCL_PER_GROUP = 64
"""Sockets and event files of the links; more where NCCL has nothing but sockets (NCCL_NSOCKS_PERTHREAD)."""
STORE_PER_PROCESS = 2
MOST_RAISED = 1 << 20
"""Programs that close all files they could have open take their time beyond it."""


def files_needed(group_sizes: Sequence[int], *, gpus: bool) -> int:
    """Of rank 0, which has most; ``group_sizes``: processes along each axis of the mesh."""
    world = 1
    for size in group_sizes:
        world *= size
    sockets = (world - 1) + sum(size - 1 for size in group_sizes)
    groups = 1 + len(group_sizes)
    return OWN + sockets + STORE_PER_PROCESS * world + (WITH_DEVICE + NCCL_PER_GROUP * groups if gpus else 0)


def raise_file_limit() -> None:
    """Raise the soft limit of this process, and of those it starts, to the hard one where that is granted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_RAISED if hard == resource.RLIM_INFINITY else min(hard, MOST_RAISED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
