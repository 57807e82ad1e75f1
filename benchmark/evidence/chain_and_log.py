"""Do a run's evidence and its MLPerf log tell the same?"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmark.config.run_config import Benchmark
from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import EvaluationLink
from benchmark.evidence.mismatch import Mismatch

MOST_APART_MS = 2000
"""Between an evaluation's link and its line in the log, which are written one after the other."""


class StampedEvent(Protocol):
    """A line of the log (``LogEvent``)."""

    @property
    def value(self) -> Any: ...

    @property
    def time_ms(self) -> int: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class StampedLog(Protocol):
    """A log that was read (``ResultLog``)."""

    @property
    def path(self) -> Path: ...

    def all(self, key: str) -> Sequence[StampedEvent]:
        """Of one key, in the order of the file."""
        ...


def log_deviations(chain: Chain, log: StampedLog, benchmark: Benchmark) -> list[Mismatch]:
    """``benchmark``: of the run."""
    if chain.begin is None:
        return []  # which chain_deviations tells
    return [
        *_stamps(chain, log, benchmark),
        *_evaluations(chain, log, benchmark),
        *_losses(chain, log, benchmark),
        *_times(chain, log, benchmark),
        *_ends(chain, log),
    ]


def went_back(log: StampedLog) -> bool:
    """Whether the run went back after a spike."""
    return bool(log.all("rollback"))


def _stamps(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """What was to be trained."""
    assert chain.begin is not None
    optimizer = benchmark.optimizer
    due: dict[str, object] = {
        "seed": chain.begin.seed,
        "submission_benchmark": benchmark.mlperf_name,
        "global_batch_size": benchmark.global_batch_size,
        "max_sequence_length": benchmark.model.seq_length,
        "opt_base_learning_rate": optimizer.lr,
        "opt_end_learning_rate": optimizer.min_lr,
        "opt_learning_rate_warmup_steps": math.ceil(optimizer.lr_warmup_samples / benchmark.global_batch_size),
        "opt_learning_rate_decay_steps": math.ceil(optimizer.lr_decay_samples / benchmark.global_batch_size),
        "init_checkpoint_step": math.ceil(benchmark.start_samples / benchmark.global_batch_size),
    }
    for key, value in due.items():
        stamped = log.all(key)
        if not stamped:
            yield Mismatch(None, f"{key} in the log", "nothing", f"{value} in the chain")
        elif stamped[-1].value != value:
            yield Mismatch(None, f"{key} in the log", _shown(stamped[-1].value), f"{value} in the chain")


def _evaluations(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    links = {link.step * tokens: link for link in chain.of(EvaluationLink)}
    logged = {event.metadata.get("epoch_num"): event for event in log.all("eval_accuracy") if _hashable(event)}
    for event in logged.values():
        at = event.metadata.get("epoch_num")
        link = links.pop(at, None) if isinstance(at, int) else None
        if link is None:
            yield Mismatch(None, "evaluation in the log", f"after {_shown(at)} tokens", "no such link in the chain")
            continue
        if event.value != link.log_perplexity:
            value = f"{link.log_perplexity!r} in the chain"
            yield Mismatch(link.step, "log perplexity in the log", _shown(event.value), value)
        if not 0 <= event.time_ms - link.time_ms <= MOST_APART_MS:
            far = f"expected 0 to {MOST_APART_MS} ms later"
            link_ms = f"{link.time_ms} ms in the chain"
            yield Mismatch(link.step, "time of the evaluation in the log", f"{event.time_ms} ms", link_ms, far)
    for link in links.values():
        yield Mismatch(link.step, "evaluation in the log", "none", f"{link.log_perplexity!r} in the chain")


def _losses(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """That of the last step before an evaluation is in the log, too."""
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    by_step = {step * tokens: link for step, link in chain.steps.items()}
    for event in log.all("tracked_stats"):
        at, value = event.metadata.get("step"), event.value
        link = by_step.get(at) if isinstance(at, int) else None
        if link is None or not isinstance(value, dict) or "reduced_train_loss" not in value:
            continue
        loss = value["reduced_train_loss"]
        same = loss == link.loss or (isinstance(loss, float) and math.isnan(loss) and math.isnan(link.loss))
        if not same:
            yield Mismatch(link.step, "loss in the log", _shown(loss), f"{link.loss!r} in the chain")


def _times(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """Every step lies within the block of the log that it belongs to, of the run that counts."""
    assert chain.begin is not None
    starts = [event.time_ms for event in log.all("run_start")]
    stops = [event.time_ms for event in log.all("run_stop")]
    steps = sorted(chain.steps.items())
    if steps and starts and not starts[-1] <= steps[0][1].time_ms:
        found = f"{steps[0][1].time_ms} ms in the chain"
        yield Mismatch(steps[0][0], "run_start in the log", f"{starts[-1]} ms", found, "the first step comes after it")
    if steps and stops and not steps[-1][1].time_ms <= stops[-1]:
        found = f"{steps[-1][1].time_ms} ms in the chain"
        yield Mismatch(steps[-1][0], "run_stop in the log", f"{stops[-1]} ms", found, "the last step comes before it")
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    for start, stop in zip(log.all("block_start"), log.all("block_stop"), strict=False):
        first, count = (_as_int(stop.metadata.get(name)) for name in ("first_epoch_num", "epoch_count"))
        inside = (link for step, link in steps if first < step * tokens <= first + count)
        outside = next((link for link in inside if not start.time_ms <= link.time_ms <= stop.time_ms), None)
        if outside is not None:
            block, found = f"{start.time_ms} to {stop.time_ms} ms", f"{outside.time_ms} ms in the chain"
            yield Mismatch(outside.step, "time of its block in the log", block, found)


def _as_int(value: object) -> int:
    """A number of tokens; 0 where a stranger wrote something else."""
    return value if type(value) is int else 0


def _ends(chain: Chain, log: StampedLog) -> Iterator[Mismatch]:
    """The log has the digest of the chain as far as it went, the chain that of the whole log."""
    if chain.end is None:
        if log.all("run_stop"):
            yield Mismatch(None, "the chain's end", "none", "the log has one; the log's digest is due")
        return
    stamped = log.all("evidence")
    head = chain.links[-1].previous
    if not stamped or stamped[-1].value != head:
        value = _shown(stamped[-1].value) if stamped else "nothing"
        yield Mismatch(None, "evidence in the log", value, f"{head}, the chain's last digest before its end")
    with log.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != chain.end.log_sha256:
        yield Mismatch(None, "SHA-256 of the log", chain.end.log_sha256, digest, "the log was changed after the run")
    statuses = [event.metadata.get("status") for event in log.all("run_stop")]
    due = "success" if chain.end.status == "success" else "aborted"
    if statuses[-1:] != [due]:
        yield Mismatch(None, "status in the log", _shown(statuses[-1:]), f"{chain.end.status} in the chain")


def _hashable(event: StampedEvent) -> bool:
    return isinstance(event.metadata.get("epoch_num"), int | float | str | None)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
