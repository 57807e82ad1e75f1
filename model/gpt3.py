"""GPT-3 in plain PyTorch: the whole model, its loss, and by autograd its gradients, on one device.

Training computes the same with its derivatives written out and dealt out over devices (passes/); its tests hold it
against this.

What differs from the GPT-2 everybody knows (docs/facts/reference.md d):
  - LayerNorm stores its gain minus one ("zero-centred"), so that weight decay pulls the gain to 1.
  - The attention input projection is laid out [head][q, k, v][head dimension].
  - The vocabulary is padded; padding columns take part in the softmax. 51,200 columns whatever the topology.
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
    """LayerNorm whose stored weight is the gain minus one. In BF16 the sum 1 + weight is rounded to BF16, as there."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, x_BSH: Tensor) -> Tensor:
        return F.layer_norm(x_BSH, self.weight.shape, 1 + self.weight, self.bias, LAYER_NORM_EPSILON)


class SelfAttention(nn.Module):
    """Causal attention over the whole window; documents in it are not separated (docs/facts/reference.md c.1)."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.query_key_value = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        qkv = self.query_key_value(x_BSH)
        qkv_BSN3D = qkv.view(*qkv.shape[:2], self.num_heads, 3, -1)
        q_BNSD, k_BNSD, v_BNSD = qkv_BSN3D.permute(3, 0, 2, 1, 4)
        out_BNSD = F.scaled_dot_product_attention(q_BNSD, k_BNSD, v_BNSD, is_causal=True)
        out: Tensor = self.dense(out_BNSD.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """The reference writes the GELU's sqrt(2/pi) as 0.79788456; the full constant moves its logits by 4e-11."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.ffn_hidden_size)
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        out: Tensor = self.dense_4h_to_h(F.gelu(self.dense_h_to_4h(x_BSH), approximate="tanh"))
        return out


class Block(nn.Module):
    """Pre-LayerNorm transformer block."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(config.hidden_size)
        self.self_attention = SelfAttention(config)
        self.post_attention_layernorm = LayerNorm(config.hidden_size)
        self.mlp = MLP(config)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.self_attention(self.input_layernorm(x_BSH))
        x_BSH = x_BSH + self.mlp(self.post_attention_layernorm(x_BSH))
        return x_BSH


class Embedding(nn.Module):
    """Word and learned position embedding; the word table is also the output projection."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        positions_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
        x_BSH: Tensor = self.word_embeddings(tokens_BS) + self.position_embeddings(positions_S)
        return x_BSH


class Encoder(nn.Module):
    """The blocks and the final LayerNorm. ``layers`` is keyed by the layer's number in the whole model."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(layer): Block(config) for layer in range(config.num_layers)})
        self.final_layernorm = LayerNorm(config.hidden_size)

    def forward(self, x_BSH: Tensor) -> Tensor:
        for block in self.layers.values():
            x_BSH = block(x_BSH)
        x_BSH = self.final_layernorm(x_BSH)
        return x_BSH


class GPT3(nn.Module):
    """Parameter names are those of the checkpoint (checkpoint_convert/formats/array_table.py)."""

    def __init__(self, config: GPT3Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.encoder = Encoder(config)

    def forward(self, tokens_BS: Tensor) -> Tensor:
        """Logits [B, S, V]. The word embedding's table is their projection, too."""
        return F.linear(self.encoder(self.embedding(tokens_BS)), self.embedding.word_embeddings.weight)


def token_losses(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Negative log likelihood of each label in nats, [B, S], in FP32 from logits of any dtype (docs/facts/reference.md
    c.2). FP64 logits stay FP64, for comparisons."""
    wide_BSV = logits_BSV.to(torch.promote_types(logits_BSV.dtype, torch.float32))
    return F.cross_entropy(wide_BSV.flatten(0, 1), labels_BS.flatten(), reduction="none").view_as(labels_BS)


def mean_loss(losses_BS: Tensor, mask_BS: Tensor) -> Tensor:
    """The loss of a micro-batch: the mean over the tokens that count, nats."""
    return (losses_BS * mask_BS).sum() / mask_BS.sum()
