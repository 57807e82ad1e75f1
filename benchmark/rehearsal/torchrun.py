"""Starting several processes of one run on this machine."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from stage.child_processes import require_free_port, run_module

EXIT_CODE = re.compile(r"exitcode\s*:?\s*(-?\d+)")
"""How torchrun's report names the exit status of a process."""


def torchrun(
    arguments: Sequence[str], environment: Mapping[str, str], *, processes: int, port: int | None, log: Path
) -> int:
    """Run ``python -m ARGUMENTS`` in several processes under torchrun; returns the exit status of what failed first.

    torchrun wraps every failure in a traceback of its own: its output and the processes' errors go to ``log``. Raises
    InputError when ``port``, where the processes meet, is in use; None takes a free one.
    """
    if port is not None:
        require_free_port(port)
    meet = ["--standalone"] if port is None else ["--master-port", str(port)]
    command = ["torch.distributed.run", "--nproc-per-node", str(processes), *meet, "-m", *arguments]
    status = run_module(command, errors=log, environment=environment)
    if status == 0:
        return 0
    codes = [int(code) for code in EXIT_CODE.findall(log.read_text(errors="replace")) if int(code) > 0]
    return codes[0] if codes else status
