"""GPT-3 in plain PyTorch: the model and its loss on one device, with gradients by autograd.

Training computes the same numbers with written-out derivatives, divided among devices (passes/); the tests compare them
with this page.

Differences from GPT-2 (docs/facts/reference.md d):
  - LayerNorm stores its gain minus one ("zero-centred"), so that weight decay pulls the gain to 1.
  - The attention input projection is laid out [head][q, k, v][head dimension].
  - The vocabulary is padded to 51,200 columns in every topology; padding columns take part in the softmax.
  - No dropout, no logit bias; the last token of a window is never scored (see micro_batches.py).

Tensors are named by their axes: B batch, S sequence, H hidden, N heads, D head dimension, F feed-forward,
V padded vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.gpt3_config import GPT3Config
from model.kernels import LAYER_NORM_EPSILON


class LayerNorm(nn.Module):
    """LayerNorm whose stored weight is the gain minus one. In BF16 the sum 1 + weight is rounded to BF16."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x_BSH: Tensor) -> Tensor:
        return F.layer_norm(x_BSH, self.weight.shape, 1 + self.weight, self.bias, LAYER_NORM_EPSILON)


class SelfAttention(nn.Module):
    """Causal attention over the whole window; documents in it are not separated (docs/facts/reference.md c.1)."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.num_heads = sizes.num_attention_heads
        self.query_key_value = nn.Linear(sizes.hidden_size, 3 * sizes.hidden_size)
        self.dense = nn.Linear(sizes.hidden_size, sizes.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        qkv = self.query_key_value(x_BSH)
        qkv_BSN3D = qkv.view(*qkv.shape[:2], self.num_heads, 3, -1)
        q_BNSD, k_BNSD, v_BNSD = qkv_BSN3D.permute(3, 0, 2, 1, 4)
        out_BNSD = F.scaled_dot_product_attention(q_BNSD, k_BNSD, v_BNSD, is_causal=True)
        out: Tensor = self.dense(out_BNSD.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """The reference writes the GELU's sqrt(2/pi) as 0.79788456; the full constant moves its logits by 4e-11."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(sizes.hidden_size, sizes.ffn_hidden_size)
        self.dense_4h_to_h = nn.Linear(sizes.ffn_hidden_size, sizes.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        out: Tensor = self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x_BSH), approximate="tanh"))
        return out


class Block(nn.Module):
    """Pre-LayerNorm transformer block."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(sizes.hidden_size)
        self.self_attention = SelfAttention(sizes)
        self.post_attention_layernorm = LayerNorm(sizes.hidden_size)
        self.mlp = MLP(sizes)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.self_attention(self.input_layernorm(x_BSH))
        x_BSH = x_BSH + self.mlp(self.post_attention_layernorm(x_BSH))
        return x_BSH


class Embedding(nn.Module):
    """Word and learned position embedding; the word table is also the output projection."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.padded_vocab_size, sizes.hidden_size)
        self.position_embeddings = nn.Embedding(sizes.max_position_embeddings, sizes.hidden_size)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        positions_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        x_BSH: Tensor = self.word_embeddings(tokens_BS) + self.position_embeddings(positions_S)
        return x_BSH


class Encoder(nn.Module):
    """The blocks and the final LayerNorm. The keys of ``layers`` are the layers' numbers in the model."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(layer): Block(sizes) for layer in range(sizes.num_layers)})
        self.final_layernorm = LayerNorm(sizes.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        for block in self.layers.values():
            x_BSH = block(x_BSH)
        x_BSH = self.final_layernorm(x_BSH)
        return x_BSH


class GPT3(nn.Module):
    """Parameter names are those of the checkpoint (checkpoint_convert/formats/array_table.py)."""

    def __init__(self, sizes: GPT3Config) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = Embedding(sizes)
        self.encoder = Encoder(sizes)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Return logits [B, S, V], projected by the word embedding's table."""
        return F.linear(self.encoder(self.embedding(tokens_BS)), self.embedding.word_embeddings.weight)


def token_losses(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Return the negative log likelihood of each label in nats, [B, S], in FP32 from logits of any dtype
    (docs/facts/reference.md c.2). FP64 logits give FP64 losses, for comparisons."""
    wide_BSV = logits_BSV.to(torch.promote_types(logits_BSV.dtype, torch.float32))
    return F.cross_entropy(wide_BSV.flatten(0, 1), labels_BS.flatten(), reduction="none").view_as(labels_BS)


def mean_loss(losses_BS: Tensor, mask_BS: Tensor) -> Tensor:
    """Return the loss of a micro-batch in nats: the mean over the tokens that count."""
    return (losses_BS * mask_BS).sum() / mask_BS.sum()
