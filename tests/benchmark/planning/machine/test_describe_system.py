"""What is read of a machine, and what is left for a person."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmark.commands.judge_commands import DescribeSystemCommand
from benchmark.config.description_fields import FIELDS, MARK, marked_fields
from benchmark.planning.machine.describe_system import describe_system, describe_this_machine
from foundation.errors import InputError
from tests.benchmark.training.machine import pynvml

ASKED_OF_A_PERSON = {"submitter", "division", "status", "system_name", "number_of_nodes", "cooling"}


def test_description_of_this_machine_has_every_field_and_says_which_are_left(tmp_path: Path) -> None:
    output = tmp_path / "system.json"
    told = describe_system(output)
    description = json.loads(output.read_text())
    assert list(description) == [field.name for field in FIELDS]
    left = marked_fields(description)
    assert set(left) >= ASKED_OF_A_PERSON
    assert f"{33 - len(left)} of 33 fields read, {len(left)} left for you" in told
    for name in left:
        assert f"  {name} " in told
    cores = int(description["host_processor_vcpu_count"]) * int(description["host_processors_per_node"])
    assert cores >= len(os.sched_getaffinity(0))
    assert description["framework"].startswith("PyTorch ")
    with pytest.raises(InputError, match="exists, perhaps filled in by hand; choose another --output or delete it"):
        DescribeSystemCommand(output).run()


def test_machine_with_gpus_and_without_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML answers, lscpu and lsblk are not there."""
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    monkeypatch.setenv("PATH", str(tmp_path))
    description = describe_this_machine()
    assert description["accelerators_per_node"] == "3"
    assert description["other_software_stack"]["nvidia_driver"] == "560.35.03"
    assert description["host_processor_model_name"].startswith(MARK)
