"""Training on a CPU: this project's step against what a user would pick instead, on the same tokens, in one run.

python -m tests.speed.train [--nanogpt FOLDER] [--steps 30]

The others are Hugging Face's GPT-2 (transformers) and, from a checkout of it, nanoGPT's model, each in the plain loop
of its own documentation: autocast for BF16, fused AdamW, clipping at 1.0; without dropout and with GPT-3's GELU. Ours
is the step of a timed run in one process: Adam on shards, norm, clipping, schedule. Each other one and ours have a
process of their own: beside a third program nanoGPT takes its memory from what that has freed, and has no page faults.
Both use the same threads, batch and vocabulary, and take turns, a step each: what slows the machine for a while slows
neighbouring steps alike.
Printed are the median of each side's steps, and of the other side's time over ours in the same turn, with the standard
error of that median. The losses at the start show that all do the same work.
"""

import argparse
import dataclasses
import importlib.util
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


def nanogpt(folder: Path) -> "Builder":
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


Builder = Callable[[Shape, str], Step]
"""Makes the step of a shape in a precision."""
WARM_UP = 3


def seconds_by_turn(steps: Mapping[str, Step], tokens: Tensor, turns: int) -> dict[str, list[float]]:
    """Return the seconds of each side's steps. In every other turn the sides go in the opposite order."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    sides = list(steps.items())
    for turn in range(turns):
        for name, step in reversed(sides) if turn % 2 else sides:
            began = time.perf_counter()
            step(tokens)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def median_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the standard error that it would have of values with a normal distribution."""
    return statistics.median(values), math.sqrt(math.pi / 2 / len(values)) * statistics.stdev(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, help="folder with nanoGPT's model.py")
    parser.add_argument("--steps", type=int, default=30, help="turns of each size and precision, at least 2")
    options = parser.parse_args()
    rivals: dict[str, Callable[[], Builder]] = {"Hugging Face GPT-2": lambda: hugging_face}
    if options.nanogpt is not None:
        rivals["nanoGPT"] = partial(nanogpt, options.nanogpt)
    for shape in SHAPES:
        for precision in ("fp32", "bf16"):
            print(f"{shape.layers} layers, hidden {shape.hidden}, sequence {shape.sequence}, {precision}", flush=True)
            for name, builder in rivals.items():
                process = multiprocessing.get_context("fork").Process(
                    target=compare, args=(shape, precision, name, builder, options.steps)
                )
                process.start()
                process.join()
                if process.exitcode:
                    raise SystemExit(f"{name}: the process ended with {process.exitcode}")


def compare(shape: Shape, precision: str, name: str, builder: Callable[[], Builder], turns: int) -> None:
    """Print the speeds of our step and of the other one's, and their ratio."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)
    steps = {other: build(shape, precision) for other, build in (("ours", ours), (name, builder()))}
    tokens = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1))
    losses = {other: step(tokens) for other, step in steps.items()}
    seconds_by_turn(steps, tokens, WARM_UP)
    seconds = seconds_by_turn(steps, tokens, turns)
    for other, own in seconds.items():
        speed = shape.batch * shape.sequence / statistics.median(own)
        ratio, error = median_and_error([s / t for s, t in zip(own, seconds["ours"], strict=True)])
        compared = "" if other == "ours" else f", {ratio:.3f} +- {error:.3f} of our time"
        print(f"  {other:20}{speed:9,.0f} tokens/s{compared}; first loss {losses[other]:.3f}", flush=True)


if __name__ == "__main__":
    main()
