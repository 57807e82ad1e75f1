"""Do a run's evidence and its MLPerf log tell the same?"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmark.config.run_config import Benchmark
from benchmark.evidence.chain_links import Chain
from benchmark.evidence.link_contents import EvaluationLink, ResumeLink
from benchmark.evidence.mismatch import Mismatch

MOST_APART_MS = 2000
"""Between an evaluation's link and its line in the log, which are written one after the other."""
LEAST_SCORED = 0.8
"""Of the validation set's tokens: ends of documents are not scored. The rehearsal scores 0.992 of them."""


class StampedEvent(Protocol):
    """A line of the log (``LogEvent``)."""

    @property
    def line(self) -> int:
        """In the file, from 1."""
        ...

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
        *_scored(chain, log),
        *_restarts(chain, log, benchmark),
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
            found = _shown(stamped[-1].value)
            yield Mismatch(None, f"{key} in the log", found, f"{value} in the chain", log_line=stamped[-1].line)


def _evaluations(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    assert chain.begin is not None
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    covered = range(chain.begin.step * tokens, max(chain.steps, default=chain.begin.step) * tokens + 1)
    links = {link.step * tokens: link for link in chain.of(EvaluationLink)}
    logged = {event.metadata.get("epoch_num"): event for event in log.all("eval_accuracy") if _hashable(event)}
    for event in logged.values():
        at, line = event.metadata.get("epoch_num"), event.line
        link = links.pop(at, None) if isinstance(at, int) else None
        if link is None:
            if type(at) is not int or at in covered:  # else a gap, told by chain_coverage.py
                found = f"after {_shown(at)} tokens"
                yield Mismatch(None, "evaluation in the log", found, "no such link in the chain", log_line=line)
            continue
        if event.value != link.log_perplexity:
            value = f"{link.log_perplexity!r} in the chain"
            yield Mismatch(link.step, "log perplexity in the log", _shown(event.value), value, log_line=line)
        if not 0 <= event.time_ms - link.time_ms <= MOST_APART_MS:
            far = f"expected 0 to {MOST_APART_MS} ms later"
            link_ms = f"{link.time_ms} ms in the chain"
            what = "time of the evaluation in the log"
            yield Mismatch(link.step, what, f"{event.time_ms} ms", link_ms, far, line)
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
            due = f"{link.loss!r} in the chain"
            yield Mismatch(link.step, "loss in the log", _shown(loss), due, log_line=event.line)


def _scored(chain: Chain, log: StampedLog) -> Iterator[Mismatch]:
    """The log gives the tokens of the validation set, of which a run scores all but the rest of a window."""
    for event in log.all("eval_samples")[-1:]:
        for link in chain.of(EvaluationLink)[:1]:
            given = _as_int(event.value)
            if not LEAST_SCORED * given <= link.scored_tokens <= given:
                scored = f"{link.scored_tokens} tokens scored after {link.step} steps, by the chain"
                yield Mismatch(None, "eval_samples in the log", _shown(event.value), scored, log_line=event.line)


def _restarts(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """What one of them says of going on from a checkpoint the other says, too: both are cut back to it."""
    assert chain.begin is not None
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    of_chain = [link.step * tokens for link in chain.of(ResumeLink)]
    of_log = [(_as_int(event.metadata.get("step")), event.line) for event in log.all("restart")]
    for at in sorted(set(of_chain)):
        more = of_chain.count(at) - sum(at == other for other, _ in of_log)
        if more > 0:
            found = f"{more} more in the chain, after {at} tokens"
            yield Mismatch(at // tokens, "restart in the log", "none", found)
    covered = range(chain.begin.step * tokens + 1, max(chain.steps, default=0) * tokens + 1)
    for at, line in of_log:
        if at in covered and at not in of_chain:
            due = "no such link in the chain"
            yield Mismatch(None, "restart in the log", f"after {at} tokens", due, log_line=line)


def _times(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """Every step lies within the block of the log that it belongs to, of the run that counts."""
    assert chain.begin is not None
    starts = [event.time_ms for event in log.all("run_start")]
    stops = [event.time_ms for event in log.all("run_stop")]
    steps = sorted(chain.steps.items())
    if steps and starts and not starts[-1] <= steps[0][1].time_ms:
        found = f"{steps[0][1].time_ms} ms in the chain"
        line = log.all("run_start")[-1].line
        far = "the first step comes after it"
        yield Mismatch(steps[0][0], "run_start in the log", f"{starts[-1]} ms", found, far, line)
    if steps and stops and not steps[-1][1].time_ms <= stops[-1]:
        found = f"{steps[-1][1].time_ms} ms in the chain"
        line = log.all("run_stop")[-1].line
        far = "the last step comes before it"
        yield Mismatch(steps[-1][0], "run_stop in the log", f"{stops[-1]} ms", found, far, line)
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    for start, stop in zip(log.all("block_start"), log.all("block_stop"), strict=False):
        first, count = (_as_int(stop.metadata.get(name)) for name in ("first_epoch_num", "epoch_count"))
        inside = (link for step, link in steps if first < step * tokens <= first + count)
        outside = next((link for link in inside if not start.time_ms <= link.time_ms <= stop.time_ms), None)
        if outside is not None:
            block, found = f"{start.time_ms} to {stop.time_ms} ms", f"{outside.time_ms} ms in the chain"
            yield Mismatch(outside.step, "time of its block in the log", block, found, log_line=start.line)


def _as_int(value: object) -> int:
    """A number of tokens; 0 where a stranger wrote something else."""
    return value if type(value) is int else 0


def _ends(chain: Chain, log: StampedLog) -> Iterator[Mismatch]:
    """The log has the digest of the chain as far as it went, the chain that of the whole log."""
    if chain.end is None:
        return  # a gap, told by chain_coverage.py
    stamped = log.all("evidence")
    head = chain.links[-1].previous
    if not stamped or stamped[-1].value != head:
        value = _shown(stamped[-1].value) if stamped else "nothing"
        line = stamped[-1].line if stamped else None
        due = f"{head}, the chain's last digest before its end"
        yield Mismatch(None, "evidence in the log", value, due, log_line=line)
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
