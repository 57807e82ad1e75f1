import numpy as np
import pytest
from torch import Tensor

from benchmark.training.engine.micro_batches import MicroBatch, micro_batch
from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from model.gpt3 import GPT3
from tests.model.recorded import RECORDED, SIZES
from tests.support import golden, make_paxml


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The converted checkpoint "sane", which the recorded pass started from."""
    folder = tmp_path_factory.mktemp("sane")
    source = make_paxml(folder / "paxml", golden("convert.json")["fp32_sane"]["gen_paxml"])
    paxml_to_megatron(source, folder / "megatron", dtype="fp32", workers=2, memory_limit=1 << 30)
    model = GPT3(SIZES)
    MegatronCheckpoint(folder / "megatron").load_weights(dict(model.named_parameters()))
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@pytest.fixture(scope="session")
def batch() -> MicroBatch:
    return micro_batch(np.array(RECORDED["text"]), np.array(RECORDED["dummy_sample"], dtype=bool))
