"""``evaluate``: compute the log perplexity of a converted checkpoint or of a run's own."""

from dataclasses import dataclass

from benchmark.config.accelerators import BF16_BITS
from benchmark.config.benchmark_config import Benchmark
from benchmark.config.number_formats import DEFAULT_PRECISION, NUMBER_FORMATS, Precision
from benchmark.config.run_config import RunConfig
from benchmark.run_record.checkpoint_folder import read_progress
from benchmark.run_record.file_names import PROGRESS_FILE
from benchmark.run_record.run_progress import starting_progress
from benchmark.training.checkpoints.checkpoint_reader import fill_from_dcp, verify_checkpoint
from benchmark.training.engine.rank_environment import read_environment
from benchmark.training.engine.train_state import empty_state, load_initial_weights
from benchmark.training.inputs import open_validation, require_inputs
from benchmark.training.step import evaluate
from benchmark.training.training_world import training_world
from checkpoint_convert.formats.distributed_checkpoint import METADATA
from checkpoint_convert.formats.megatron_checkpoint import MegatronCheckpoint
from foundation.disk_answers import file_is_there


@dataclass(frozen=True)
class CheckpointQuality:
    checkpoint: str
    log_perplexity: float
    """Nats per scored token."""
    scored_tokens: int
    expected: float | None
    """Log perplexity that the benchmark's initial checkpoint must give in this number format; None for a run's own
    checkpoint, and where nobody has measured it in the format."""
    distance_in_sd: float | None
    """(log perplexity - expected) / standard deviation over runs."""
    note: str = ""
    """Reason why a converted checkpoint has no expected value."""


def evaluate_checkpoint(config: RunConfig) -> CheckpointQuality | None:
    """Evaluate ``config.data.checkpoint`` on the whole validation set; None on ranks other than 0.

    Only the weights are read, a third of the checkpoint's values.
    """
    environment, benchmark, system = read_environment(), config.benchmark, config.system
    checkpoint = config.data.checkpoint
    assert checkpoint is not None  # the command refuses to begin without
    if environment.rank == 0:
        require_inputs(config.data, benchmark, trains=False)
    is_own = file_is_there(checkpoint / PROGRESS_FILE)
    attention = benchmark.model, config.precision
    with training_world(system, environment, deterministic=config.deterministic, attention=attention) as world:
        progress = read_progress(checkpoint) if is_own else starting_progress(benchmark, config.data.seed or 0)
        state = empty_state(benchmark, system, config.precision, world, progress, updates=False)
        if is_own:
            verify_checkpoint(checkpoint, world)
        if is_own or file_is_there(checkpoint / METADATA):
            fill_from_dcp(state.weights(), checkpoint)
        else:
            load_initial_weights(state, MegatronCheckpoint(checkpoint))
        validation = open_validation(config.data, benchmark, state.progress.seed)
        result = evaluate(state, validation)
    if environment.rank != 0:
        return None
    expected, note = (None, "") if is_own else initial_quality(benchmark, config.precision)
    mean, distance = None, None
    if expected is not None:
        mean, distance = expected[0], (result.log_perplexity - expected[0]) / expected[1]
    return CheckpointQuality(str(checkpoint), result.log_perplexity, result.scored_tokens, mean, distance, note)


def initial_quality(benchmark: Benchmark, precision: Precision) -> tuple[tuple[float, float] | None, str]:
    """Return mean and standard deviation of the log perplexity that the initial checkpoint must have in a number
    format, or the reason why they are not known."""
    if NUMBER_FORMATS[precision].product_bits == BF16_BITS:
        return benchmark.initial_log_perplexity, ""
    if benchmark.initial_log_perplexity is None or benchmark.fp8_initial_log_perplexity is not None:
        return benchmark.fp8_initial_log_perplexity, ""
    title, mean = NUMBER_FORMATS[precision].title, benchmark.initial_log_perplexity[0]
    return None, (
        f"the initial checkpoint must give {mean} in BF16; the value in {title} is not known: evaluate with "
        f"--precision {DEFAULT_PRECISION}"
    )


def format_quality(quality: CheckpointQuality) -> str:
    """Describe the quality in one line, or in two where the expected value is known."""
    line = f"{quality.checkpoint}: log perplexity {quality.log_perplexity:.5f}, {quality.scored_tokens:,} tokens scored"
    if quality.expected is None:
        return f"{line}\n{quality.note}" if quality.note else line
    return f"{line}\nexpected of the initial checkpoint: {quality.expected}, {quality.distance_in_sd:+.1f} sd away"
