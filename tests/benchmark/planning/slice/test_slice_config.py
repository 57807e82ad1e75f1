"""Options of a slice become a run."""

import pytest

from benchmark.config.benchmarks import GPT3_175B
from benchmark.planning.slice.slice_config import SliceOptions, slice_config
from foundation.errors import InputError


def test_a_slice_has_the_benchmark_s_width_and_its_own_depth() -> None:
    options = SliceOptions("gpt3_175b", tensor_parallel=2, pipeline_parallel=2, data_parallel=2, micro_batch_size=2)
    config = slice_config(options, 4, "H100 SXM")
    model, system = config.benchmark.model, config.system
    assert (model.num_layers, model.hidden_size, model.padded_vocab_size) == (4, 12288, 51200)
    assert (system.num_devices, system.data_parallel, system.peak_tflops) == (8, 2, 989.4)
    assert config.num_microbatches == 8
    assert config.benchmark.global_batch_size == 8 * 2 * 2
    assert options.true_width
    assert (options.least_layers, options.most_layers) == (2, 24)


def test_the_width_is_changed_in_heads() -> None:
    options = SliceOptions("gpt3_175b", hidden_size=512, seq_length=256, micro_batches=3)
    model = slice_config(options, 1, "").benchmark.model
    assert (model.hidden_size, model.num_attention_heads, model.seq_length) == (512, 4, 256)
    assert not options.true_width
    assert slice_config(options, 1, "").num_microbatches == 3
    assert SliceOptions("gpt3_175b", hidden_size=GPT3_175B.model.hidden_size).true_width


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"benchmark": "gpt4"}, "unknown benchmark 'gpt4'; there are gpt3_175b, rehearsal"),
        ({"layers": 0}, "layers 0: expected at least 1; change --layers"),
        ({"steps": 0}, "steps 0: expected at least 1; change --steps"),
        ({"hidden_size": 100}, "hidden_size 100: expected a multiple of 32"),
        ({"tensor_parallel": 3}, "hidden_size 128: expected a multiple of 96"),
        ({"tensor_parallel": 4, "seq_length": 30}, "tensor_parallel 4 does not divide seq_length 30"),
        ({"pipeline_parallel": 3, "layers": 2}, "lower --pipeline-parallel"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        options = SliceOptions(**{"benchmark": "rehearsal", **fields})  # type: ignore[arg-type]
        slice_config(options, options.layers or 3, "")
