"""Every check finds what it is for; the exit status says so."""

import dataclasses
import json
import os
import resource
import shutil
import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark.__main__ import main
from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from benchmark.preflight import device_checks, machine_checks, run_checks, world_checks
from benchmark.preflight.preflight_check import CheckResult, Place, PreflightCheck, worst
from benchmark.training.engine.distributed import Environment, joined_world, read_environment
from stage.errors import InputError
from tests.benchmark.tiny import Inputs, in_processes
from tests.support import command as run_command

PAIR = SYSTEMS["cpu_p2"]


def alone(config: RunConfig | None) -> Place:
    return Place(config, Environment(0, 1, 0, "localhost:-"), None, "cpu")


def large(run_dir: Path, system: str = "dgxh100_n64", **fields: Any) -> RunConfig:
    return RunConfig(benchmark=GPT3_175B, system=SYSTEMS[system], run_dir=run_dir, **fields)


def outcomes(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in json.loads(capsys.readouterr().out)["checks"]}


def test_a_machine_and_a_run_that_are_fine(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_checks, "LOG_BYTES", 1000)
    assert run_checks.run_checks(inputs.config(tmp_path / "run", save_interval=5), as_json=True) == 0
    found = outcomes(capsys)
    assert list(found) == [check.name for check in run_checks.CHECKS]
    needed = ("packages", "devices", "products", "host memory", "disk space", "run folder", "inputs", "clock")
    assert {name: found[name] for name in needed} == dict.fromkeys(needed, "ok")
    assert found["all-reduce"] == found["speed"] == "skipped"
    assert not (tmp_path / "run").exists()
    assert list(tmp_path.iterdir()) == []


def test_command_as_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "summary.json").touch()
    done = run_command("benchmark", "preflight", "rehearsal", "--run-dir", tmp_path, "--checkpoint", tmp_path / "none")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED   run folder     " in done.stdout
    assert "--train-data-path is missing" in done.stdout
    assert "2 FAILED" in done.stdout.splitlines()[-1]


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    for words, complaint in (
        (["gpt4"], "unknown benchmark 'gpt4'"),
        (["--jsno"], "which benchmark"),
        (["gpt3_175b", "--global-batch-size", "100"], "global_batch_size 100 is not a multiple"),
    ):
        with pytest.raises(InputError, match=complaint):
            main(["preflight", *words])
    with pytest.raises(SystemExit):
        main(["preflight", "--help"])
    assert "Example: srun python -m benchmark preflight" in capsys.readouterr().out


def test_inputs_as_train_would_check_them(inputs: Inputs, tmp_path: Path) -> None:
    copies = Path(shutil.copytree(inputs.folder, tmp_path / "copies"))
    with (copies / "train_1.bin").open("ab") as damaged:
        damaged.write(b"xx")
    finding = machine_checks.inputs(alone(Inputs(copies).config(tmp_path / "run")))
    assert (finding.outcome, "train_1.bin" in finding.found) == ("FAILED", True)
    assert machine_checks.inputs(alone(large(tmp_path))).outcome == "skipped"
    half = dataclasses.replace(inputs.config(tmp_path / "run"), checkpoint=None)
    assert "--checkpoint is missing" in machine_checks.inputs(alone(half)).found


