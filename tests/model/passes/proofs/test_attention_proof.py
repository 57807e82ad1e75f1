"""The proof itself, with a CPU's kernel and damaged ones in the place of a GPU's."""

import math
import re
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from model.decoder_sizes import DecoderSizes
from model.gpt3_config import GPT3Config
from model.llama31_config import Llama31Config
from model.passes import attention
from model.passes.attention import Attended, CpuFlash, Repeated, choose_kernel
from model.passes.gpt3_block import gpt3_attention
from model.passes.llama_block import llama31_attention
from model.passes.proofs import attention_proof
from model.passes.proofs.attention_proof import largest_difference, proved_attention

CPU = torch.device("cpu")
GPT3 = GPT3Config(1, 24, 3, 8, 10, 10)
LLAMA = Llama31Config(1, 64, 8, 8, 10, 10, num_key_value_heads=4, ffn_hidden_size=8)
QKV = torch.randn(16, 72, generator=torch.Generator().manual_seed(1))
WAY = gpt3_attention(GPT3, 1, 2)
GROUPED = llama31_attention(LLAMA, 2, 1)  # 4 heads of queries, 2 of keys
GROUPED_QKV = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))


class AlsoRight(CpuFlash):
    pass


class LeavesNan(CpuFlash):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        done = super().forward(q, k, v)
        done.out_BNSD[0, -1, -1] = torch.nan
        return done


class WrongKeys(CpuFlash):
    def backward(self, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, done: Attended) -> Sequence[Tensor]:
        of_q, of_k, of_v = super().backward(gradient, q, k, v, done)
        return of_q, of_k * 1.1, of_v


class WrongForSharedKeys(CpuFlash):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        attended = super().forward(q, k, v)
        return attended if k.shape == q.shape else attended._replace(out_BNSD=attended.out_BNSD.flip(1))


class FailsOnLarge(CpuFlash):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Attended:
        done = super().forward(q, k, v)
        return done._replace(out_BNSD=done.out_BNSD * (0.9 if q.abs().max() > 20 else 1.0))


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    attention._refused.clear()
    choose_kernel.cache_clear()


def test_two_that_are_right_do_not_differ() -> None:
    assert largest_difference(AlsoRight(), CpuFlash(), QKV, WAY) == 0
    assert largest_difference(AlsoRight(), CpuFlash(), GROUPED_QKV, GROUPED) == 0


def test_each_gradient_counts_for_itself() -> None:
    assert largest_difference(WrongKeys(), CpuFlash(), QKV, WAY) == pytest.approx(0.1, rel=1e-4)
    assert largest_difference(WrongKeys(), CpuFlash(), GROUPED_QKV, GROUPED) == pytest.approx(0.1, rel=1e-4)


def test_not_a_number_is_not_lost() -> None:
    assert math.isnan(largest_difference(LeavesNan(), CpuFlash(), QKV, WAY))


def proved(monkeypatch: pytest.MonkeyPatch, *kinds: type[CpuFlash], config: DecoderSizes = GPT3, ranks: int = 1) -> str:
    """What is said where ``kinds`` is the order of choice; each is held against a right one."""
    choose_kernel.cache_clear()
    monkeypatch.setattr(attention, "_in_order", lambda *_: [kind() for kind in kinds])
    monkeypatch.setattr(attention_proof, "REFERENCE", dict.fromkeys(kinds, CpuFlash))
    return proved_attention(CPU, torch.bfloat16, config, ranks=ranks, batch=2)


def test_a_kernel_that_is_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    message = proved(monkeypatch, AlsoRight, CpuFlash)
    assert message == (
        "attention by AlsoRight: at most 0 from CpuFlash (2 x 3 heads, 8 x 8), with large logits 0; its output's "
        "strides are (24, 8, 48, 1)"
    )
    message = proved(monkeypatch, AlsoRight, CpuFlash, config=LLAMA, ranks=2)
    start = r"attention by AlsoRight: at most 0\.00\d+ from CpuFlash with repeated keys "
    assert re.match(start + re.escape("(2 x 4 heads, 2 of keys, 8 x 8), with large logits 0.00"), message)


def test_a_kernel_that_is_wrong_with_shared_keys_is_right_with_repeated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [WrongForSharedKeys(), Repeated(WrongForSharedKeys())]
    monkeypatch.setattr(attention, "_in_order", lambda *_: candidates)
    monkeypatch.setattr(attention_proof, "REFERENCE", {WrongForSharedKeys: CpuFlash})
    message = proved_attention(CPU, torch.bfloat16, LLAMA, ranks=2, batch=2)
    assert message.startswith("attention NOT by WrongForSharedKeys, which is wrong here: ")
    assert "; attention by WrongForSharedKeys with repeated keys: at most 0 from CpuFlash with repeated keys" in message


@pytest.mark.parametrize("wrong", [LeavesNan, WrongKeys, FailsOnLarge])
def test_a_kernel_that_is_wrong_is_refused_and_the_next_one_taken(
    wrong: type[CpuFlash], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = proved(monkeypatch, wrong, AlsoRight)
    assert message.startswith(f"attention NOT by {wrong.__name__}, which is wrong here: ")
    assert "; attention by AlsoRight: at most 0 from CpuFlash" in message
    assert type(choose_kernel("cpu", torch.bfloat16, 8, 8, False)) is AlsoRight


def test_where_all_are_wrong_there_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"every kernel for torch\.bfloat16 on this device gave wrong numbers"):
        proved(monkeypatch, LeavesNan, WrongKeys)


def test_what_no_other_can_be_held_against_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    message = proved_attention(CPU, torch.float32, GPT3, ranks=1, batch=2)
    assert message == "attention by CpuFlash, which was compared with no other"


def test_random_numbers_of_the_run_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.random.get_rng_state()
    proved(monkeypatch, AlsoRight)
    assert torch.equal(torch.random.get_rng_state(), before)
