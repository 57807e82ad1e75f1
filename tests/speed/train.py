"""Training on a CPU: this project's step against what a user would pick instead, on the same tokens, in one run.

python -m tests.speed.train [--nanogpt FOLDER] [--repeat 5]

The others are Hugging Face's GPT-2 (transformers) and, from a checkout of it, nanoGPT's model, each in the plain loop
of its own documentation: autocast for BF16, fused AdamW, clipping at 1.0; without dropout and with GPT-3's GELU. Ours
is the step of a timed run in one process: Adam on shards, norm, clipping, schedule. All use the same threads,
batch and vocabulary; sides take turns. Of each side the best repetition is printed and its ratio to the best of the
others'; then the median of the same ratio by repetition, by CPU time: where other programs share the cores it tells
more. The losses at the start are printed, to see that all do the same work.
"""

import argparse
import dataclasses
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmark.config.benchmarks import REHEARSAL
from benchmark.config.systems import SYSTEMS
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.engine.distributed import World, build_mesh
from benchmark.training.engine.train_state import empty_state
from benchmark.training.step import train_step
from model.gpt3_config import GPT3Config
from model.passes.chunk_pass import MicroBatch

Step = Callable[[Tensor], float]
"""One optimizer step on tokens [B, S + 1]; returns the loss."""


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    heads: int
    sequence: int
    batch: int
    vocabulary: int = 4096

    @property
    def model(self) -> GPT3Config:
        return GPT3Config(
            num_layers=self.layers,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            seq_length=self.sequence,
            vocab_size=self.vocabulary,
            padded_vocab_size=self.vocabulary,
        )


SHAPES = (Shape(4, 256, 8, 256, batch=8), Shape(6, 512, 8, 512, batch=4))


def ours(shape: Shape, precision: Any) -> Step:
    system = SYSTEMS["cpu_p1"]
    system = dataclasses.replace(system, micro_batch_size=shape.batch)
    benchmark = dataclasses.replace(
        REHEARSAL, model=shape.model, global_batch_size=shape.batch, start_global_batch_size=shape.batch
    )
    world = World(0, 1, torch.device("cpu"), build_mesh(system, "cpu"))
    state = empty_state(benchmark, system, precision, world, starting_progress(benchmark, 0))
    for name, tensor in state.tensors().items():
        tensor.normal_(0, 0.02) if name.endswith("weight") and "layernorm" not in name else tensor.zero_()
        if not name.startswith("model/"):
            tensor.zero_()
    state.optimizer.start_at(0)

    def step(tokens: Tensor) -> float:
        # As the others, every position has a label here.
        batch = MicroBatch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), torch.ones(tokens[:, 1:].shape))
        result = train_step(state, [batch])
        state.progress.steps += 1
        return result.loss

    return step


def plain_loop(model: torch.nn.Module, precision: str, loss_of: Callable[[Tensor], Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(tokens: Tensor) -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def hugging_face(shape: Shape, precision: str) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape.vocabulary,
        n_positions=2048,
        n_embd=shape.hidden,
        n_layer=shape.layers,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    model = GPT2LMHeadModel(config)

    def loss(tokens: Tensor) -> Tensor:
        logits = model(tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return plain_loop(model, precision, loss)


def nanogpt(folder: Path) -> Callable[[Shape, str], Step]:
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def build(shape: Shape, precision: str) -> Step:
        config = module.GPTConfig(
            block_size=2048,
            vocab_size=shape.vocabulary,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_embd=shape.hidden,
            dropout=0.0,
            bias=True,
        )
        model = module.GPT(config)
        for block in model.transformer.h:  # the same model: its own is the exact GELU, which is faster on a CPU
            block.mlp.gelu = torch.nn.GELU(approximate="tanh")
        return plain_loop(model, precision, lambda tokens: model(tokens[:, :-1], tokens[:, 1:].contiguous())[1])

    return build


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="folder with nanoGPT's model.py")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    builders: dict[str, Callable[[Shape, str], Step]] = {"ours": ours, "Hugging Face GPT-2": hugging_face}
    if options.nanogpt is not None:
        builders["nanoGPT"] = nanogpt(options.nanogpt)
    for shape in SHAPES:
        for precision in ("fp32", "bf16"):
            print(f"{shape.layers} layers, hidden {shape.hidden}, sequence {shape.sequence}, {precision}")
            torch.manual_seed(1)
            steps = {name: build(shape, precision) for name, build in builders.items()}
            tokens = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1))
            losses = {name: step(tokens) for name, step in steps.items()}
            timed: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
            for _ in range(options.repeat):
                for name, step in steps.items():
                    began = time.perf_counter(), time.process_time()
                    for _ in range(options.steps):
                        step(tokens)
                    passed = time.perf_counter() - began[0], time.process_time() - began[1]
                    timed[name].append((passed[0] / options.steps, passed[1] / options.steps))
            for name, own in timed.items():
                others = [side for other, side in timed.items() if other != "ours"]
                best, best_other = min(own)[0], min(min(side)[0] for side in others)
                by_turn = [min(cpu_s for _, cpu_s in turn) for turn in zip(*others, strict=True)]
                ratios = [other / cpu_s for other, (_, cpu_s) in zip(by_turn, own, strict=True)]
                print(
                    f"  {name:20}{shape.batch * shape.sequence / best:9,.0f} tokens/s, {best_other / best:.2f} of the "
                    f"best other; {statistics.median(ratios):.2f} by CPU time; first loss {losses[name]:.3f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
