"""Export to Hugging Face: the same logits as our model, from a converted checkpoint and from a run's own."""

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sentencepiece import SentencePieceProcessor

from checkpoint_convert.export.to_huggingface import file_parts, huggingface_tensors, to_huggingface
from checkpoint_convert.formats.array_table import MASTER_WEIGHTS
from checkpoint_convert.formats.distributed_checkpoint import dcp_arrays
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from foundation.errors import InputError
from foundation.outputs.manifest import require_intact
from model.gpt3 import GPT3
from tests.checkpoint_convert.export.sentencepiece_models import model_bytes
from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import AXES, CONFIG


def largest_difference(ours: GPT3, folder: Path) -> float:
    """Return how far the logits of our model and those that transformers computes from ``folder`` are apart."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    assert theirs.dtype == torch.float32
    size = (3, ours.sizes.seq_length)
    tokens = torch.randint(0, ours.sizes.padded_vocab_size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = ours(tokens), theirs(tokens).logits
    assert found.shape == expected.shape == (*size, ours.sizes.padded_vocab_size)
    assert expected.std() > 0.1
    return float((found - expected).abs().max())


@pytest.mark.slow  # importing transformers takes several seconds: hence all of it in one test
def test_logits_are_those_of_our_model(megatron: dict[str, Path], trained: Path, tmp_path: Path) -> None:
    ours = GPT3(CONFIG)
    MegatronCheckpoint(megatron["fp32"]).load_weights(dict(ours.named_parameters()))
    for dtype in ("fp32", "bf16"):
        to_huggingface(megatron[dtype], tmp_path / dtype, heads=4)
        assert largest_difference(ours, tmp_path / dtype) < 1e-4, dtype
    bf16_and_tokenizer_are_as_they_should_be(ours, megatron["bf16"], tmp_path)
    to_huggingface(trained, tmp_path / "run", heads=None)
    stored, model = dcp_arrays(trained), GPT3(CONFIG)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.from_numpy(stored[f"model/{name}"].read(tuple(slice(0, size) for size in value.shape))))
    assert largest_difference(model, tmp_path / "run") < 1e-4


def bf16_and_tokenizer_are_as_they_should_be(ours: GPT3, source: Path, tmp_path: Path) -> None:
    """Check weights rounded to BF16, a tokenizer with SentencePiece's ids, and a continuation of a text."""
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.model").write_bytes(
        model_bytes(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)  # fewer pieces than the model has rows
    )
    out = tmp_path / "bf16_out"
    words = ["--input", source, "--output", out, "--dtype", "bf16", "--heads", 4]
    done = run("to-huggingface", *words, "--tokenizer", tmp_path / "tokenizer.model")
    assert done.returncode == 0, done.stderr
    theirs = transformers.GPT2LMHeadModel.from_pretrained(out)
    assert theirs.dtype == torch.bfloat16
    weights = dict(ours.named_parameters())
    assert torch.equal(theirs.transformer.wte.weight, weights["embedding.word_embeddings.weight"].bfloat16())
    gain = 1 + weights["encoder.layers.1.input_layernorm.weight"].detach()
    assert torch.equal(theirs.transformer.h[1].ln_1.weight, gain.bfloat16())
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    ids = tokenizer("seen on the road", return_tensors="pt").input_ids
    spm = SentencePieceProcessor(model_file=str(out / "sentencepiece.model"))
    assert ids[0].tolist() == spm.encode("seen on the road")
    longer = theirs.generate(ids, max_new_tokens=5)
    assert torch.equal(longer[:, : ids.shape[1]], ids)
    assert (theirs.generation_config.eos_token_id, theirs.generation_config.do_sample) == (1, False)


def test_a_tokenizer_of_another_model_is_refused(megatron: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.model"):
        to_huggingface(megatron["fp32"], tmp_path / "out", heads=4, tokenizer=path)
    path.write_bytes(model_bytes(vocab_size=300, byte_fallback=True))
    with pytest.raises(InputError, match="pieces, but the model has 208 rows; it is another's"):
        to_huggingface(megatron["fp32"], tmp_path / "out", heads=4, tokenizer=path)
    assert not (tmp_path / "out").exists()


def test_several_files_hold_the_same_tensors_as_one(megatron: dict[str, Path], tmp_path: Path) -> None:
    to_huggingface(megatron["fp32"], tmp_path / "one", heads=4)
    to_huggingface(megatron["fp32"], tmp_path / "many", heads=4, file_bytes=100_000)
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "many").glob("*.safetensors"))
    assert files == [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    assert len(files) > 2
    assert run("compare", tmp_path / "one", tmp_path / "many").returncode == 0  # which reads the index, too
    whole = load_file(tmp_path / "one" / "model.safetensors")
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in whole.values())


