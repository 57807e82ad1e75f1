"""A system of a user's own."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmark.config.system_config import Collectives, System, read_system, system_text
from benchmark.config.systems import SYSTEMS, system_called
from benchmark.submission.describe_system import describe_system
from stage.errors import InputError
from tests.benchmark.config.test_run_options import parsed

FILE = """nodes = 4
devices_per_node = 8
accelerator = "h200"
tensor_parallel = 4
pipeline_parallel = 8
recompute = "full"
"""


def test_a_file_is_a_system(tmp_path: Path) -> None:
    path = tmp_path / "my_cluster.toml"
    path.write_text(FILE)
    made = System("my_cluster", "cuda", 4, 8, 1, 4, 8, recompute="full", accelerator="H200")
    assert system_called(str(path)) == made
    assert parsed("gpt3_175b", "--system", str(path), "--micro-batch-size", "2").system.micro_batch_size == 2
    assert system_called("h200_n8") is SYSTEMS["h200_n8"]


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=str)
@pytest.mark.parametrize("collectives", [Collectives(), Collectives(8, True, "all", 4), Collectives(sm_carveout=8)])
def test_a_system_is_written_as_it_is_read(system: System, collectives: Collectives, tmp_path: Path) -> None:
    if system.device == "cuda":
        system = replace(system, collectives=collectives)
    path = tmp_path / f"{system.name}.toml"
    path.write_text(system_text(system))
    assert read_system(path) == system


def test_collectives_are_options_too() -> None:
    words = "--nccl-ctas 8 --nccl-priority --copy-engines gathers --sm-carveout 4"
    chosen = parsed("gpt3_175b", *words.split()).system.collectives
    assert (chosen, chosen.words) == (Collectives(8, True, "gathers", 4), words)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("nodes = 4", "nodes = ", "my_cluster.toml: Invalid value"),
        ("nodes = 4", "", "missing required field `nodes`"),
        ("nodes = 4", 'nodes = "4"', r"Expected `int`, got `str` - at `\$.nodes`"),
        ("nodes = 4", "nodes = 3", "my_cluster.toml: tensor_parallel 4 x pipeline_parallel 8 do not divide 24 devices"),
        ("nodes", "machines", "machines: no field of a system"),
        ("h200", "Z80", "my_cluster.toml: accelerator Z80: unknown"),
        ('"full"', '"some"', "Invalid enum value 'some'"),
        ('"full"', '"full"\n[collectives]\nnccl_cta = 8', "nccl_cta: no field of a system"),
        ('"full"', '"full"\n[collectives]\nnccl_ctas = 0', "nccl_ctas 0: expected at least 1; change --nccl-ctas"),
        ('"full"', '"full"\n[collectives]\ncopy_engines = "most"', "Invalid enum value 'most'"),
        ('"full"', '"full"\ncollectives = 8', r"Expected `object`, got `int` - at `\$.collectives`"),
    ],
)
def test_what_is_no_system(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "my_cluster.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(InputError, match=complaint):
        read_system(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: No such file"):
        system_called(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="did you mean h200_n8"):
        system_called("h200_n9")


def test_the_hardware_part_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    assert describe_system(path) == f"{path}: for --system; add nodes and the layout"
    assert read_system(path).nodes == 1
