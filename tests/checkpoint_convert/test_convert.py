"""Conversion: byte-equal to the reference's, in any blocks; bad sources; the small files; loading."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import torch

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.array_table import ARRAYS, EXP_AVG, MASTER_WEIGHTS, WEIGHTS, chunk_shape
from checkpoint_convert.formats.common_files import adam_step
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from checksums.md5_list import digest_folder, format_list, read_list
from stage.errors import InputError
from stage.manifest import read_manifest
from tests.support import GOLDEN, SHARED_GOLDEN, assert_refused, command, golden, make_paxml, needs_shared

CASES = golden("convert.json")
GIB = 1 << 30


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Make (once) the PAXML checkpoint that these arguments of gen_paxml.py describe."""
    made: dict[str, Path] = {}

    def make(arguments: str) -> Path:
        if arguments not in made:
            made[arguments] = make_paxml(tmp_path_factory.mktemp("paxml") / "checkpoint", arguments)
        return made[arguments]

    return make


TINY = "--seed 3 --layers 2 --hidden 32 --heads 4 --vocab 64 --pos 2060 --values sane --compressor zstd --chunks odd"


def read(path: Path) -> np.ndarray[Any, Any]:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}}
    array: np.ndarray[Any, Any] = ts.open(spec).result().read().result()
    return array


@pytest.mark.parametrize("name", CASES)
def test_files_are_those_of_the_reference(name: str, paxml: Any, tmp_path: Path) -> None:
    case = CASES[name]
    output = tmp_path / "out"
    paxml_to_megatron(paxml(case["gen_paxml"]), output, dtype=case["dtype"], workers=2, memory_limit=GIB)
    digests = digest_folder(output)
    assert digests.pop("common.pt")
    listing = format_list(digests)
    recorded = SHARED_GOLDEN / "convert" / f"convert_{name}.md5"
    if recorded.exists():  # says which file differs
        assert listing.splitlines() == recorded.read_text().splitlines()
    assert hashlib.md5(listing.encode()).hexdigest() == case["md5_of_list"]


def test_blocks_and_chunks_do_not_change_the_result(paxml: Any, tmp_path: Path) -> None:
    sizes = "--seed 4 --layers 3 --hidden 24 --heads 3 --vocab 208 --pos 100 --values zeros --compressor none"
    digests = []
    for chunks, workers, memory_limit in (("whole", 1, GIB), ("shard", 3, 400_000), ("odd", 1, 80_000)):
        output = tmp_path / chunks
        source = paxml(f"{sizes} --chunks {chunks}")
        paxml_to_megatron(source, output, dtype="bf16", workers=workers, memory_limit=memory_limit)
        digests.append({name: md5 for name, md5 in digest_folder(output).items() if name != "common.pt"})
    assert digests[0] == digests[1] == digests[2]


def test_values_are_where_the_table_says(paxml: Any, tmp_path: Path) -> None:
    source = paxml(TINY)
    paxml_to_megatron(source, tmp_path / "out", dtype="bf16", workers=2, memory_limit=GIB)
    block = "mdl_vars.params.lm.transformer.repeat.sub.x_layers_0."
    qkv = read(source / f"{block}self_attention.combined_qkv.w")  # [L, 3, H, N, D]
    name = "language_model.encoder.layers.self_attention.query_key_value.weight"
    master = read(tmp_path / "out" / f"optimizer.state.fp32_from_fp16.{name}")
    weights = read(tmp_path / "out" / name)
    for head, which, dimension in ((0, 0, 0), (2, 1, 5), (3, 2, 7)):
        row = head * 3 * 8 + which * 8 + dimension
        np.testing.assert_array_equal(master[1, row], qkv[1, which, :, head, dimension])
    np.testing.assert_array_equal(weights, master.astype(weights.dtype))
    positions = read(tmp_path / "out" / "language_model.embedding.position_embeddings.weight")
    assert positions.shape == (2048, 32)


def test_chunks_follow_the_references_rule() -> None:
    assert chunk_shape((51200, 12288)) == (6400, 1536)
    assert chunk_shape((96, 36864, 12288)) == (1, 4608, 1536)
    assert chunk_shape((12288,)) == (1536,)
    assert chunk_shape((200,)) == (1,)
    assert chunk_shape((1002, 200)) == (1002, 25)


