"""Sizes that every model has, without PyTorch, so that planning does not wait for its import."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

Recompute = Literal["none", "selective", "full"]
"""Values that a block computes again in its backward pass (passes/block_pass.py)."""
CopyEngines = Literal["none", "gathers", "all"]
"""Messages of tensor parallelism that copy engines carry (passes/tensor_group.py)."""

Role = Literal["query", "key", "value", "output", "gate", "up", "down"]
"""Purposes of the columns of a block's matrix products."""
INTO_ATTENTION: tuple[Role, ...] = ("query", "key", "value")
INTO_MLP: tuple[Role, ...] = ("gate", "up")


@dataclass(frozen=True)
class BlockProduct:
    """One matrix product that a block computes for every token."""

    inputs: int
    columns: Mapping[Role, int]
    """Columns of the output by purpose; several where one product computes them together."""

    @property
    def outputs(self) -> int:
        return sum(self.columns.values())

    def on_rank(self, tensor_parallel: int) -> tuple[int, int]:
        """Return inputs and outputs on one tensor-parallel rank. Ranks share the columns of the products before
        attention and before the activation function, and the inputs of the products behind them."""
        if "output" in self.columns or "down" in self.columns:
            return self.inputs // tensor_parallel, self.outputs
        return self.inputs, self.outputs // tensor_parallel


MOST_LAYERS, LARGEST_SIZE = 1000, 1 << 24
"""A plan simulates each layer; PyTorch counts the bytes of a tensor, such as a matrix of two sizes, in 64 bits."""


class UnfitSizes(ValueError):
    """Sizes of a model do not fit together; the message says which, and how to mend them."""


def require_sizes(sizes: object, *names: str, most: int = LARGEST_SIZE) -> None:
    """Raise UnfitSizes where a field of these names is not 1 to ``most``."""
    for name in names:
        if not 1 <= getattr(sizes, name) <= most:
            option = name.replace("_", "-")
            raise UnfitSizes(f"{name} {getattr(sizes, name)}: expected 1 to {most:,}; change --{option}")


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of a model. A model's own class adds fields and the products of a block. Raises UnfitSizes for sizes that
    do not fit together."""

    num_layers: int
    """Transformer blocks."""
    hidden_size: int
    """Width of the residual stream, H."""
    num_attention_heads: int
    """N; must divide the hidden size."""
    seq_length: int
    """Tokens per sample, S."""
    vocab_size: int
    """Pieces of the tokenizer."""
    padded_vocab_size: int
    """Rows of the word embedding, V: the next multiple of 1,024 in every topology, as in the checkpoint. The reference
    pads to 128 x tensor-parallel ranks, so that its loss depends on the topology."""  # docs/facts/reference.md j.2
    biases: ClassVar[bool]
    """True if matrix products have biases."""
    rotary_positions: ClassVar[bool]
    """True for a rotary embedding of queries and keys; False for positions that are added to the word embedding."""
    tied: ClassVar[bool]
    """True if embedding and output share their table."""
    measuring_norms: ClassVar[bool]
    """True if kernels of norms return their largest values for FP8 (measuring_kernels.py)."""
    compiled_kernels: ClassVar[float]
    """Ratio of the bytes that the elementwise kernels of a block's passes read and write to the bytes of fully fused
    kernels, counted by dry runs without recomputation."""
    separate_kernels: ClassVar[float]
    """The same ratio where no kernel is compiled (fused_kernel.py): each operator is a kernel."""

    def __post_init__(self) -> None:
        require_sizes(self, "num_layers", most=MOST_LAYERS)
        require_sizes(self, "hidden_size", "num_attention_heads", "seq_length", "vocab_size", "padded_vocab_size")
        if self.hidden_size % self.num_attention_heads:
            raise UnfitSizes(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        if self.padded_vocab_size < self.vocab_size:
            raise UnfitSizes(f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}")

    @property
    def head_size(self) -> int:
        """Width of an attention head, D."""
        return self.hidden_size // self.num_attention_heads

    @property
    def cut_by_tensor_parallelism(self) -> tuple[str, ...]:
        """Fields that the number of tensor-parallel ranks must divide."""
        return ("num_attention_heads", "seq_length", "padded_vocab_size")

    @property
    def products(self) -> Mapping[str, BlockProduct]:
        """Matrix products of a block by the names of their weights, in the order of the forward pass."""
        raise NotImplementedError

    @property
    def joined_products(self) -> Mapping[str, BlockProduct]:
        """The products of a block, those of the same input as one, with + between their names."""
        joined: dict[str, BlockProduct] = {}
        for name, product in self.products.items():
            before = next(reversed(joined), "")
            columns = {**joined[before].columns, **product.columns} if before else product.columns
            if any(set(columns) <= set(roles) for roles in (INTO_ATTENTION, INTO_MLP)):
                joined.pop(before, None)
                joined[f"{before}+{name}" if before else name] = BlockProduct(product.inputs, columns)
            else:
                joined[name] = product
        return joined

    def columns(self, *roles: Role) -> int:
        """Return the columns of a block's products that are for any of ``roles``."""
        return sum(product.columns.get(role, 0) for product in self.products.values() for role in roles)

    @property
    def layer_matrix_weights(self) -> int:
        """Weights of a block's matrices: each takes part in one product per token."""
        return sum(product.inputs * product.outputs for product in self.products.values())

    @property
    def num_parameters(self) -> int:
        """Parameters, padding rows of the vocabulary included."""
        raise NotImplementedError
