"""Conversion there and back: byte-equal to the reference's, in any blocks; bad sources are named; the small files."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from checkpoint_convert.conversion.paxml_to_megatron import open_paxml, paxml_to_megatron
from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.formats.source_files import LocalFiles
from checkpoint_convert.formats.step_files import adam_step, is_counter
from checksums.common_file import PARAM_GROUP
from checksums.folder_sums import digest_folder
from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list, read_list
from foundation.outputs.manifest import read_manifest
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import GIB, ODD, MakePaxml, opened, read, tiny_values, write_paxml
from tests.support import GOLDEN, SHARED_GOLDEN, golden, needs_shared

CASES = golden("convert.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bf16_base", "bf16_small", "fp32_sane"])
def test_files_are_those_of_the_reference(name: str, make_once: MakePaxml, tmp_path: Path) -> None:
    """The FP32 checkpoint is the BF16 one without the rounded weights: one conversion proves two cases."""
    case, output = CASES[name], tmp_path / "out"
    paxml_to_megatron(make_once(case["gen_paxml"]), output, dtype=case["dtype"], workers=2, memory_limit=GIB)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.bytes_version == 1  # raise it in Product when the recorded sums below have to change
    digests = digest_folder(output)
    assert digests.pop("common.pt")
    require_same(name, digests)
    if case["dtype"] == "bf16":
        kept = {path: md5 for path, md5 in digests.items() if not path.startswith(WEIGHTS)}
        fp32 = {path.replace(MASTER_WEIGHTS, WEIGHTS): md5 for path, md5 in kept.items()}
        require_same(name.replace("bf16", "fp32"), {path: fp32[path] for path in sorted(fp32)})


def require_same(name: str, digests: dict[str, str]) -> None:
    listing = format_list(digests)
    recorded = SHARED_GOLDEN / "convert" / f"convert_{name}.md5"
    if recorded.exists():  # says which file differs
        assert listing.splitlines() == recorded.read_text().splitlines()
    assert hashlib.md5(listing.encode()).hexdigest() == CASES[name]["md5_of_list"]


@pytest.mark.slow
def test_blocks_and_chunks_do_not_change_the_result(make_once: MakePaxml, tmp_path: Path) -> None:
    sizes = "--seed 4 --layers 1 --hidden 20 --heads 4 --vocab 208 --pos 208 --values zeros --compressor none"
    digests = []
    for chunks, workers, memory_limit in (("whole", 1, GIB), ("shard", 3, 400_000), ("odd", 1, 80_000)):
        output = tmp_path / chunks
        source = make_once(f"{sizes} --chunks {chunks}")
        paxml_to_megatron(source, output, dtype="bf16", workers=workers, memory_limit=memory_limit)
        digests.append({name: md5 for name, md5 in digest_folder(output).items() if name != "common.pt"})
    assert digests[0] == digests[1] == digests[2]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_command_writes_metadata_list_and_manifest(dtype: str, make_once: MakePaxml, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ["paxml-to-megatron", "--input", make_once(ODD), "--output", output, "--dtype", dtype, "--workers", 1]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "the input has no counter of Adam's steps, so common.pt says 4,000" in done.stdout
    assert (output / "metadata.json").read_bytes() == b'{"sharded_backend": "zarr"}'
    optimizer = torch.load(output / "common.pt", weights_only=True)["optimizer"]
    (group,) = (optimizer["optimizer"] if dtype == "bf16" else optimizer)["param_groups"]
    assert group == PARAM_GROUP
    assert read_list(tmp_path / "out.md5") == digest_folder(output)
    manifest = read_manifest(output)
    assert manifest is not None
    assert (manifest.options["dtype"], manifest.options["heads"]) == (dtype, 4)
    assert manifest.facts == {"adam_step": 4000, "has_counters": False, "zero_chunks": 0}
    assert len([path for path in output.iterdir() if path.is_dir()]) == (64 if dtype == "bf16" else 48)
    assert "already made" in run(*words).stdout


@pytest.mark.parametrize("step", [0, 192])
def test_the_step_is_that_of_the_counters(step: int, tmp_path: Path) -> None:
    axes = {"L": 1, "C": 3, "N": 1, "D": 5, "H": 5, "F": 20, "V": 10, "P": 4}
    source = write_paxml(tmp_path / "paxml", tiny_values(axes), axes, step=step)
    paxml_to_megatron(source, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert adam_step(tmp_path / "out") == step


def _drop_array(source: Path) -> None:
    shutil.rmtree(source / "opt_states_0.p#96#i-1_2.v.params.lm.transformer.repeat.sub.x_layers_0.layer_norm.bias")


def _change_metadata(source: Path, name: str, **fields: Any) -> None:
    path = source / name / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _change_value(source: Path, name: str, place: tuple[int, ...], value: float) -> None:
    opened(source / name)[place] = value


POST = "mdl_vars.params.lm.transformer.repeat.sub.x_layers_0.self_attention.post.w"
MOMENT = "opt_states_0.no_prefix_2.m.params.lm.final_ln.scale"
SECOND = "opt_states_0.no_prefix_2.v.params.lm.softmax.logits_ffn.linear.w"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_drop_array, "x_layers_0.layer_norm.bias: array is missing"),
        (lambda source: _change_metadata(source, POST, shape=[2, 36, 8, 9]), "axis N is 4 elsewhere"),
        (lambda source: _change_metadata(source, POST, shape=[2, 36, 4]), "x_layers_0.self_attention.post.w"),
        (
            lambda source: _change_metadata(source, MOMENT, shape=[64]),
            "shape [64] float32, expected [36] float32 like the",
        ),
        (
            lambda source: _change_metadata(source, MOMENT, dtype="<f8", fill_value=0.0),
            "shape [36] float64, expected [36] float32",
        ),
        (
            lambda source: (source / MOMENT / ".zarray").write_text("{"),
            "final_ln.scale/.zarray: Input data was",
        ),
        (lambda source: (source / MOMENT / "0").write_bytes(b"\x28\xb5"), "final_ln.scale: chunk 0 cannot be read"),
        (lambda source: (source / POST / "1.1.0.2").unlink(), "self_attention.post.w: chunk 1.1.0.2 is missing"),
        (lambda source: _change_value(source, POST, (1, 17, 2, 5), np.nan), "nan at [1, 17, 2, 5], in chunk [1, 1,"),
        (lambda source: _change_value(source, MOMENT, (31,), -np.inf), "-inf at [31], in chunk [2]"),
        (lambda source: _change_value(source, SECOND, (3, 4), -1e-9), "a negative second moment"),
    ],
)
def test_damaged_sources_are_named_and_nothing_is_published(
    damage: Any, complaint: str, make_once: MakePaxml, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(make_once(ODD), source)
    damage(source)
    with pytest.raises(InputError) as error:
        paxml_to_megatron(source, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert complaint in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"source", "out.partial"}


def step_of(folder: Path) -> int | None:
    return open_paxml(LocalFiles(folder)).adam_step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ("--seed 1 --layers 1 --hidden 20 --heads 4 --vocab 64 --pos 2048 --values edge --compressor gzip", "bf16"),
        ("--seed 2 --layers 2 --hidden 15 --heads 5 --vocab 102 --pos 20 --compressor none --chunks odd", "fp32"),
    ],
    ids=["edge", "odd"],
)
def test_there_and_back_is_the_same(arguments: str, dtype: str, make_once: MakePaxml, tmp_path: Path) -> None:
    source = make_once(arguments)
    paxml_to_megatron(source, tmp_path / "there", dtype=dtype, workers=2, memory_limit=GIB)
    words = ["megatron-to-paxml", "--input", tmp_path / "there", "--output", tmp_path / "back"]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (tmp_path / "back").iterdir())
    assert [name for name in written if not is_counter(name)] == sorted(path.name for path in source.iterdir())
    assert step_of(tmp_path / "back") == 4000
    for before, after in ((read(path), read(tmp_path / "back" / path.name)) for path in source.iterdir()):
        assert before[: len(after)].tobytes() == after.tobytes()
    assert "already made" in run(*words).stdout
    (tmp_path / "there.manifest.json").unlink()
    run(*words[:-1], tmp_path / "other").refused("--heads")


def test_what_is_not_whole_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    words = ["megatron-to-paxml", "--heads", 4, "--output", tmp_path / "out", "--input"]
    run(*words, tmp_path).refused("not a Megatron zarr checkpoint (no metadata.json in it)")
    run(*words, source, "--workers", 0).refused("--workers 0: expected 1 to 4096")
    (source / "common.pt").write_bytes(b"damaged")
    run(*words, source).refused("common.pt")
    assert not list(tmp_path.glob("out*"))  # it is told first
    (source / "common.pt").unlink()
    assert run(*words, source).returncode == 0
    assert step_of(tmp_path / "out") is None
    bias = "optimizer.state.fp32_from_fp16.language_model.encoder.final_layernorm.bias"
    (source / bias / "0").unlink()
    run(*words, source, "--force").refused(f"{bias}: chunk 0 is missing; convert the checkpoint again")


@needs_shared
def test_kept_generator_is_the_shared_one() -> None:
    assert (GOLDEN / "gen_paxml.py").read_bytes() == (SHARED_GOLDEN / "convert" / "gen_paxml.py").read_bytes()


def test_a_pipe_as_a_chunk_is_refused(tmp_path: Path) -> None:
    paxml = write_paxml(tmp_path / "paxml", tiny_values())
    chunk = paxml / "mdl_vars.params.lm.final_ln.scale" / "0"
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(InputError, match=r"final_ln\.scale/0: pipe, not a regular file"):
        paxml_to_megatron(paxml, tmp_path / "out", dtype="fp32", workers=1, memory_limit=GIB)
