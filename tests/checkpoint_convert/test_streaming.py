"""Blocks, the journal, both directions: whatever the cut and whatever happens on the way, the same bytes."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint_convert.conversion.blocks import Side, cut
from checkpoint_convert.conversion.conversion_plan import plan_paxml_to_megatron
from checkpoint_convert.conversion.journal import Journal
from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.formats.array_table import ARRAYS, chunk_shape
from checksums.md5_list import digest_folder, read_list
from stage.errors import InputError
from tests.support import REPOSITORY, assert_refused, command, make_paxml

GIB = 1 << 30


def read(path: Path) -> np.ndarray[Any, Any]:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}
    array: np.ndarray[Any, Any] = ts.open(spec).result().read().result()
    return array


SIZES = st.fixed_dictionaries(
    {"L": st.integers(1, 5), "C": st.just(3), "N": st.integers(1, 5), "D": st.integers(1, 6), "V": st.integers(1, 40)}
)


@settings(max_examples=300, deadline=None)
@given(SIZES, st.data())
def test_blocks_cover_every_output_chunk_once(sizes: dict[str, int], data: st.DataObject) -> None:
    sizes = {**sizes, "H": sizes["N"] * sizes["D"], "F": 4 * sizes["N"] * sizes["D"], "P": 7}
    array = data.draw(st.sampled_from(ARRAYS))
    shapes = {"paxml": array.paxml_shape(sizes), "megatron": array.megatron_shape(sizes)}
    sides = {
        "paxml": Side(array.paxml_groups(), tuple(data.draw(st.integers(1, n)) for n in shapes["paxml"])),
        "megatron": Side(array.megatron_groups(), chunk_shape(shapes["megatron"])),
    }
    source, target = data.draw(st.permutations(["paxml", "megatron"]))
    sides[target] = Side(sides[target].groups, chunk_shape(shapes[target]))
    most = data.draw(st.integers(0, 5000))
    chosen = cut(sizes, sides[source], sides[target], most_items=most, comfortable_items=data.draw(st.integers(0, 900)))
    assert chosen.block_items <= most or chosen.block == chosen.unit
    keys = []
    for block in chosen.blocks():
        covered = math.prod(part.stop - part.start for part in chosen.merged(block, sides[source]))
        assert covered == math.prod(part.stop - part.start for part in block)
        for unit in chosen.units(block):
            for key, within in chosen.files(unit):
                keys.append(key)
                extent = [part.stop - part.start for part in within]
                assert extent == list(sides[target].chunks)
    grid = [n // chunk for n, chunk in zip(shapes[target], sides[target].chunks, strict=True)]
    assert sorted(keys) == sorted(".".join(map(str, index)) for index in np.ndindex(*grid))


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paxml") / "checkpoint"
    write_random_paxml(folder, seed=1, sizes=ModelSizes(layers=6, hidden=256, heads=4, vocab=1024))
    return folder


@pytest.fixture(scope="module")
def expected(paxml: Path) -> dict[str, str]:
    output = paxml.parent / "expected"
    paxml_to_megatron(paxml, output, dtype="bf16", workers=1, memory_limit=GIB)
    return read_list(output.with_name("expected.md5"))


def convert_command(paxml: Path, output: Path, *more: object) -> list[str]:
    arguments = ["--input", paxml, "--output", output, "--dtype", "bf16", *more]
    return [sys.executable, "-m", "checkpoint_convert", "paxml-to-megatron", *map(str, arguments)]


def test_list_is_that_of_the_files(paxml: Path, expected: dict[str, str]) -> None:
    assert expected == digest_folder(paxml.parent / "expected")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_killed_and_run_again(share: float, paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    output, journal = tmp_path / "out", tmp_path / "out.journal"
    process = subprocess.Popen(convert_command(paxml, output), cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        if journal.exists() and journal.read_text().count("\n") > share * len(expected):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    assert process.wait() == -signal.SIGKILL
    assert not output.exists()
    noted = journal.read_text().count("\n") - 1
    with journal.open("a") as file:
        file.write("0123456789abcdef 12 a line that the kill has cut sh")
    other_cut = ["--workers", 1, "--memory-limit", "20MB", "--json"]
    done = subprocess.run(convert_command(paxml, output, *other_cut), cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["resumed_files"] == noted
    found = digest_folder(output)
    assert {name: md5 for name, md5 in found.items() if name != "common.pt"} == {
        name: md5 for name, md5 in expected.items() if name != "common.pt"
    }
    assert read_list(tmp_path / "out.md5") == found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.manifest.json", "out.md5"]


def test_a_file_that_was_lost_is_written_again(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "source"
    subprocess.run(["cp", "-r", paxml, broken], check=True)
    last = broken / "opt_states_0.p#96#i-1_2.v.params.lm.transformer.repeat.sub.x_layers_0.ff_layer.ffn_layer2.bias.b"
    (last / "0.0").write_bytes(b"damaged")
    with pytest.raises(InputError, match="a chunk cannot be read"):
        paxml_to_megatron(broken, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    files = sorted((tmp_path / "out.partial").glob("language_model.encoder.layers.mlp.dense_h_to_4h.weight/*"))
    files[3].unlink()
    files[5].write_bytes(files[5].read_bytes()[:-100])
    stat = (paxml / last.name / "0.0").stat()
    (last / "0.0").write_bytes((paxml / last.name / "0.0").read_bytes())
    os.utime(last / "0.0", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    converted = paxml_to_megatron(broken, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert converted is not None
    found = read_list(tmp_path / "out.md5")
    assert {**found, "common.pt": ""} == {**expected, "common.pt": ""}
    assert digest_folder(tmp_path / "out") == found


def test_a_journal_of_something_else_is_not_used(paxml: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial" / "language_model.embedding.word_embeddings.weight").mkdir(parents=True)
    (tmp_path / "out.journal").write_text('{"stage": "paxml-to-megatron"}\n0123 4 language_model.x/0.0\n')
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="fp32", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files == 0


def test_disk_full_leaves_what_can_be_continued(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    words = " ".join(convert_command(paxml, tmp_path / "out"))
    limited = ["bash", "-c", f"ulimit -f 30; exec {words}"]  # no file above 30 KiB: not the position table
    done = subprocess.run(limited, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert_refused(done, "make room and run the command again")
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.journal").exists()
    converted = paxml_to_megatron(paxml, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB)
    assert converted is not None
    assert converted.resumed_files > 0
    assert {**read_list(tmp_path / "out.md5"), "common.pt": ""} == {**expected, "common.pt": ""}


def test_two_at_once_are_refused(paxml: Path, tmp_path: Path) -> None:
    first = Journal(tmp_path / "out.journal", tmp_path / "out.partial", {})
    second = subprocess.run(convert_command(paxml, tmp_path / "out"), cwd=REPOSITORY, capture_output=True, text=True)
    assert_refused(second, "another conversion is writing it")
    first.close()


@pytest.mark.parametrize(
    "arguments",
    [
        "--seed 1 --layers 4 --hidden 256 --heads 8 --vocab 512 --pos 2048 --values edge --compressor gzip",
        "--seed 2 --layers 3 --hidden 200 --heads 5 --vocab 1002 --pos 100 --compressor none --chunks odd",
        "--seed 3 --layers 1 --hidden 24 --heads 3 --vocab 208 --pos 2060 --values zeros --compressor none",
    ],
)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_there_and_back_is_the_same(arguments: str, dtype: str, tmp_path: Path) -> None:
    source = make_paxml(tmp_path / "source", arguments)
    paxml_to_megatron(source, tmp_path / "there", dtype=dtype, workers=2, memory_limit=GIB)
    done = command(
        "checkpoint_convert", "megatron-to-paxml", "--input", tmp_path / "there", "--output", tmp_path / "back"
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in source.iterdir())
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == names
    for name in names:
        before, after = read(source / name), read(tmp_path / "back" / name)
        assert before[: len(after)].tobytes() == after.tobytes(), name
    again = megatron_to_paxml(tmp_path / "there", tmp_path / "back", heads=None, workers=1, memory_limit=GIB)
    assert again is None
    (tmp_path / "there.manifest.json").unlink()
    arguments_without = ["--input", tmp_path / "there", "--output", tmp_path / "other"]
    assert_refused(command("checkpoint_convert", "megatron-to-paxml", *arguments_without), "--heads")


def test_plan_of_the_benchmarks_checkpoint() -> None:
    plans = {
        name: plan_paxml_to_megatron(None, dtype=name, workers=2, memory_limit=8 * GIB) for name in ("fp32", "bf16")
    }
    assert sum(plan.output_files for plan in plans["fp32"]) == 92_640
    assert sum(plan.output_files for plan in plans["bf16"]) == 123_520
    assert sum(plan.output_bytes for plan in plans["fp32"]) == 3 * 4 * 174_615_846_912
    assert all(plan.passes == 1 and plan.peak_bytes <= 8 * GIB for plan in plans["bf16"])
    tight = plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=2 * GIB)
    assert all(plan.passes >= 1 and plan.peak_bytes <= 2 * GIB for plan in tight)
    with pytest.raises(InputError, match="--memory-limit is too small"):
        plan_paxml_to_megatron(None, dtype="bf16", workers=2, memory_limit=GIB // 4)


def test_plan_is_what_is_done(paxml: Path, expected: dict[str, str], tmp_path: Path) -> None:
    arguments = ["--input", paxml, "--output", tmp_path / "out", "--dtype", "bf16", "--plan"]
    done = command("checkpoint_convert", "paxml-to-megatron", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"{len(expected):,} files" in done.stdout
    assert list(tmp_path.iterdir()) == []