def test_space_for_checkpoints_of_the_real_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of 12 bytes for each of 174.6e9 parameters (docs/facts/peers.md 1.0), 64 machines to hold one."""
    place = alone(large(tmp_path / "run"))
    assert machine_checks.checkpoint_bytes(large(tmp_path)) == pytest.approx(2.095e12, rel=1e-3)
    for free, outcome in ((6.2e12, "FAILED"), (6.3e12, "ok")):
        usage = shutil._ntuple_diskusage(int(1e13), 0, int(free))
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        finding = machine_checks.disk_space(place)
        assert finding.outcome == outcome
        assert "6,287.2 GB needed for logs and 3 checkpoints" in finding.found
    assert "30.49 GiB needed" in machine_checks.host_memory(place).found
    assert machine_checks.host_memory(alone(large(tmp_path, save_interval=0))).outcome == "skipped"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = next(check for check in run_checks.CHECKS if check.name == "run folder")
    row = run_checks._row(check, alone(large(tmp_path / "file" / "run")))
    assert row is not None
    assert row.outcome == "FAILED"
    assert "NotADirectoryError" in row.found


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, outcome in ((256, "FAILED"), (2048, "warning"), (1 << 16, "ok")):
        limit = {resource.RLIMIT_NOFILE: allowed, resource.RLIMIT_MEMLOCK: resource.RLIM_INFINITY}
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limit=limit: (limit[kind], limit[kind]))
        assert machine_checks.limits(alone(None)).outcome == outcome


def test_a_clock_in_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    finding = machine_checks.clock(alone(None))
    assert (finding.outcome, "2001" in finding.found) == ("FAILED", True)


def test_a_port_in_use() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("", 0))
        taken.listen()
        number = taken.getsockname()[1]
        place = Place(None, Environment(0, 1, 0, f"localhost:{number}"), None, "cpu")
        assert machine_checks.port(place).outcome == "FAILED"
    assert machine_checks.port(place).outcome == "ok"


def test_software_that_differs() -> None:
    same = {"torch": "2.13.0", "nccl": "2.27"}
    finding = machine_checks.same_versions(alone(None), [("a", same), ("b", {**same, "nccl": "2.26"})])
    assert finding.outcome == "FAILED"
    assert finding.found == "a and b differ: nccl 2.27 but 2.26"
    assert machine_checks.same_versions(alone(None), [("a", same), ("b", dict(same))]).outcome == "ok"


def test_manifests_that_differ() -> None:
    first = {"data": "1", "checkpoint": "2"}
    finding = machine_checks.same_manifests(
        alone(None), [("a", first), ("b", first), ("c", {"data": "1", "checkpoint": "none"})]
    )
    assert (finding.outcome, finding.found) == ("FAILED", "checkpoint: another manifest at c than at a")
    assert machine_checks.same_manifests(alone(None), [("a", first), ("b", dict(first))]).outcome == "ok"


H100: dict[str, Any] = {"names": ["NVIDIA H100 80GB HBM3"] * 8, "memory_gb": [85.0] * 8}


@pytest.mark.parametrize(
    ("machines", "outcome", "phrase"),
    [
        ([H100, H100], "ok", "8 x NVIDIA H100 80GB HBM3 on each of 2 machines"),
        (
            [H100, {"names": H100["names"][:7], "memory_gb": [85.0] * 7}],
            "FAILED",
            "node1: 7 GPUs; system dgxh100_n64 has 8",
        ),
        ([{"names": [], "memory_gb": []}], "FAILED", "node0: 0 GPUs"),
        ([H100, {"names": ["NVIDIA A100-SXM4-80GB"] * 8, "memory_gb": [85.0] * 8}], "FAILED", "different models"),
        ([{"names": ["NVIDIA H200"] * 8, "memory_gb": [150.0] * 8}], "warning", "but the system's is H100"),
        ([{"names": H100["names"] * 2, "memory_gb": [85.0] * 16}], "warning", "of which 8 would be used"),
    ],
)
def test_devices(machines: Sequence[Any], outcome: str, phrase: str) -> None:
    place = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    finding = device_checks.as_the_system_says(
        place, [(f"node{number}", found) for number, found in enumerate(machines)]
    )
    assert (finding.outcome, phrase in finding.found) == (outcome, True), finding


@pytest.mark.parametrize(("slowest", "outcome"), [(700.0, "ok"), (650.0, "warning"), (600.0, "FAILED")])
def test_a_slow_device(slowest: float, outcome: str) -> None:
    measured = [("node0", dict.fromkeys(range(8), 700.0)), ("node1", {0: 705.0, 1: slowest})]
    finding = device_checks.alike_in_speed(alone(large(Path("run"))), measured)
    assert finding.outcome == outcome
    assert ("node1 GPU 1 has" in finding.found) == (outcome != "ok")
    capped = device_checks.alike_in_speed(alone(large(Path("run"))), [("node0", {0: 400.0})])
    assert (capped.outcome, "40% of the peak" in capped.found) == ("warning", True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_gpus_that_are_not_there_are_never_fine() -> None:
    place = dataclasses.replace(alone(large(Path("run"))), kind="cuda")
    for check in run_checks.CHECKS:
        if check.name in ("devices", "device memory", "products", "speed"):
            row = run_checks._row(check, place)
            assert row is not None
            assert row.outcome == "FAILED", row


def test_health() -> None:
    assert device_checks.judge_health("0, 0, No, No\n1, [N/A], No, No\n").outcome == "ok"
    finding = device_checks.judge_health("0, 0, No, No\n1, 3, Yes, No\n")
    assert finding.outcome == "FAILED"
    assert "GPU 1: ecc.errors.uncorrected.volatile.total 3, GPU 1: remapped_rows.pending Yes" in finding.found
    assert device_checks.judge_health("").outcome == "warning"


def test_one_wrong_number_in_a_product_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_checks.right_products(alone(None)).outcome == "ok"
    product = torch.Tensor.__matmul__

    def wrong(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        result = product(left, right)
        if result.dtype == torch.bfloat16:
            result[17, 5] += 1
        return result

    monkeypatch.setattr(torch.Tensor, "__matmul__", wrong)
    assert device_checks.right_products(alone(None)).outcome == "FAILED"


def test_links_and_clocks_that_stand_out() -> None:
    place: Any = dataclasses.replace(alone(None), kind="cuda", world=object())  # type: ignore[arg-type]
    near, far = world_checks.Timed(True, 300.0, "within a machine"), world_checks.Timed(True, 40.0, "between machines")
    links = [("a", near), ("b", far), ("c", far)]
    assert world_checks.links_alike(place, links).outcome == "ok"
    slow = ("d", world_checks.Timed(True, 10.0, "between machines"))
    finding = world_checks.links_alike(place, [*links, slow])
    assert (finding.outcome, finding.found.startswith("d receives 10.00 GB/s between machines")) == ("warning", True)
    assert world_checks.links_alike(dataclasses.replace(place, kind="cpu"), [*links, slow]).outcome == "ok"
    assert world_checks.links_alike(place, [("a", world_checks.Timed(False, 1.0, "x"))]).outcome == "FAILED"
    assert world_checks.right_sums(place, [("a", world_checks.Timed(False, 1.0))]).outcome == "FAILED"
    assert world_checks.clocks_agree(place, [("a", 100.0), ("b", 101.5), ("c", 100.2)]).found == "a is 1.5 s behind b"


def test_the_worst_of_several_is_named() -> None:
    fine, bad = CheckResult("ok", "fine"), CheckResult("FAILED", "broken", "mend it")
    assert worst(alone(None), [("a", fine), ("b", fine)]) == fine
    assert worst(alone(None), [("a", fine), ("b", bad)]) == CheckResult("FAILED", "b: broken", "mend it")
    many = [("a", fine), *((f"b{number}", bad) for number in range(5))]
    assert worst(alone(None), many).found == "b0: broken; b1: broken; b2: broken; and 2 more"


def _status(inputs: Inputs, run_dir: Path) -> int:
    return run_checks.run_checks(inputs.config(run_dir, system=PAIR), as_json=True)


def test_every_process_has_the_status(inputs: Inputs, tmp_path: Path) -> None:
    assert in_processes(2, _status, inputs, tmp_path / "run") == [0, 0]
    (tmp_path / "summary.json").touch()
    assert in_processes(2, _status, inputs, tmp_path) == [1, 1]


def _rows(inputs: Inputs, run_dir: Path) -> dict[str, Any]:
    """Rows as this rank sees them; also of a check that fails on rank 1, and of folders that are not shared."""
    config = inputs.config(run_dir, system=PAIR)
    rows = {}
    with run_checks._place(config) as place:

        def measure(place: Place) -> CheckResult:
            if place.environment.rank == 1:
                raise ValueError("no such thing")
            return CheckResult("ok", "fine")

        rows["raises"] = run_checks._row(PreflightCheck("raises", "", "process", measure), place)
        for name in ("all-reduce", "ring", "shared folder", "clocks"):
            rows[name] = run_checks._row(next(check for check in run_checks.CHECKS if check.name == name), place)
        world_checks.PATIENCE_S = 0.5
        own = run_dir / str(place.environment.rank)
        own.mkdir(parents=True)
        apart = dataclasses.replace(place, config=dataclasses.replace(config, run_dir=own))
        rows["apart"] = run_checks._row(PreflightCheck("apart", "", "process", world_checks.shared_folder), apart)
    return {name: row and dataclasses.asdict(row) for name, row in rows.items()}


def test_two_processes(inputs: Inputs, tmp_path: Path) -> None:
    rows, others = in_processes(2, _rows, inputs, tmp_path)
    assert set(others.values()) == {None}
    assert rows["raises"]["outcome"] == "FAILED"
    assert "rank 1: ValueError: no such thing" in rows["raises"]["found"]
    for name in ("all-reduce", "ring", "shared folder", "clocks"):
        assert rows[name]["outcome"] == "ok", rows[name]
    assert rows["apart"]["outcome"] == "FAILED"
    assert "is another folder than rank 0's" in rows["apart"]["found"]
    assert not list(tmp_path.rglob(".preflight-*"))


def test_a_process_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}.items():
        monkeypatch.setitem(os.environ, name, value)
    with (
        pytest.raises(InputError, match="not all 2 processes came to localhost"),
        joined_world(PAIR, read_environment(), timedelta(seconds=1)),
    ):
        pass
