"""Several processes of one run, and what is told when one of them fails."""

import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmark.rehearsal.torchrun import torchrun
from benchmark.supervision.launcher import keep_running
from stage.errors import InputError


@pytest.mark.slow
def test_bad_input_under_torchrun_is_one_line_and_ends_the_attempts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, run_dir = ["benchmark", "train", "rehearsal", "--run-dir", str(tmp_path / "run")], tmp_path / "run"

    def start(environment: Mapping[str, str], log: Path) -> int:
        return torchrun(arguments, environment, processes=2, port=None, log=log)

    decision = keep_running(run_dir, start, lambda: None, launch="test")
    captured = capfd.readouterr()
    assert captured.err == "error: --train-data-path is missing: one dataset prefix, or weights and prefixes in turn\n"
    assert captured.out == ""
    assert (decision.action, decision.status) == ("stop", 2)
    assert [entry.name for entry in (run_dir / "attempts").iterdir()] == ["0001"]


def test_busy_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use; choose another MASTER_PORT"):
            torchrun(["benchmark"], {}, processes=2, port=port, log=tmp_path / "log")
