"""The evidence of a run (--evidence), and with it the end of the MLPerf log, whose digest ends the evidence."""

from benchmark.config.run_config import RunConfig
from benchmark.supervision.endings import RunEnd
from benchmark.training.engine.run_progress import Progress
from benchmark.training.guards.witness.run_evidence import RunEvidence
from benchmark.training.inputs import provenance
from benchmark.training.observer import Observer, StepDone
from benchmark.training.run_folder import RunFolder, as_json
from benchmark.training.step import EvaluationResult


class EvidenceKeeper(Observer):
    """All its events but :meth:`end` are collective."""

    def __init__(self, config: RunConfig, evidence: RunEvidence, folder: RunFolder, progress: Progress) -> None:
        self._config, self._evidence, self._folder, self._progress = config, evidence, folder, progress

    def begin(self) -> None:
        inputs = provenance(self._config.data) if self._folder.mlperf_log is not None else {}
        self._evidence.begin(resumed=self._folder.resumed, benchmark=as_json(self._config.benchmark), inputs=inputs)

    def step_done(self, step: StepDone) -> None:
        self._evidence.stepped(step.result, step=self._progress.steps, first_sample=step.first_sample)

    def evaluated(self, result: EvaluationResult) -> None:
        self._evidence.evaluated(result.log_perplexity, result.scored_tokens)

    def about_to_save(self) -> None:
        self._evidence.checkpoint()

    def end(self, end: RunEnd) -> None:
        """The log ends with the evidence's last digest, the evidence with the log's."""
        self._evidence.stop()
        self._folder.end(end)
        self._evidence.close(end.ending, self._folder.mlperf_log)
