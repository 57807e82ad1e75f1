"""Pipeline parallelism: the model cut into parts of consecutive layers, one for each pipeline stage.

PyTorch's schedules move what lies between the parts: the hidden state [B, S / tensor-parallel ranks, H]. The word table
is wanted by the first part and by the last; each has a copy, under the same name, and their gradients are added up
(benchmark/training/engine/tied_table.py).
"""

import itertools

from torch import Tensor, nn

from model.gpt3 import GPT3


def layers_of_pipeline_stages(num_layers: int, num_pipeline_stages: int) -> list[range]:
    """Consecutive layers, dealt out evenly; the first stages get what is left over, for the last one has the output."""
    share, left_over = divmod(num_layers, num_pipeline_stages)
    starts = [number * share + min(number, left_over) for number in range(num_pipeline_stages + 1)]
    return [range(first, end) for first, end in itertools.pairwise(starts)]


class ModelPart(nn.Module):
    """The layers of one pipeline stage of a :class:`GPT3`, which is taken apart for it. Parameters keep their names."""

    def __init__(self, whole: GPT3, pipeline_stage: int, num_pipeline_stages: int) -> None:
        super().__init__()
        self.is_first, self.is_last = pipeline_stage == 0, pipeline_stage == num_pipeline_stages - 1
        layers = layers_of_pipeline_stages(whole.config.num_layers, num_pipeline_stages)[pipeline_stage]
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleDict({str(layer): whole.encoder.layers[str(layer)] for layer in layers})
        if self.is_first or self.is_last:
            self.embedding = whole.embedding
        if self.is_last:
            self.encoder.final_layernorm = whole.encoder.final_layernorm
            self.output_layer = whole.output_layer
            if not self.is_first:
                del self.embedding.position_embeddings

    def forward(self, x: Tensor, labels_BS: Tensor | None = None) -> Tensor:
        """Tokens [B, S] or hidden state to hidden state, or to token losses [B, S] in the last part."""
        if self.is_first:
            x = self.embedding(x)
        for block in self.encoder.layers.values():  # type: ignore[operator]
            x = block(x)
        if self.is_last:
            x = self.encoder.final_layernorm(x)  # type: ignore[operator]
            x = self.output_layer(x, self.embedding.word_embeddings.weight, labels_BS)
        return x