def test_table_has_the_benchmarks_shapes() -> None:
    sizes = {"L": 96, "C": 3, "N": 96, "D": 128, "H": 12288, "F": 49152, "V": 51200, "P": 16384}
    shapes = {array.megatron.removeprefix("encoder.layers."): array.megatron_shape(sizes) for array in ARRAYS}
    assert shapes["self_attention.query_key_value.weight"] == (96, 36864, 12288)
    assert shapes["self_attention.dense.weight"] == (96, 12288, 12288)
    assert shapes["mlp.dense_4h_to_h.weight"] == (96, 12288, 49152)
    assert shapes["embedding.position_embeddings.weight"] == (2048, 12288)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 174_615_846_912


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_command_writes_metadata_list_and_manifest(dtype: str, paxml: Any, tmp_path: Path) -> None:
    output = tmp_path / "out"
    arguments = ["--input", paxml(TINY), "--output", output, "--dtype", dtype, "--workers", 1, "--memory-limit", "1GiB"]
    done = command("checkpoint_convert", "paxml-to-megatron", *arguments)
    assert done.returncode == 0, done.stderr
    assert (output / "metadata.json").read_bytes() == b'{"sharded_backend": "zarr"}'
    optimizer = torch.load(output / "common.pt", weights_only=True)["optimizer"]
    (group,) = (optimizer["optimizer"] if dtype == "bf16" else optimizer)["param_groups"]
    assert group == {
        "wd_mult": 1.0,
        "lr_mult": 1.0,
        "lr": 5.984178321979609e-05,
        "bias_correction": True,
        "betas": [0.9, 0.95],
        "eps": 1e-08,
        "weight_decay": 0.1,
        "step": 4000,
    }
    assert adam_step(output) == 4000
    assert read_list(tmp_path / "out.md5") == digest_folder(output)
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.options == {"dtype": dtype, "heads": 4}
    assert len([path for path in output.iterdir() if path.is_dir()]) == (64 if dtype == "bf16" else 48)
    again = command("checkpoint_convert", "paxml-to-megatron", *arguments)
    assert (again.returncode, "already made" in again.stdout) == (0, True)


def _drop_array(source: Path) -> None:
    shutil.rmtree(source / "opt_states_0.p#96#i-1_2.v.params.lm.transformer.repeat.sub.x_layers_0.layer_norm.bias")


def _change_metadata(source: Path, name: str, **fields: Any) -> None:
    path = source / name / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def _change_value(source: Path, name: str, place: tuple[int, ...], value: float) -> None:
    ts.open({"driver": "zarr", "kvstore": {"driver": "file", "path": str(source / name)}}).result()[place] = value


POST = "mdl_vars.params.lm.transformer.repeat.sub.x_layers_0.self_attention.post.w"
MOMENT = "opt_states_0.no_prefix_2.m.params.lm.final_ln.scale"
SECOND = "opt_states_0.no_prefix_2.v.params.lm.softmax.logits_ffn.linear.w"


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_drop_array, "x_layers_0.layer_norm.bias: array is missing"),
        (lambda source: _change_metadata(source, POST, shape=[2, 32, 8, 8]), "axis N is 4 in other arrays"),
        (lambda source: _change_metadata(source, POST, shape=[2, 32, 4]), "x_layers_0.self_attention.post.w"),
        (lambda source: _change_metadata(source, MOMENT, shape=[64]), "shape [64], expected [32] like the weights"),
        (
            lambda source: _change_metadata(source, MOMENT, dtype="<f8", fill_value=0.0),
            "dtype float64, expected float32",
        ),
        (lambda source: (source / MOMENT / ".zarray").write_text("{"), "final_ln.scale: not a zarr array"),
        (lambda source: (source / MOMENT / "0").write_bytes(b"\x28\xb5"), "final_ln.scale: a chunk cannot be read"),
        (lambda source: (source / POST / "1.1.0.2").unlink(), "self_attention.post.w: chunk 1.1.0.2 is missing"),
        (lambda source: _change_value(source, POST, (1, 17, 2, 5), np.nan), "nan at [1, 17, 2, 5], in chunk [1, 1,"),
        (lambda source: _change_value(source, MOMENT, (31,), -np.inf), "-inf at [31], in chunk [2]"),
        (lambda source: _change_value(source, SECOND, (3, 4), -1e-9), "a negative second moment"),
    ],
)
def test_damaged_sources_are_named_and_nothing_is_published(
    damage: Any, complaint: str, paxml: Any, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(paxml(TINY), source)
    damage(source)
    with pytest.raises(InputError) as error:
        paxml_to_megatron(source, tmp_path / "out", dtype="bf16", workers=1, memory_limit=GIB)
    assert complaint in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"source", "out.partial", "out.journal"}


