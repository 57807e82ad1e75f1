"""Ask Slurm for the job, its time and its nodes."""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmark.launch.keep_running import say
from benchmark.run_record.small_files import LOOK_S, Answer, wait_for

PROBE_S = 60.0
"""Seconds for a node to run a process. Slurm itself takes minutes to notice that a node is gone."""
ANSWER_S = 60.0
REGISTER_S = 180.0
"""Seconds for which the state of a node may be unknown: nodes report to a new controller."""
SLURM_S = 1800.0
"""Seconds for which Slurm's controller may be away."""
BAD_STATE = re.compile(r"^(down|drain|fail|error|unk|inval|future|power|reboot|boot|blocked)|[*~#%!@^]$")
"""Unusable states in sinfo's words; a suffix says that the node does not answer or has no power."""
FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w:/-]*)=(.*?)(?=\s+[A-Za-z][\w:/-]*=|\s*$)")
SILENT: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
"""Streams of a process that hears and says nothing."""
TIME_LIMIT = "TimeLimit"
"""Slurm's reason for the end of a job that has used its time."""
AGAIN_S, GONE_AGAIN_S = 30.0, 10.0
"""Seconds that earlier steps may take to leave. The second is for a lost node: its step never reports its end."""


def srun_per_node(nodes: Sequence[str]) -> list[str]:
    """Return the srun of a step with a process on each node, beside earlier steps: one on a lost node does not end."""
    words = ["srun", "--overlap", "--no-kill=off", "--ntasks-per-node=1"]
    return [*words, f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", f"--nodelist={','.join(nodes)}"]


def is_done(*words: str) -> bool:
    """Give Slurm a command; return whether it succeeded within ANSWER_S. Its message goes to the job's log."""
    try:
        return subprocess.call(words, stdin=subprocess.DEVNULL, timeout=ANSWER_S) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def ask(*words: str, times: str = "standard") -> str:
    """Return the output of a Slurm command; empty if it fails or gives no answer. ``times``: their form."""
    variables, quiet = {**os.environ, "SLURM_TIME_FORMAT": times}, subprocess.DEVNULL
    try:
        output = subprocess.check_output(words, env=variables, stdin=quiet, stderr=quiet, timeout=ANSWER_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return output.decode(errors="replace").strip()


def job_fields(job: str) -> dict[str, str]:
    """Return the fields of a job from scontrol, times in seconds since the epoch; empty without an answer."""
    return _fields(ask("scontrol", "--oneliner", "show", "job", job, times="%s"))


def is_requeued(fields: Mapping[str, str], restarts: str) -> bool:
    """Return whether Slurm has sent a job to the queue, or started it again, that had so many restarts."""
    return fields.get("JobState") == "PENDING" or fields.get("Restarts", restarts) != restarts


class NoAnswer(OSError):
    """Slurm's controller gives no answer."""


def with_answer(question: Callable[[], Answer], command: str, is_ordered: Callable[[], object]) -> Answer:
    """Return the answer of Slurm's controller, which is waited for at most SLURM_S, unless an order to stop comes.

    ``command``: of Slurm, for people. Raises StoppedWaiting then, and NoAnswer after SLURM_S.
    """

    def ask_again() -> Answer:
        if answer := question():
            return answer
        raise NoAnswer(errno.ETIMEDOUT, "no answer", command)

    return wait_for(ask_again, SLURM_S, say, is_ordered=is_ordered, answers=())


def job_with_answer(job: str, is_ordered: Callable[[], object]) -> dict[str, str]:
    """Return the fields of a job. Raises the errors of :func:`with_answer`."""
    return with_answer(lambda: job_fields(job), f"scontrol show job {job}", is_ordered)


def _fields(answer: str) -> dict[str, str]:
    """Parse "Name=value Name=value". A value may have blanks: it ends before the next name. The first of a name counts:
    texts of people, which come late, may look like fields."""
    pairs = reversed(FIELD.findall(answer))
    return {name: value for name, value in pairs if value not in ("", "(null)")}


def seconds_left(fields: Mapping[str, str]) -> float:
    """Return the seconds until a job's time limit as it is now; infinite without a limit."""
    end_s = fields.get("EndTime", "Unknown")
    return float(end_s) - time.time() if end_s.isdecimal() else math.inf


def host_names(listed: str) -> list[str]:
    """Return the nodes of a list such as "n[1-3]", in the order in which Slurm places processes on them."""
    return ask("scontrol", "show", "hostnames", listed).split() if listed else []


class Nodes:
    """The nodes of a job, divided into usable and unusable ones."""

    def __init__(self, job: str, names: Sequence[str], is_ordered: Callable[[], object]) -> None:
        """``is_ordered``: whether an order to stop came."""
        self._job, self.names, self._is_ordered = job, list(names), is_ordered
        self.up: list[str] = list(names)
        self.down: list[str] = []

    def look(self, *, probe: bool) -> None:
        """Sort the nodes into ``up`` and ``down``; with ``probe``, check that they run a process, again if Slurm was
        away meanwhile. Raises the errors of :func:`with_answer`."""
        fields = job_with_answer(self._job, self._is_ordered)
        allocated = host_names(fields.get("NodeList", ""))  # a node that failed leaves the job
        bad = {node for node, state in self._states().items() if BAD_STATE.search(state)}
        bad |= {node for node in self.names if allocated and node not in allocated}
        up = [node for node in self.names if node not in bad]
        silent = silent_nodes(up) if probe and up else []
        while silent and not job_fields(self._job):
            job_with_answer(self._job, self._is_ordered)
            silent = silent_nodes(up)
        self.up = [node for node in up if node not in silent]
        self.down = [node for node in self.names if node not in self.up]

    def _states(self) -> dict[str, str]:
        """Return the nodes' states in sinfo's words. A controller that was just started does not know them: it is asked
        again for at most REGISTER_S."""
        deadline = time.monotonic() + REGISTER_S
        while True:
            words = ("--noheader", "--Node", f"--nodes={','.join(self.names)}", "--format=%N %T")
            rows = [row.split() for row in ask("sinfo", *words).splitlines()]
            states = {row[0]: row[1] for row in rows if len(row) == 2}
            unknown = [node for node, state in states.items() if state.startswith("unk")]
            if not unknown or time.monotonic() > deadline or self._is_ordered():
                return states
            time.sleep(LOOK_S)

    def named(self, hosts: Sequence[str]) -> list[str]:
        """Return the job's nodes with these names, with or without a domain."""
        short = {host.partition(".")[0] for host in hosts}
        return [node for node in self.names if node in hosts or node.partition(".")[0] in short]

    def address(self, node: str) -> str:
        """Return a name or number by which the other nodes reach the node."""
        try:
            socket.getaddrinfo(node, None)
        except OSError:
            return _fields(ask("scontrol", "--oneliner", "show", "node", node)).get("NodeAddr", node)
        return node

    def steps(self) -> list[str] | None:
        """Return the numbers of the attempts' steps; None without an answer. The job's script is a step, too."""
        rows = ask("squeue", "--noheader", "--steps", "--job", self._job, "--format=%i %j").splitlines()
        steps = [row.split()[0] for row in rows if re.match(r"\S+\.\d+ (?!sentinel|beside)", row.strip() + " ")]
        return steps if rows else None

    def wait_for_steps(self) -> None:
        """Kill the remains of earlier attempts, and wait until they are gone; steps beside the attempts go on."""
        deadline = time.monotonic() + (GONE_AGAIN_S if self.down else AGAIN_S)
        if steps := self.steps():
            ask("scancel", "--signal=KILL", *steps)
        while steps and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            steps = self.steps()


def silent_nodes(nodes: Sequence[str]) -> list[str]:
    """Return the nodes that do not run a process."""
    return [node for (node,) in _unanswered([[node] for node in nodes])] if _unanswered([nodes]) else []


def _unanswered(groups: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the groups of nodes on which a step fails, or does not end in time."""
    probes = [(group, subprocess.Popen([*srun_per_node(group), "true"], **SILENT)) for group in groups]
    deadline, failures = time.monotonic() + PROBE_S, []
    for group, probe in probes:
        try:
            is_failure = probe.wait(max(0.1, deadline - time.monotonic())) != 0
        except subprocess.TimeoutExpired:
            is_failure = True
            probe.kill()
            probe.wait()
        if is_failure:
            failures.append(group)
    return failures
