"""How much of a run its chain covers: what is missing at its beginning and its end.

A full disk costs evidence, not the run: a gap contradicts nothing, and shows nothing.
"""

from collections.abc import Iterator

from benchmark.config.benchmarks import GPT3_175B
from benchmark.config.run_config import Benchmark
from benchmark.evidence.chain_and_log import StampedLog
from benchmark.evidence.chain_links import NOTHING, Chain
from benchmark.evidence.mismatch import Mismatch


def coverage_gaps(chain: Chain, log: StampedLog, benchmark: Benchmark) -> Iterator[Mismatch]:
    """``benchmark``: of the run."""
    begin = chain.begin
    if begin is None:
        return  # which chain_deviations tells
    if begin.step or chain.links[0].previous != NOTHING:
        yield Mismatch(None, "the beginning", f"after {begin.step} steps", "no links of the steps before")
    if benchmark.mlperf_name == GPT3_175B.mlperf_name and not any(begin.inputs.values()):
        due = "those of data and checkpoint, which are published"
        yield Mismatch(None, "MD5 sums of the inputs", "none", due)
    tokens = benchmark.global_batch_size * benchmark.model.seq_length
    last = max((step for step in chain.steps), default=begin.step)
    logged = [event.metadata.get("epoch_num") for event in log.all("eval_accuracy")]
    logged += [event.value for event in log.all("train_samples")]
    trained = max((value for value in logged if type(value) is int), default=0)
    if trained > last * tokens:
        found = f"{trained:,} tokens in the log, {trained // tokens} steps"
        yield Mismatch(None, "the chain's last step", str(last), found, "no links of the others")
    if chain.end is None and log.all("run_stop"):
        yield Mismatch(None, "the chain's end", "none", "the log has one; the log's digest is due")