def test_bad_usage_is_refused(paxml: Any, tmp_path: Path) -> None:
    good = {"--input": paxml(TINY), "--output": tmp_path / "out", "--dtype": "bf16"}
    for change, complaint in (
        ({"--input": tmp_path / "none"}, "no such folder"),
        ({"--dtype": "fp16"}, "--dtype"),
        ({"--memory-limit": "lots"}, "expected a size such as 8GiB"),
        ({"--memory-limit": "1KB"}, "--memory-limit is too small"),
        ({"--workers": 0}, "--workers 0: expected at least 1"),
    ):
        words = [word for pair in {**good, **change}.items() for word in pair]
        assert_refused(command("checkpoint_convert", "paxml-to-megatron", *words), complaint)
        assert list(tmp_path.iterdir()) == []


def test_random_checkpoint_depends_on_the_seed_alone(tmp_path: Path) -> None:
    sizes = ["--layers", 2, "--hidden", 16, "--heads", 2, "--vocab", 64]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = command("checkpoint_convert", "random-paxml", "--output", tmp_path / name, "--seed", seed, *sizes)
        assert done.returncode == 0, done.stderr
    assert digest_folder(tmp_path / "a") == digest_folder(tmp_path / "b") != digest_folder(tmp_path / "c")
    moments = [
        path for path in (tmp_path / "a").iterdir() if path.name.startswith("opt_states_0") and "_2.v." in path.name
    ]
    assert len(moments) == 16
    assert all((read(path) >= 0).all() for path in moments)


@pytest.fixture(scope="module")
def converted(paxml: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("converted") / "out"
    paxml_to_megatron(paxml(TINY), output, dtype="bf16", workers=1, memory_limit=GIB)
    return output


def test_loading_reads_master_weights_and_moments(converted: Path) -> None:
    checkpoint = MegatronCheckpoint(converted)
    name, array = "encoder.layers.1.mlp.dense_h_to_4h.weight", "encoder.layers.mlp.dense_h_to_4h.weight"
    weight, exp_avg, exp_avg_sq = torch.zeros(128, 32), torch.zeros(128, 32), torch.zeros(128, 32)
    checkpoint.load_weights({name: weight})
    checkpoint.load_moments({name: exp_avg}, {name: exp_avg_sq})
    np.testing.assert_array_equal(weight.numpy(), read(converted / (MASTER_WEIGHTS + array))[1])
    np.testing.assert_array_equal(exp_avg.numpy(), read(converted / (EXP_AVG + array))[1])
    assert (exp_avg_sq >= 0).all()


def test_loading_an_fp32_checkpoint_reads_its_weights(paxml: Any, tmp_path: Path) -> None:
    paxml_to_megatron(paxml(TINY), tmp_path / "out", dtype="fp32", workers=1, memory_limit=GIB)
    gain = torch.zeros(32)
    MegatronCheckpoint(tmp_path / "out").load_weights({"encoder.final_layernorm.weight": gain})
    np.testing.assert_array_equal(gain.numpy(), read(tmp_path / "out" / f"{WEIGHTS}encoder.final_layernorm.weight"))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("embedding.word_embeddings.weight", (128, 32)),  # more rows than stored
        ("embedding.word_embeddings.weight", (32, 32)),  # fewer: the reference truncates (docs/facts/reference.md f.4)
        ("encoder.layers.2.input_layernorm.bias", (32,)),  # no third layer
        ("encoder.layers.0.input_layernorm.bias", (64,)),
    ],
)
def test_loading_into_another_model_is_refused(name: str, shape: tuple[int, ...], converted: Path) -> None:
    with pytest.raises(InputError, match="the checkpoint belongs to another model"):
        MegatronCheckpoint(converted).load_weights({name: torch.zeros(shape)})


def test_loading_a_truncated_chunk_is_refused(converted: Path, tmp_path: Path) -> None:
    shutil.copytree(converted, tmp_path / "copy")
    (tmp_path / "copy" / f"{MASTER_WEIGHTS}embedding.word_embeddings.weight" / "0.0").write_bytes(b"short")
    with pytest.raises(InputError, match="a chunk cannot be read"):
        MegatronCheckpoint(tmp_path / "copy").load_weights({"embedding.word_embeddings.weight": torch.zeros(64, 32)})


def test_loading_from_something_else_is_refused(converted: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no metadata\.json"):
        MegatronCheckpoint(tmp_path)
    shutil.copytree(converted, tmp_path / "copy")
    (tmp_path / "copy" / "common.pt").write_bytes(b"not a zip file")
    with pytest.raises(InputError, match=r"not a checkpoint's common\.pt"):
        MegatronCheckpoint(tmp_path / "copy").adam_step()
    (tmp_path / "copy" / "common.pt").unlink()
    assert MegatronCheckpoint(tmp_path / "copy").adam_step() is None


@needs_shared
def test_kept_generator_is_the_shared_one() -> None:
    assert (GOLDEN / "gen_paxml.py").read_bytes() == (SHARED_GOLDEN / "convert" / "gen_paxml.py").read_bytes()
