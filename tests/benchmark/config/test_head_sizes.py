"""Head sizes that no kernel of a GPU takes are refused for GPUs alone, with numbers of heads that would do."""

import dataclasses

import pytest

from benchmark.config.benchmarks import GPT3_175B, REHEARSAL
from benchmark.config.head_sizes import TAKEN, Precision
from benchmark.config.run_config import RunConfig
from benchmark.config.systems import SYSTEMS
from stage.errors import InputError


def config(system: str, hidden: int, heads: int, precision: Precision = "bf16", tensor_parallel: int = 1) -> RunConfig:
    model = dataclasses.replace(REHEARSAL.model, hidden_size=hidden, num_attention_heads=heads)
    one = dataclasses.replace(
        SYSTEMS[system], nodes=1, devices_per_node=8, tensor_parallel=tensor_parallel, pipeline_parallel=1, replicas=1
    )
    one = dataclasses.replace(one, pipeline_chunks=1, micro_batch_size=1)
    benchmark = dataclasses.replace(REHEARSAL, model=model)
    return RunConfig(benchmark=benchmark, system=one, precision=precision)


@pytest.mark.parametrize(
    ("hidden", "heads", "precision", "tensor_parallel", "complaint"),
    [
        (
            240,
            24,
            "bf16",
            1,
            "hidden_size 240 are heads of 10; .* bf16 .* of 8 up to 256; possible: 1, 2, 3, 5,",
        ),
        (240, 24, "bf16", 2, "heads of 10; .* possible: 2, 6, 10, 30; change --num-attention-heads"),
        (
            240,
            80,
            "fp32",
            1,
            "heads of 3; attention in fp32 on a GPU takes multiples of 4 up to 65536; possible",
        ),
        (1024, 2, "bf16", 1, "heads of 512; .* possible: 4, 8, 16, 32, 64, 128; change"),
        (1022, 2, "bf16", 1, "heads of 511; .* up to 256; change --hidden-size$"),
    ],
)
def test_what_no_kernel_takes_is_refused_on_gpus(
    hidden: int, heads: int, precision: Precision, tensor_parallel: int, complaint: str
) -> None:
    made = config("dgxh100_n64", hidden, heads, precision, tensor_parallel)
    with pytest.raises(InputError, match=complaint):
        made.require_fit()
    config("cpu_p2", hidden, heads, precision, tensor_parallel).require_fit()


def test_what_is_said_to_be_possible_is() -> None:
    for hidden in (64, 240, 264, 1000, 4096):
        for precision, (multiple, most) in TAKEN.items():
            for heads in (n for n in range(1, hidden + 1) if hidden % n == 0):
                fits = hidden // heads % multiple == 0 and hidden // heads <= most
                try:
                    config("dgxh100_n64", hidden, heads, precision).require_fit()
                except InputError as error:
                    assert not fits
                    said = str(error).partition("possible: ")[2].partition(";")[0]
                    assert said
                    for other in said.split(", "):
                        config("dgxh100_n64", hidden, int(other), precision).require_fit()
                else:
                    assert fits
    RunConfig(benchmark=GPT3_175B, system=SYSTEMS["dgxh100_n64"]).require_fit()
