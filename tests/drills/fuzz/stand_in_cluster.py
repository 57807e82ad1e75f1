"""A stand-in for Slurm: two nodes that are this machine, one job, and the answers of the commands about it."""

import json
import os
import re
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.training.machine.forked_ranks import fork_server
from tests.drills.fuzz.disk_faults import CONTROL

NODES = ("n1", "n2")
KILL_WAIT_S = 15.0
"""Seconds from SIGTERM to SIGKILL, where Slurm has KillWait."""
BAD_EXIT_S = 3.0
"""Seconds that the other processes of a step have after the first failure."""
WAIT_S = 60.0
"""Seconds that the other processes of a step have after the first end (srun --wait)."""
REQUEUE_S = 3.0
"""Seconds that a requeued job waits; Slurm holds it for two minutes."""
LOOK_S = 0.1
CLIENT = Path(__file__).with_name("slurm_command.py")
COMMANDS = ("srun", "squeue", "scontrol", "sinfo", "sbatch", "scancel")
UNREACHABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
FORKING = threading.Lock()


@dataclass
class Step:
    """The processes of an attempt, which srun started."""

    number: int
    ranks: Sequence[Any]

    def live(self) -> list[Any]:
        return [rank for rank in self.ranks if rank.exitcode is None]


@dataclass
class Away:
    """The time in which commands get no answer."""

    how: str
    command: str
    until_s: float


