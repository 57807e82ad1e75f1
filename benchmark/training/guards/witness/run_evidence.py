"""The evidence of a run, from the state it starts with to the digest of its log (--evidence)."""

from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.events.event_log import EventLog
from benchmark.events.mlperf_log import MlperfLog
from benchmark.evidence.link_contents import VERSION, BeginLink, Content, EndLink, Machinery, ResumeLink
from benchmark.machine.kernel_facts import kernel_facts
from benchmark.training.engine.distributed import World
from benchmark.training.engine.train_state import TrainState
from benchmark.training.guards.witness.evidence_log import EvidenceLog, sha256_of
from benchmark.training.guards.witness.step_witness import StepFigures, StepWitness
from data_prep.sample_order.token_windows import TokenWindows

LAYOUT = (
    "micro_batch_size",
    "tensor_parallel",
    "pipeline_parallel",
    "pipeline_chunks",
    "replicas",
    "recompute",
)
"""Fields of the system on which the order of sums depends."""


class RunEvidence:
    """What a run calls; on ranks other than 0 nothing is written. What is collective says so."""

    def __init__(self, config: RunConfig, world: World, state: TrainState, windows: TokenWindows, events: EventLog):
        """``windows``: of the training data."""
        self._config, self._world, self._state, self._events = config, world, state, events
        self._log: EvidenceLog | None = None
        self._witness = StepWitness(state, world, windows, self._give, events.time_ms)
        self.windows = self._witness.windows
        """What training has to read from."""

    def begin(self, *, resumed: bool, benchmark: dict[str, Any], inputs: dict[str, Any]) -> None:
        """The link of the state that training starts with; a chain that is there is cut back to it. Collective.

        ``benchmark``, ``inputs``: as in config.json, and as stamped into the log.
        """
        state, progress = self._witness.state_print(), self._state.progress
        if self._world.rank != 0:
            return
        self._log = EvidenceLog(self._config.run_dir, progress.evidence_head if resumed else None)
        now, machinery = self._events.time_ms(), machinery_of(self._config, self._world)
        if not self._log.is_new:
            self._log.add(ResumeLink(progress.steps, now, machinery, state, self._log.dropped))
            return
        begin = BeginLink(
            version=VERSION,
            step=progress.steps,
            time_ms=now,
            seed=progress.seed,
            precision=self._config.precision,
            benchmark=benchmark,
            inputs=digests_by_name(inputs),
            names=self._witness.prints.names,
            sizes=self._witness.prints.sizes,
            machinery=machinery,
            state=state,
            dropped=self._log.dropped,
        )
        self._log.add(begin)

    def stepped(self, result: StepFigures, *, step: int, first_sample: int) -> None:
        """Collective."""
        self._witness.stepped(result, step=step, first_sample=first_sample)

    def evaluated(self, log_perplexity: float, scored_tokens: int) -> None:
        """Collective."""
        self._witness.evaluated(log_perplexity, scored_tokens, step=self._state.progress.steps)

    def checkpoint(self) -> None:
        """A checkpoint is about to be begun, which will know where in the chain it is. Collective."""
        self._witness.checkpoint(step=self._state.progress.steps)
        if self._log is not None:
            self._state.progress.evidence_head = self._log.head

    def stop(self) -> None:
        """Training is over: the log gets the digest of the last link. Collective."""
        self._witness.finish()
        if self._log is not None:
            self._events.point("evidence", self._log.head, step=self._state.progress.trained_tokens)

    def close(self, status: str, log: MlperfLog | None) -> None:
        """The MLPerf log is complete: its digest ends the chain. The digest of a part of it would accuse an honest run:
        where the log's disk has refused lines until now the chain has no end, which is a gap."""
        if self._log is None or log is None:
            return
        if self._events.drain(log):
            path = self._config.run_dir / log.name
            self._log.add(EndLink(self._state.progress.steps, self._events.time_ms(), status, sha256_of(path)))
        else:
            self._events.note("message", f"the evidence has no end: lines of {log.name} could not be written")
        self._log.close()

    def _give(self, content: Content) -> None:
        assert self._log is not None
        self._log.add(content)


def machinery_of(config: RunConfig, world: World) -> Machinery:
    """Of this process's run."""
    kernels = kernel_facts(world.device, deterministic=config.deterministic)
    return Machinery({"devices": config.system.num_devices, **layout_of(config.system)}, kernels)


def layout_of(system: System) -> dict[str, Any]:
    return {name: getattr(system, name) for name in LAYOUT}


def digests_by_name(inputs: dict[str, Any]) -> dict[str, Any]:
    """MD5 sums by file name, without the folders of this machine; None for what has no manifest."""
    found: dict[str, Any] = {}
    for path, entry in inputs.items():
        found.update(entry["md5"] if entry else {path.rpartition("/")[2]: None})
    return found
