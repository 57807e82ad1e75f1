"""Pipeline parallelism: the model's parameters cut into parts of consecutive layers, one for each pipeline stage.

Passes through a part: passes/part_pass.py. The word table is wanted by the first part and by the last; each has a copy,
under the same name, and their gradients are added up (benchmark/training/engine/tied_table.py).
"""

import itertools

from torch import nn

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
        is_first, is_last = pipeline_stage == 0, pipeline_stage == num_pipeline_stages - 1
        layers = layers_of_pipeline_stages(whole.config.num_layers, num_pipeline_stages)[pipeline_stage]
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleDict({str(layer): whole.encoder.layers[str(layer)] for layer in layers})
        if is_first or is_last:
            self.embedding = whole.embedding
        if is_last:
            self.encoder.final_layernorm = whole.encoder.final_layernorm
            if not is_first:
                del self.embedding.position_embeddings