@dataclass
class StandInCluster:
    """``start_rank``: called in a new process for each rank, with its number, its variables and the paths of its
    output."""

    folder: Path
    job: str
    start_rank: Callable[..., object]
    arguments: tuple[Any, ...]
    variables: Mapping[str, str]
    """Variables of the job."""
    script: Sequence[str]
    state: str = "PENDING"
    restarts: int = 0
    steps: list[Step] = field(default_factory=list)
    away: Away | None = None
    unknown: list[str] = field(default_factory=list)
    """Questions that the stand-in cannot answer."""
    _exit_code: str = "0:0"
    """Of the job's script, in Slurm's words."""
    _requeued: bool = False
    _cancelled: bool = False
    _is_over: bool = False

    def serve(self) -> None:
        """Answer commands from now on."""
        cluster = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError, ValueError):
                    cluster._answer(self)

        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        python = Path(os.path.realpath(os.sys.executable))  # type: ignore[attr-defined]
        for name in COMMANDS:
            (bin_folder / name).write_text(f'#!/bin/bash\nexec {python} -IS {CLIENT} "$0" "$@"\n')
            (bin_folder / name).chmod(0o755)
        self._server = socketserver.ThreadingUnixStreamServer(str(self.folder / "slurm"), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True).start()

    def close(self) -> None:
        self._is_over = True
        self._end_processes(0)
        self._server.shutdown()
        self._server.server_close()

    def run_job(self) -> int:
        """Run the job until it is over; return the exit status of its script."""
        while True:
            self.state, self._requeued, self._cancelled = "RUNNING", False, False
            variables = {**self.variables, "FUZZ_SLURM": str(self.folder / "slurm")}
            variables["PATH"] = f"{self.folder / 'bin'}:{variables['PATH']}"
            if self.restarts:
                variables["SLURM_RESTART_COUNT"] = str(self.restarts)
            with (self.folder / "slurm.out").open("ab") as output:
                script = subprocess.Popen(
                    self.script,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                while script.poll() is None and not (self._requeued or self._cancelled or self._is_over):
                    time.sleep(LOOK_S)
                self.state = "COMPLETING"
                self._exit_code = "0:9" if script.poll() == -signal.SIGKILL else "0:0"
                is_over = script.poll() is not None and self._exit_code == "0:0"
                self._end_processes(0 if is_over else KILL_WAIT_S)
                status = script.wait()
            if self._is_over or not self._requeued:
                self.state = "COMPLETED"
                return status
            self.state = "PENDING"
            self.restarts += 1
            time.sleep(REQUEUE_S)

    def processes(self) -> dict[int, str]:
        """Return the job's processes with their command lines; ranks have the line "rank 0" or "rank 1"."""
        ranks = {
            rank.pid: f"rank {number}"
            for step in self.steps
            for number, rank in enumerate(step.ranks)
            if rank.exitcode is None
        }
        wanted = f"{CONTROL}={self.variables[CONTROL]}".encode()
        found = dict[int, str]()
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (path / "environ").read_bytes().split(b"\0"):
                    line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if line:  # else it is dead, and its parent has not asked for its status
                        found[int(path.name)] = line
        return {**found, **ranks}

    def _end_processes(self, grace_s: float) -> None:
        """End all processes of the job, as Slurm does at its end."""
        deadline = time.monotonic() + grace_s
        for number in (signal.SIGCONT, signal.SIGTERM) if grace_s else ():
            _signal(self.processes(), number)
        while grace_s and self.processes() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        for _ in range(20):  # a process may start another one meanwhile
            if not (processes := self.processes()):
                return
            _signal(processes, signal.SIGKILL)
            time.sleep(LOOK_S)

    def _answer(self, client: socketserver.StreamRequestHandler) -> None:
        request = json.loads(client.rfile.readline())
        words: list[str] = request["words"]
        away = self.away
        if away is None or time.monotonic() > away.until_s or away.command not in ("all", words[0]):
            away = None
        if away is not None and away.how == "silent":
            while time.monotonic() < away.until_s and not self._is_over:
                time.sleep(LOOK_S)
        if away is not None and (away.how == "refuses" or (away.how == "lost" and words[0] == "srun")):
            time.sleep(0.5)
            _send(client, {"status": 1, "output": "", "errors": UNREACHABLE})
        elif words[0] == "srun" and " benchmark train " in f"{' '.join(words)} ":
            self._run_step(client, request["variables"])
        else:
            answer = self._srun(words) if words[0] == "srun" else self._about_job(words)
            if away is not None and away.how == "lost":
                answer = {"status": 1, "output": "", "errors": UNREACHABLE}
            _send(client, answer)

    def _srun(self, words: Sequence[str]) -> dict[str, Any]:
        """A step beside the attempts."""
        command = words[next(place for place, word in enumerate(words) if place and not word.startswith("-")) :]
        if command == ["true"] or "drop_caches" in command[-1]:
            return _text("", status=command != ["true"])
        return {"command": command}

    def _about_job(self, words: Sequence[str]) -> dict[str, Any]:
        line = " ".join(words)
        live_steps = [step for step in self.steps if step.live()]
        match words:
            case ["squeue", *_] if "--steps" in words:
                steps = [f"{self.job}.batch batch", *(f"{self.job}.{step.number} bash" for step in live_steps)]
                return _text("\n".join(steps))
            case ["squeue", *_] if "PENDING" in line or "--name" in line:
                return _text("")
            case ["squeue", *_] if "%T" in line:
                return _text(self.state)
            case ["scontrol", "show", "hostnames", names]:
                return _text(names.replace(",", "\n"))
            case ["scontrol", "--oneliner", "show", "job", _] | ["scontrol", "show", "job", _]:
                return _text(
                    f"JobId={self.job} JobName=gpt3 JobState={self.state} Requeue=1 Restarts={self.restarts} "
                    f"SubmitTime=1767323045 EndTime=Unknown BatchHost=n1 NodeList={','.join(NODES)} NumNodes=2 "
                    f"ExitCode={self._exit_code} StdOut={self.folder}/slurm.out"
                )
            case ["scontrol", "--oneliner", "show", "node", name]:
                return _text(f"NodeName={name} NodeAddr=127.0.0.1")
            case ["scontrol", "requeue", _]:
                self._requeued = True
                return _text("")
            case ["sinfo", *_]:
                return _text("".join(f"{node} allocated\n" for node in NODES))
            case ["scancel", *options]:
                self._cancel(options, live_steps)
                return _text("")
            case ["scontrol", "show", "topology"] | ["scontrol", "--version"] | ["scontrol", "update", *_]:
                return _text("")
        self.unknown.append(line)
        return _text("", status=1)

    def _cancel(self, options: Sequence[str], live_steps: Sequence[Step]) -> None:
        number = next((option.partition("=")[2] for option in options if option.startswith("--signal=")), "")
        for name in (option for option in options if not option.startswith("-")):
            if name == self.job and not number:
                self._cancelled = True
            for step in live_steps:
                if name in (self.job, f"{self.job}.{step.number}"):
                    named = getattr(signal, f"SIG{number}", signal.SIGTERM)
                    _signal({rank.pid: "" for rank in step.live()}, named)

    def _run_step(self, client: socketserver.StreamRequestHandler, variables: Mapping[str, str]) -> None:
        """Start the ranks of an attempt and wait for their end, whatever becomes of srun."""
        number = len(self.steps)
        paths = [str(self.folder / f"step_{number}.{name}") for name in ("out", "err")]
        for path in paths:
            Path(path).touch()
        _send(client, {"step": paths})
        context = fork_server()
        ranks = [
            context.Process(target=self.start_rank, args=(*self.arguments, rank, dict(variables), paths), daemon=True)
            for rank in range(len(NODES))
        ]
        step = Step(number, ranks)
        with FORKING:
            for rank in ranks:
                rank.start()
        self.steps.append(step)
        client.request.settimeout(LOOK_S)
        ended_s = failed_s = None
        while live := step.live():
            for signal_number in _signals(client):
                _signal({rank.pid: "" for rank in live}, signal_number)
            now_s, codes = time.monotonic(), [rank.exitcode for rank in ranks]
            ended_s = ended_s or (now_s if any(code is not None for code in codes) else None)
            failed_s = failed_s or (now_s if any(codes) else None)
            if (failed_s and now_s > failed_s + BAD_EXIT_S) or (ended_s and now_s > ended_s + WAIT_S):
                _signal({rank.pid: "" for rank in live}, signal.SIGKILL)
            time.sleep(LOOK_S)
        codes = [rank.exitcode or 0 for rank in ranks]
        _send(client, _text("", status=max(128 - code if code < 0 else code for code in codes)))


def _text(output: str, *, status: int = 0) -> dict[str, Any]:
    return {"status": int(status), "output": f"{output.strip()}\n" if output else "", "errors": ""}


def _send(client: socketserver.StreamRequestHandler, answer: Mapping[str, Any]) -> None:
    with suppress(OSError):
        client.request.settimeout(5)
        client.wfile.write(json.dumps(answer).encode() + b"\n")


def _signals(client: socketserver.StreamRequestHandler) -> list[int]:
    """Return the signals that srun got since the last call."""
    with suppress(OSError):
        return [int(number) for number in re.findall(rb'"signal": (\d+)', client.request.recv(4096))]
    return []


def _signal(processes: Mapping[int, str], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
