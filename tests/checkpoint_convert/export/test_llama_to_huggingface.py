"""A run's checkpoint of Llama 3.1 as Hugging Face's LlamaForCausalLM: by the command, with the same logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint_convert.export.huggingface_forms import FORMS
from checkpoint_convert.export.to_huggingface import to_huggingface
from foundation.errors import InputError
from model import kernels, llama31
from model.llama31 import Llama31
from model.llama31_config import Llama31Config
from tests.checkpoint_convert.checkpoints import write_dcp
from tests.checkpoint_convert.in_process import run

SIZES = Llama31Config(
    num_layers=2,
    hidden_size=48,
    num_attention_heads=6,
    seq_length=40,
    vocab_size=100,
    padded_vocab_size=104,
    num_key_value_heads=2,
    ffn_hidden_size=80,
)


def tokenizer_json(vocab: object, added: tuple[int, ...] = ()) -> str:
    tokens = [{"id": number, "content": f"<{number}>", "special": True} for number in added]
    model = {"type": "WordLevel", "unk_token": "x", "vocab": vocab}
    split = {"type": "WhitespaceSplit"}
    return json.dumps({"version": "1.0", "added_tokens": tokens, "pre_tokenizer": split, "model": model})


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    model = Llama31(SIZES)
    random = torch.Generator().manual_seed(1)
    return {f"model/{name}": 0.3 * torch.randn(one.shape, generator=random) for name, one in model.named_parameters()}


@pytest.fixture(scope="module")
def step(weights: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with moments in a run's folder."""
    folder = tmp_path_factory.mktemp("run")
    moments = {f"{group}/{name[6:]}": one for group in ("exp_avg", "exp_avg_sq") for name, one in weights.items()}
    write_dcp(folder / "checkpoints" / "step_00000005", {**weights, **moments})
    (folder / "config.json").write_text(
        json.dumps({"benchmark": {"start_iterations": 0, "model": {"num_attention_heads": SIZES.num_attention_heads}}})
    )
    return folder / "checkpoints" / "step_00000005"


@pytest.mark.slow  # importing transformers takes several seconds
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_logits_are_those_of_our_model(
    dtype: str, step: Path, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(tokenizer_json({"x": 0, "seen": 7, "far": 103}))
    out = tmp_path / "out"
    done = run("to-huggingface", "--input", step, "--output", out, "--dtype", dtype, "--tokenizer", tokenizer)
    assert (done.returncode, done.stderr) == (0, "")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    assert isinstance(theirs, transformers.LlamaForCausalLM)
    assert theirs.dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    ours = Llama31(SIZES).to(theirs.dtype)
    ours.load_state_dict({name.removeprefix("model/"): one for name, one in weights.items()})
    assert all(torch.equal(one, theirs.state_dict()[name]) for name, one in ours.state_dict().items())
    tokens = torch.randint(SIZES.padded_vocab_size, (3, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        found, expected = theirs.float()(tokens).logits, ours.float()(tokens)
    torch.testing.assert_close(found, expected, rtol=0, atol=3e-6 * float(expected.abs().max()))
    angles = llama31.rope_angles(2, SIZES.head_size)
    torch.testing.assert_close(theirs.model.rotary_emb.inv_freq, angles[1], rtol=3e-7, atol=0)
    assert transformers.AutoTokenizer.from_pretrained(out)("far seen")["input_ids"] == [103, 7]
    assert theirs.generation_config.eos_token_id is None


def test_the_settings_are_those_of_the_plain_page() -> None:
    config = FORMS["llama31"].config(dict.fromkeys("LNKDHFV", 1))
    assert config["rms_norm_eps"] == kernels.RMS_NORM_EPSILON
    assert config["rope_theta"] == llama31.ROPE_BASE
    assert config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": llama31.ROPE_FACTOR,
        "low_freq_factor": llama31.ROPE_LOW,
        "high_freq_factor": llama31.ROPE_HIGH,
        "original_max_position_embeddings": llama31.ROPE_OLD_CONTEXT,
    }


def test_megatron_cores_format_is_refused(step: Path, tmp_path: Path) -> None:
    done = run("to-torch-dist", "--input", step, "--output", tmp_path / "out")
    done.refused("a model of llama31, but to-torch-dist writes GPT-3 only; use to-huggingface")


KEYS = "model/model.layers.1.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({KEYS: None}, f"{KEYS} is missing"),
        ({KEYS: torch.ones(24, 48)}, "k_proj.weight: its layers have several shapes"),
        ({KEYS: torch.ones(20, 48), KEYS.replace("1", "0"): torch.ones(20, 48)}, "expected it [2, 16, 48]"),
        ({"model/lm_head.weight": torch.ones(100, 48)}, "with shape [100, 48], but axis V is 104 elsewhere"),
        ({"model/model.norm.weight": torch.ones(48).bfloat16()}, "bfloat16, expected float32"),
    ],
)
def test_damaged_weights_are_refused(
    change: dict[str, Any], complaint: str, weights: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    write_dcp(tmp_path / "x", {name: one for name, one in {**weights, **change}.items() if one is not None})
    with pytest.raises(InputError) as error:
        to_huggingface(tmp_path / "x", tmp_path / "out", heads=6)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("no", "it is not a tokenizer.json"),
        ("{}", "missing required field `model`"),
        (tokenizer_json({"a": "b"}), "it is not a tokenizer.json"),
        (tokenizer_json({"a": 0, "b": 104}), "105 pieces, but the model has 104 rows; it is another's"),
        (tokenizer_json({"a": 0}, added=(1, 150)), "151 pieces, but the model has 104 rows"),
        (tokenizer_json([[str(number), 0.0] for number in range(105)]), "105 pieces, but the model has 104 rows"),
    ],
)
def test_a_tokenizer_of_another_model_is_refused(content: str, complaint: str, step: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError) as error:
        to_huggingface(step, tmp_path / "out", heads=None, tokenizer=tmp_path / "tokenizer.json")
    assert complaint in str(error.value)
    assert not (tmp_path / "out").exists()
