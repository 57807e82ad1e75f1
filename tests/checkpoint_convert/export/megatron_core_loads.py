"""Load what ``to-torch-dist`` wrote by Megatron-Core itself, on a CPU: its GPTModel, and what its optimizers keep.

python tests/checkpoint_convert/export/megatron_core_loads.py OUTPUT HEADS LOGITS [SAVE_TO]

Needs ``pip install megatron-core psutil``. Writes the logits of tokens that count up to LOGITS; prints sums of what was
loaded for the optimizer. SAVE_TO: a folder in which Megatron-Core saves it all again. Without Transformer Engine
LayerNorm knows no ``--apply-layernorm-1p``: the one is added to its gains after loading.
"""

import dataclasses
import json
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from megatron.core.transformer.transformer_config import TransformerConfig

KEPT = ("exp_avg", "exp_avg_sq", "param", "fp32_param")
POSITIONS = 40


def do_without_cuda() -> None:
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    get_cuda_rng_tracker().fork = lambda *_: nullcontext()


def make_model(checkpoint: Path, heads: int) -> Any:
    """Of the sizes that the checkpoint's tensors have."""
    known = dist_checkpointing.load_tensors_metadata(str(checkpoint))
    rows, hidden = known["embedding.word_embeddings.weight"].global_shape
    layers, inner, _ = known["decoder.layers.mlp.linear_fc1.weight"].global_shape
    config = TransformerConfig(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        ffn_hidden_size=inner,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        gradient_accumulation_fusion=False,
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=rows,
        max_sequence_length=known["embedding.position_embeddings.weight"].global_shape[0],
        share_embeddings_and_output_weights=True,
        position_embedding_type="learned_absolute",
    )


def main(root: Path, heads: int, logits_path: Path, save_to: Path | None) -> None:
    do_without_cuda()
    with tempfile.TemporaryDirectory() as folder:
        store = torch.distributed.FileStore(f"{folder}/store", 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        checkpoint = root / f"iter_{int((root / 'latest_checkpointed_iteration.txt').read_text()):07d}"
        model = make_model(checkpoint, heads)
        content = dist_checkpointing.load_content_metadata(str(checkpoint))
        sharded: dict[str, Any] = {"model": model.sharded_state_dict(metadata=content)}
        tensors = {name: one for name, one in sharded["model"].items() if isinstance(one.data, torch.Tensor)}
        for kept in KEPT:
            prefix, empty = f"optimizer.state.{kept}.", {"dtype": torch.float32}
            sharded[kept] = {
                name: dataclasses.replace(one, key=prefix + one.key, data=torch.empty_like(one.data), **empty)
                for name, one in tensors.items()
            }
        loaded = dist_checkpointing.load(sharded, str(checkpoint))
        model.load_state_dict(loaded["model"])
        if save_to is not None:
            save_to.mkdir()
            common = {"checkpoint_version": 3.0, "iteration": loaded["iteration"]}
            dist_checkpointing.save({**sharded, **common}, str(save_to), content_metadata=content)
        for name, value in model.named_parameters():
            value.data += "layernorm.weight" in name
        tokens, places = torch.arange(POSITIONS)[None] % model.vocab_size, torch.arange(POSITIONS)[None]
        hidden = torch.ones(1, 1, POSITIONS, POSITIONS).tril() < 0.5
        with torch.no_grad():
            torch.save(model(tokens, places, hidden), logits_path)
        sums = {kept: float(sum(value.double().abs().sum() for value in loaded[kept].values())) for kept in KEPT}
        print(json.dumps({"iteration": loaded["iteration"], "sums": sums}))
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)
