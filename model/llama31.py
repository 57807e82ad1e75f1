"""Llama 3.1 in plain PyTorch: the whole model, and by autograd its gradients, on one device.

Training computes the same with its derivatives written out and dealt out over devices (passes/); its tests hold it
against this. Parameters have the names of Hugging Face's LlamaForCausalLM, and it computes the same.

What differs from gpt3.py:
  - RMSNorm divides by the root of the mean square and has a gain alone, which is stored as it is.
  - Positions turn pairs of a head's values in queries and keys (RoPE); slow turns are slowed down for long contexts.
  - Several heads of queries share one head of keys and values.
  - The MLP multiplies two projections, one of them through SiLU (SwiGLU). Nothing has a bias.
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
"""The slow turns of RoPE are divided by this."""
ROPE_LOW, ROPE_HIGH = 1.0, 4.0
"""Turns within the old context that bound the change: pairs that turn less often than the first are slowed by
``ROPE_FACTOR``, pairs that turn more often than the second keep their speed; between the two it changes smoothly."""
ROPE_OLD_CONTEXT = 8192
"""The old context, in tokens."""


def rope_angles(sequence: int, head_size: int, device: torch.device | None = None) -> Tensor:
    """[S, D / 2], FP32: by which angle each pair of a head's values is turned at each position."""
    exponents = torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size
    speeds = 1.0 / ROPE_BASE**exponents
    wavelengths = 2 * math.pi / speeds
    smooth = (ROPE_OLD_CONTEXT / wavelengths - ROPE_LOW) / (ROPE_HIGH - ROPE_LOW)
    between = (1 - smooth) * speeds / ROPE_FACTOR + smooth * speeds
    slow, fast = wavelengths > ROPE_OLD_CONTEXT / ROPE_LOW, wavelengths < ROPE_OLD_CONTEXT / ROPE_HIGH
    speeds = torch.where(slow, speeds / ROPE_FACTOR, torch.where(fast, speeds, between))
    return torch.outer(torch.arange(sequence, device=device, dtype=torch.float32), speeds)


def turned(x_D: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs (i, i + D / 2) of the last axis, in FP32 or wider; the dtype is that of ``x_D``."""
    first, second = x_D.chunk(2, dim=-1)
    both = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
    return both.to(x_D.dtype).contiguous()  # of a batch of one it may not be, and attention's kernels take it for that


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

    def __init__(self, config: Llama31Config) -> None:
        super().__init__()
        self.head_size = config.head_size
        keys = config.num_key_value_heads * config.head_size
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x_BSH: Tensor) -> Tensor:
        batch, sequence, _ = x_BSH.shape
        q_BNSD, k_BKSD, v_BKSD = (
            projection(x_BSH).view(batch, sequence, -1, self.head_size).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        angles = rope_angles(sequence, self.head_size, x_BSH.device)
        q_BNSD, k_BKSD = (turned(each, angles.cos(), angles.sin()) for each in (q_BNSD, k_BKSD))
        k_BNSD, v_BNSD = (each.repeat_interleave(q_BNSD.shape[1] // each.shape[1], dim=1) for each in (k_BKSD, v_BKSD))
        out_BNSD = F.scaled_dot_product_attention(q_BNSD, k_BNSD, v_BNSD, is_causal=True)
        out: Tensor = self.o_proj(out_BNSD.transpose(1, 2).flatten(2))
        return out


class GatedMlp(nn.Module):
    def __init__(self, config: Llama31Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.ffn_hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.ffn_hidden_size, bias=False)
        self.down_proj = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)

    def forward(self, x_BSH: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x_BSH)) * self.up_proj(x_BSH))
        return out


class LlamaBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: Llama31Config) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size)
        self.self_attn = GroupedAttention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden_size)
        self.mlp = GatedMlp(config)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.self_attn(self.input_layernorm(x_BSH))
        x_BSH = x_BSH + self.mlp(self.post_attention_layernorm(x_BSH))
        return x_BSH


class LlamaTrunk(nn.Module):
    """All but the output's table. ``layers`` is keyed by the layer's number in the whole model."""

    def __init__(self, config: Llama31Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.layers = nn.ModuleDict({str(layer): LlamaBlock(config) for layer in range(config.num_layers)})
        self.norm = RmsNorm(config.hidden_size)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        x_BSH: Tensor = self.embed_tokens(tokens_BS)
        for block in self.layers.values():
            x_BSH = block(x_BSH)
        x_BSH = self.norm(x_BSH)
        return x_BSH


class Llama31(nn.Module):
    def __init__(self, config: Llama31Config) -> None:
        super().__init__()
        self.config = config
        self.model = LlamaTrunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Logits [B, S, V]."""
        logits: Tensor = self.lm_head(self.model(tokens_BS))
        return logits
