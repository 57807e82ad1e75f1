"""Starting several processes of one run on this machine."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from stage.child_processes import require_free_port, run_module

EXIT_CODE = re.compile(r"exitcode\s*:?\s*(-?\d+)")
"""How torchrun's report names the exit status of a process."""


def torchrun(arguments: Sequence[str], *, processes: int, port: int | None, log: Path) -> int:
    """Run ``python -m ARGUMENTS`` in several processes under torchrun; returns the exit status of what failed first.

    torchrun wraps every failure in a traceback of its own. Its output and the processes' errors go to ``log``; what
    matters of it is printed: the lines that begin with "error:", or the log's end where there is none. Raises
    InputError when ``port``, where the processes meet, is in use; None takes a free one.
    """
    if port is not None:
        require_free_port(port)
    meet = ["--standalone"] if port is None else ["--master-port", str(port)]
    command = ["torch.distributed.run", "--nproc-per-node", str(processes), *meet, "-m", *arguments]
    status = run_module(command, errors=log)
    if status == 0:
        return 0
    lines = log.read_text(errors="replace").splitlines()
    shown = list(dict.fromkeys(line for line in lines if line.startswith("error:"))) or lines[-20:]
    print("\n".join(shown), file=sys.stderr)
    codes = [int(code) for code in EXIT_CODE.findall("\n".join(lines)) if int(code) > 0]
    return codes[0] if codes else status
