"""Several processes of one run, and what is told when one of them fails."""

import socket
from pathlib import Path

import pytest

from benchmark.rehearsal.torchrun import torchrun
from stage.errors import InputError


@pytest.mark.slow
def test_failure_under_torchrun_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["benchmark", "train", "rehearsal", "--run-dir", str(tmp_path / "run")]
    assert torchrun(arguments, processes=2, port=None, log=tmp_path / "log") == 2
    captured = capfd.readouterr()
    assert captured.err == "error: --train-data-path is missing: one dataset prefix, or weights and prefixes in turn\n"
    assert captured.out == ""


def test_busy_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use; choose another MASTER_PORT"):
            torchrun(["benchmark"], processes=2, port=port, log=tmp_path / "log")
