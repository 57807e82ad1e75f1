"""Hugging Face's form of each architecture: the names and layouts of its tensors, and the settings that make
``transformers`` compute as the plain page of the model does.

GPT-3 is GPT-2 with a padded vocabulary, so only names and layouts change (docs/facts/reference.md d). The parameters of
Llama have Hugging Face's names and layouts from the beginning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoint_convert.formats.array_table import table_rows

PAD, END = 0, 1
"""Ids of GPT-3's tokenizer (docs/facts/reference.md a.5): it has no token for the beginning of a text."""

# Megatron's name (array_table.py), GPT-2's and its axes: Conv1D keeps [in, out], and the outputs of the attention's
# projection lie [q, k, v][head][dimension]. "gain": LayerNorm stores its gain minus one, GPT-2 the gain itself.
GPT2 = """
embedding.word_embeddings.weight                      transformer.wte.weight                    V H
embedding.position_embeddings.weight                  transformer.wpe.weight                    P H
encoder.final_layernorm.weight                        transformer.ln_f.weight                   H          gain
encoder.final_layernorm.bias                          transformer.ln_f.bias                     H
encoder.layers.input_layernorm.weight                 transformer.h.{layer}.ln_1.weight         H          gain
encoder.layers.input_layernorm.bias                   transformer.h.{layer}.ln_1.bias           H
encoder.layers.self_attention.query_key_value.weight  transformer.h.{layer}.attn.c_attn.weight  H (C N D)
encoder.layers.self_attention.query_key_value.bias    transformer.h.{layer}.attn.c_attn.bias    (C N D)
encoder.layers.self_attention.dense.weight            transformer.h.{layer}.attn.c_proj.weight  (N D) H
encoder.layers.self_attention.dense.bias              transformer.h.{layer}.attn.c_proj.bias    H
encoder.layers.post_attention_layernorm.weight        transformer.h.{layer}.ln_2.weight         H          gain
encoder.layers.post_attention_layernorm.bias          transformer.h.{layer}.ln_2.bias           H
encoder.layers.mlp.dense_h_to_4h.weight               transformer.h.{layer}.mlp.c_fc.weight     H F
encoder.layers.mlp.dense_h_to_4h.bias                 transformer.h.{layer}.mlp.c_fc.bias       F
encoder.layers.mlp.dense_4h_to_h.weight               transformer.h.{layer}.mlp.c_proj.weight   F H
encoder.layers.mlp.dense_4h_to_h.bias                 transformer.h.{layer}.mlp.c_proj.bias     H
"""


@dataclass(frozen=True)
class HuggingfaceForm:
    """The form of one architecture."""

    config: Callable[[Mapping[str, int]], dict[str, Any]]
    """The settings in config.json but for the dtype, from the sizes of the model's axes."""
    generation: Callable[[Mapping[str, int]], dict[str, Any]]
    """The settings in generation_config.json."""
    tensors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name, axes and whether it is a gain, of each tensor by our array's name; those that are left out are as ours."""


def gpt2_config(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return GPT-2's settings. ``gelu_new`` is the tanh approximation with the whole sqrt(2/pi)."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": sizes["L"],
        "n_head": sizes["N"],
        "n_embd": sizes["H"],
        "n_inner": sizes["F"],
        "n_positions": sizes["P"],
        "n_ctx": sizes["P"],
        "vocab_size": sizes["V"],
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "initializer_range": 0.006,
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": END,
    }


def llama31_config(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return Llama 3.1's settings, with the published longest context. The benchmark's data has no token at the
    beginning or the end of a document, so none is named here."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": sizes["L"],
        "num_attention_heads": sizes["N"],
        "num_key_value_heads": sizes["K"],
        "head_dim": sizes["D"],
        "hidden_size": sizes["H"],
        "intermediate_size": sizes["F"],
        "max_position_embeddings": 131072,
        "vocab_size": sizes["V"],
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }


FORMS: Mapping[str, HuggingfaceForm] = {
    "gpt3": HuggingfaceForm(
        config=gpt2_config,
        generation=lambda sizes: {
            "do_sample": False,
            "max_length": sizes["P"],
            "pad_token_id": PAD,
            "eos_token_id": END,
        },
        tensors={row[0]: row[1:] for row in table_rows(GPT2)},
    ),
    "llama31": HuggingfaceForm(config=llama31_config, generation=lambda sizes: {"do_sample": False}),
}
"""By the architecture, one of array_table.MODELS."""