def test_a_file_is_full_or_holds_one_larger_tensor() -> None:
    sizes, tensors = {**AXES, "H": 2, "N": 1, "D": 2, "F": 30, "V": 5, "P": 1}, list(huggingface_tensors("gpt3", 1))
    found = list(file_parts(tensors, sizes, 15))
    assert [tensor for part in found for tensor in part] == tensors
    of_parts = [[math.prod(tensor.shape(sizes)) for tensor in part] for part in found]
    assert all(sum(part) <= 15 or len(part) == 1 for part in of_parts)
    assert all(sum(part) + following[0] > 15 for part, following in pairwise(of_parts))


def test_command_writes_configuration_sums_and_manifest(megatron: dict[str, Path], tmp_path: Path) -> None:
    words = ["to-huggingface", "--input", megatron["bf16"], "--output", tmp_path / "out"]
    run(*words).refused("pass --heads (hidden size 36)")
    run(*words, "--heads", 5).refused("--heads 5: does not divide the hidden size 36")
    done = run(*words, "--heads", 4)
    assert (done.returncode, done.stderr) == (0, "")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    expected: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 36, "n_inner": 144, "n_positions": 208}
    expected |= {"vocab_size": 208, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_ctx": 208}
    expected |= {"bos_token_id": None, "eos_token_id": 1, "torch_dtype": "float32", "tie_word_embeddings": True}
    assert config.items() >= expected.items()
    assert run("verify", tmp_path / "out", "--manifest", tmp_path / "out.md5").returncode == 0
    manifest = require_intact(tmp_path / "out")
    assert manifest is not None
    assert manifest.options == {"heads": 4, "dtype": "fp32", "file_bytes": 5 * 10**9}
    assert "already made" in run(*words, "--heads", 4).stdout


def test_extra_arrays_are_told_and_left_out(megatron: dict[str, Path], tmp_path: Path) -> None:
    source = shutil.copytree(megatron["fp32"], tmp_path / "source")
    shutil.copytree(source / "language_model.encoder.final_layernorm.bias", source / "scaler.scale")
    done = run("to-huggingface", "--input", source, "--output", tmp_path / "out", "--heads", 4)
    assert done.returncode == 0
    assert done.stderr == f"{source}: left out, for the model has no such array: scaler.scale\n"


def _empty_files(step: Path) -> None:
    for path in step.glob("*.distcp"):
        path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda step: (step.parents[1] / "config.json").write_text("{}"), "it is not a run's configuration"),
        (_empty_files, "cannot be read"),
        (lambda step: (step / ".metadata").write_bytes(b"\x80\x04"), ".metadata: not the metadata of"),
        (lambda step: (step / ".metadata").write_bytes(b"cos\nsystem\n(S'true'\ntR."), "names os.system"),
        (lambda step: (step / ".metadata").unlink(), "no .metadata of a PyTorch distributed checkpoint"),
        (shutil.rmtree, "; beside it lie step_00000006"),
    ],
)
def test_damaged_run_checkpoints_are_refused(damage: Any, complaint: str, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained.parents[1], tmp_path / "run")
    step = tmp_path / "run" / "checkpoints" / trained.name
    shutil.copytree(step, step.with_name("step_00000006"))
    damage(step)
    with pytest.raises(InputError) as error:
        to_huggingface(step, tmp_path / "out", heads=None)
    assert complaint in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _drop_masters(source: Path) -> None:
    for path in source.glob(f"{MASTER_WEIGHTS}*"):
        shutil.rmtree(path)


LAST_BIAS = f"{MASTER_WEIGHTS}encoder.layers.mlp.dense_4h_to_h.bias"


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda source: shutil.rmtree(source / LAST_BIAS), "dense_4h_to_h.bias is missing"),
        (_drop_masters, "bfloat16, expected float32"),
        (
            lambda source: (source / LAST_BIAS / "1.0").unlink(),
            "encoder.layers.mlp.dense_4h_to_h.bias: 1 chunks have no file",
        ),
        (lambda source: (source / LAST_BIAS / "1.0").write_bytes(b"short"), "chunk 1.0 cannot be read"),
        (lambda source: (source / "metadata.json").unlink(), "zarr, expected a Megatron zarr checkpoint"),
    ],
)
def test_damaged_zarr_checkpoints_are_refused(
    damage: Any, complaint: str, megatron: dict[str, Path], tmp_path: Path
) -> None:
    source = shutil.copytree(megatron["bf16"], tmp_path / "source")
    damage(source)
    with pytest.raises(InputError) as error:
        to_huggingface(source, tmp_path / "out", heads=4)
    assert complaint in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
