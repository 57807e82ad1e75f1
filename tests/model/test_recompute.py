"""Recomputation changes what is kept, never a number."""

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from model.gpt3 import Block
from model.gpt3_config import GPT3Config, Recompute
from model.recompute import recomputing

SIZES = GPT3Config(
    num_layers=1, hidden_size=32, num_attention_heads=4, seq_length=16, vocab_size=60, padded_vocab_size=64
)


def measured(recompute: Recompute) -> tuple[list[Tensor], int, int]:
    """Output and gradients of a block, bytes it keeps for its backward pass, FLOPs of both passes."""
    torch.manual_seed(1)
    block = recomputing(Block(SIZES), recompute)
    x = torch.randn(2, 16, 32, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = block(x)
        (out * out.detach()).sum().backward()
    gradients = [parameter.grad for _, parameter in sorted(block.named_parameters())]
    assert x.grad is not None
    numbers = [out, x.grad, *(gradient for gradient in gradients if gradient is not None)]
    return numbers, sum(kept.values()), counter.get_total_flops()


@pytest.fixture(scope="module")
def plain() -> tuple[list[Tensor], int, int]:
    return measured("none")


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_numbers_are_the_same_to_the_bit(recompute: Recompute, plain: tuple[list[Tensor], int, int]) -> None:
    numbers = measured(recompute)[0]
    assert len(numbers) == len(plain[0]) == 2 + 12
    for ours, theirs in zip(numbers, plain[0], strict=True):
        assert torch.equal(ours, theirs)


def test_memory_is_traded_for_work(plain: tuple[list[Tensor], int, int]) -> None:
    """Selective repeats no matrix product; full all but the block's last: 8 of 24 H^2 FLOPs per token less."""
    selective, full = measured("selective"), measured("full")
    assert plain[1] > 2 * selective[1] > 4 * full[1]
    assert full[1] == 2 * 16 * 32 * 4  # the block's input
    assert selective[2] == plain[2]
    tokens, width = 2 * 16, 32
    assert full[2] - plain[2] == 24 * width**2 * tokens - 8 * width**2 * tokens
