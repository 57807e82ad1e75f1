import numpy as np
import pytest
import torch
from torch import Tensor

from benchmark.training.engine.micro_batches import micro_batch
from checkpoint_convert.formats.array_table import ARRAYS, groups
from checkpoint_convert.formats.axis_sizes import paxml_axis_sizes
from model.passes.part_pass import MicroBatch
from tests.checkpoint_convert.tiny import read
from tests.model.recorded import RECORDED
from tests.support import golden, make_paxml


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The checkpoint "sane", which the recorded pass started from, in our layout."""
    source = make_paxml(tmp_path_factory.mktemp("sane") / "paxml", golden("convert.json")["fp32_sane"]["gen_paxml"])
    of_weights = groups("fp32")[0]
    stored = {array: read(source / of_weights.paxml_name(array)) for array in ARRAYS}
    axes = paxml_axis_sizes("sane", {array: values.shape for array, values in stored.items()})
    found = dict[str, Tensor]()
    for array, values in stored.items():
        shape = array.megatron_shape(axes)
        whole = torch.from_numpy(values.transpose(array.permutation()).reshape(-1, *shape[1:])[: shape[0]].copy())
        found |= {array.parameter(layer): whole[layer] if array.stacked else whole for layer in range(axes["L"])}
    return found


@pytest.fixture(scope="session")
def batch() -> MicroBatch:
    return micro_batch(np.array(RECORDED["text"]), np.array(RECORDED["dummy_sample"], dtype=bool))
