"""Llama 3.1 in plain PyTorch: the model on one device, with gradients by autograd.

Training computes the same numbers with written-out derivatives, divided among devices (passes/); the tests compare them
with this page. Parameters have the names of Hugging Face's LlamaForCausalLM, which computes the same in FP32.

Differences from gpt3.py:
  - RMSNorm divides by the root of the mean square. It has a gain, stored as it is, and no bias.
  - The rotary embedding (RoPE) rotates pairs of values in queries and keys. Low frequencies are divided for long
    contexts.
  - Several heads of queries share one head of keys and values.
  - The MLP multiplies two projections, one of them after SiLU (SwiGLU). There are no biases.
  - The output has a table of its own.

Tensors are named by their axes: B batch, S sequence, H hidden, N heads of queries, K heads of keys and values, D head
dimension, F feed-forward, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.kernels import RMS_NORM_EPSILON
from model.llama31_config import Llama31Config

ROPE_BASE = 500_000.0
ROPE_FACTOR = 8.0
"""Divisor of RoPE's low frequencies."""
ROPE_LOW, ROPE_HIGH = 1.0, 4.0
"""Rotations within the original context. Pairs with fewer rotations than the first number have low frequencies; pairs
with more than the second keep their frequency; between the two the divisor changes smoothly."""
ROPE_OLD_CONTEXT = 8192
"""The original context, in tokens."""


def rope_angles(sequence: int, head_size: int, device: torch.device | None = None) -> Tensor:
    """Return the angle in radians of each pair of a head's values at each position: [S, D / 2], FP32."""
    exponents = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
    speeds = 1.0 / ROPE_BASE**exponents
    wavelengths = 2 * math.pi / speeds
    smooth = (ROPE_OLD_CONTEXT / wavelengths - ROPE_LOW) / (ROPE_HIGH - ROPE_LOW)
    between = (1 - smooth) * speeds / ROPE_FACTOR + smooth * speeds
    slow, fast = wavelengths > ROPE_OLD_CONTEXT / ROPE_LOW, wavelengths < ROPE_OLD_CONTEXT / ROPE_HIGH
    speeds = torch.where(slow, speeds / ROPE_FACTOR, torch.where(fast, speeds, between))
    return torch.outer(torch.arange(sequence, device=device, dtype=torch.float32), speeds)


def rotated(x_D: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the pairs (i, i + D / 2) of the last axis, in FP32 or wider; return the dtype of ``x_D``."""
    x, y = x_D.chunk(2, dim=-1)
    rotated_D = torch.cat([x * cosine - y * sine, y * cosine + x * sine], dim=-1)
    return rotated_D.to(x_D.dtype).contiguous()  # attention's kernels take it for contiguous; a batch of one may not be


class RmsNorm(nn.Module):
    """RMSNorm, computed in FP32 or wider and rounded once, after the gain, as PyTorch's kernel and the reference's do.
    Hugging Face's rounds the normed value, too."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x_BSH: Tensor) -> Tensor:
        wide = x_BSH.to(torch.promote_types(x_BSH.dtype, torch.float32))
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + RMS_NORM_EPSILON)
        return (normed * self.weight).to(x_BSH.dtype)


class GroupedAttention(nn.Module):
    """Causal attention over the whole window; documents in it are not separated."""

    def __init__(self, sizes: Llama31Config) -> None:
        super().__init__()
        self.head_size = sizes.head_size
        keys = sizes.num_key_value_heads * sizes.head_size
        self.q_proj = nn.Linear(sizes.hidden_size, sizes.hidden_size, bias=False)
        self.k_proj = nn.Linear(sizes.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(sizes.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(sizes.hidden_size, sizes.hidden_size, bias=False)

    def forward(self, x_BSH: Tensor) -> Tensor:
        batch, sequence, _ = x_BSH.shape
        q_BNSD, k_BKSD, v_BKSD = (
            projection(x_BSH).view(batch, sequence, -1, self.head_size).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        angles = rope_angles(sequence, self.head_size, x_BSH.device)
        q_BNSD, k_BKSD = (rotated(x, angles.cos(), angles.sin()) for x in (q_BNSD, k_BKSD))
        sharers = q_BNSD.shape[1] // k_BKSD.shape[1]
        k_BNSD, v_BNSD = (shared.repeat_interleave(sharers, dim=1) for shared in (k_BKSD, v_BKSD))
        out_BNSD = F.scaled_dot_product_attention(q_BNSD, k_BNSD, v_BNSD, is_causal=True)
        out: Tensor = self.o_proj(out_BNSD.transpose(1, 2).flatten(2))
        return out


class GatedMlp(nn.Module):
    def __init__(self, sizes: Llama31Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size, bias=False)
        self.up_proj = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size, bias=False)
        self.down_proj = nn.Linear(sizes.ffn_hidden_size, sizes.hidden_size, bias=False)

    def forward(self, x_BSH: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x_BSH)) * self.up_proj(x_BSH))
        return out


class LlamaBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, sizes: Llama31Config) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(sizes.hidden_size)
        self.self_attn = GroupedAttention(sizes)
        self.post_attention_layernorm = RmsNorm(sizes.hidden_size)
        self.mlp = GatedMlp(sizes)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.self_attn(self.input_layernorm(x_BSH))
        x_BSH = x_BSH + self.mlp(self.post_attention_layernorm(x_BSH))
        return x_BSH


class LlamaTrunk(nn.Module):
    """The model without the output's table. The keys of ``layers`` are the layers' numbers in the model."""

    def __init__(self, sizes: Llama31Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.padded_vocab_size, sizes.hidden_size)
        self.layers = nn.ModuleDict({str(layer): LlamaBlock(sizes) for layer in range(sizes.num_layers)})
        self.norm = RmsNorm(sizes.hidden_size)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        x_BSH: Tensor = self.embed_tokens(tokens_BS)
        for block in self.layers.values():
            x_BSH = block(x_BSH)
        x_BSH = self.norm(x_BSH)
        return x_BSH


class Llama31(nn.Module):
    def __init__(self, sizes: Llama31Config) -> None:
        super().__init__()
        self.sizes = sizes
        self.model = LlamaTrunk(sizes)
        self.lm_head = nn.Linear(sizes.hidden_size, sizes.padded_vocab_size, bias=False)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return logits [B, S, V]."""
        logits: Tensor = self.lm_head(self.model(tokens_BS))
        return logits
