"""Made-up findings about steps without finite gradients."""

from benchmark.training.engine.unsound_values import BadMicroBatch, BadPart, NonFiniteStep, RankFindings


def on_rank(
    rank: int,
    parameters: tuple[str, ...] = ("layers.0.qkv.weight",),
    micro_batches: tuple[int, ...] = (),
    nans: int = 5,
) -> RankFindings:
    """Of a rank that reads as data-parallel rank of the same number, two samples per micro-batch."""
    return RankFindings(
        rank=rank,
        host=f"n{rank}",
        data_rank=rank,
        parts=tuple(BadPart(name, nans, 0 if nans else 3) for name in parameters),
        num_parts=len(parameters),
        num_parameters=53,
        micro_batches=tuple(BadMicroBatch(number, 1000 + 10 * number + 2 * rank, 2) for number in micro_batches),
        num_micro_batches=len(micro_batches),
    )


def skipped(*ranks: RankFindings, data_parallel: int = 4) -> NonFiniteStep:
    return NonFiniteStep(first_sample=1000, num_samples=40, data_parallel=data_parallel, ranks=ranks)
