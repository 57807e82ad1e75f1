"""Published logs of Llama 3.1 (rounds 5.0 and 5.1), cut to what they are judged by."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.judging.results.judged import JUDGED

START_MS = 1_759_900_000_000
SETTINGS = (
    "submission_org", "submission_platform", "global_batch_size", "gradient_accumulation_steps",
    "opt_base_learning_rate", "opt_end_learning_rate", "opt_learning_rate_warmup_steps",
    "opt_learning_rate_decay_steps",
)  # fmt: skip
COMMON: dict[str, Any] = {
    "submission_division": "closed", "max_sequence_length": 8192, "init_checkpoint_step": 0,
    "train_samples": 1574207408, "opt_name": "adamw", "opt_adamw_beta_1": 0.9, "opt_adamw_beta_2": 0.95,
    "opt_adamw_epsilon": 1e-05, "opt_adamw_weight_decay": 0.1, "opt_gradient_clip_norm": 1.0,
    "opt_learning_rate_decay_schedule": "cosine with linear warmup",
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "llama31_8b": {"eval_samples": 1024, "max_steps": 1200000},
    "llama31_405b": {"eval_samples": 5760},
}


@dataclass(frozen=True)
class PublishedLog:
    """One run of a result, and the times and samples of all its runs."""

    folder: str
    """Of the result, in the round's repository."""
    settings: tuple[Any, ...]
    evaluations: str
    """Samples, log perplexity and seconds since run_start of each."""
    init_s: float
    runs: tuple[tuple[int, int], ...]
    """Milliseconds, and samples at the end, of every run."""
    cache_clear: bool = True
    changes: dict[str, Any] = field(default_factory=dict)
    """Keys with another value; None leaves a key out."""

    @property
    def benchmark(self) -> str:
        return self.folder.rpartition("/")[2]

    def write(self, root: Path, runs: int = 1) -> Path:
        """Write so many of its runs below ``root``; they have the evaluations of one, but the times of each."""
        folder = root / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for number, (run_ms, samples) in enumerate(self.runs[:runs]):
            lines = (f":::MLLOG {json.dumps(record)}\n" for record in self._records(number, run_ms, samples))
            (folder / f"result_{number}.txt").write_text("".join(lines))
        return folder

    def _records(self, number: int, run_ms: int, samples: int) -> Iterator[dict[str, Any]]:
        def record(key: str, value: Any = None, s: float = 0.0, **fields: Any) -> dict[str, Any]:
            kinds = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
            kind = kinds.get(key.rpartition("_")[2], "POINT_IN_TIME")
            head = {"namespace": "", "time_ms": START_MS + round(1000 * s), "event_type": kind, "key": key}
            return {**head, "value": value, "metadata": {"file": "pretrain.py", "lineno": 1, **fields}}

        yield record("cache_clear", self.cache_clear, -self.init_s)
        yield record("init_start", s=-self.init_s)
        own = OWN[self.benchmark]
        told = {"submission_benchmark": self.benchmark, "seed": 7919 * number % 1009, **COMMON, **own}
        for key, value in {**told, **dict(zip(SETTINGS, self.settings, strict=True)), **self.changes}.items():
            if value is not None:
                yield record(key, value, -1)
        yield record("init_stop")
        yield record("run_start")
        yield record("block_start", samples_count=0)
        unit = JUDGED[self.benchmark].log_keys.progress
        for word in self.evaluations.split():
            at, value, seconds = word.split(":")
            if number == 0 or int(at) < samples:
                yield record("eval_accuracy", float(value), float(seconds), **{unit: int(at)})
        if number > 0:
            yield record("eval_accuracy", float(value), run_ms / 1000, **{unit: samples})
        yield record("block_stop", s=run_ms / 1000, samples_count=samples)
        yield record("run_stop", s=run_ms / 1000, samples_count=samples, status="success")


NVIDIA_8B = PublishedLog(
    "training_results_v5.1/NVIDIA/results/theia_ngpu8_ngc25.09_nemo/llama31_8b",
    ("NVIDIA", "2xNVIDIA GB200", 16, 1.0, 0.0004, 4e-05, 16, 1199984),
    "12288:5.2873:272.3 24576:4.2733:545.1 36864:3.9775:818.0 49152:3.8153:1090.7 61440:3.7082:1363.5 "
    "73728:3.6243:1636.4 86016:3.5501:1909.1 98304:3.4991:2181.9 110592:3.4553:2454.5 122880:3.4170:2727.2 "
    "135168:3.3809:2999.9 147456:3.3559:3272.5 159744:3.3266:3545.1 172032:3.3065:3860.1 184320:3.2839:4132.693",
    78.427,
    ((4132693, 184320),),
)
AMD_8B = PublishedLog(
    "training_results_v5.1/AMD/results/MI355X_EPYC_9575F_pytorch/llama31_8b",
    ("AMD", "MI355X", 32, 2, 0.0008, 8e-05, 128, 1199872),
    "12256:5.5950:418.1 24544:4.4731:829.4 36832:4.0500:1240.7 49120:3.8535:1651.8 61408:3.7231:2062.9 "
    "73696:3.6275:2473.9 85984:3.5559:2884.7 98272:3.5011:3295.3 110560:3.4505:3705.9 122848:3.4064:4116.7 "
    "135136:3.3749:4527.3 147424:3.3414:4937.8 159712:3.3184:5347.9 172000:3.2907:5758.137",
    5.474,
    ((5758137, 172000), (6160934, 184288), (5744655, 172000), (6566427, 196576), (6159595, 184288),
     (6158758, 184288), (6164359, 184288), (5753403, 172000), (5754041, 172000), (5759639, 172000)),
)  # fmt: skip
HPE_8B = PublishedLog(
    "training_results_v5.1/HPE/results/HPE-Cray-XD670-H200-SXM5-141GB_n8_25.09/llama31_8b",
    ("HPE", "8xSUBMISSION_PLATFORM_PLACEHOLDER", 32, 1.0, 0.0008, 8e-05, 96, 1199904),
    "8192:6.4002:92.1 16384:5.4768:185.5 24576:4.8481:279.0 32768:4.4188:372.4 40960:4.2139:465.9 "
    "49152:4.0480:559.4 57344:3.9216:652.9 65536:3.8330:746.4 73728:3.7604:839.8 81920:3.6946:933.3 "
    "90112:3.6434:1026.8 98304:3.5934:1120.3 106496:3.5497:1213.7 114688:3.5149:1307.2 122880:3.4808:1400.6 "
    "131072:3.4500:1494.1 139264:3.5732:1587.6 147456:3.4132:1681.2 155648:3.3829:1774.6 163840:3.3600:1868.0 "
    "172032:3.3446:1961.5 180224:3.3209:2055.0 188416:3.3060:2148.5 196608:3.2881:2241.870",
    74.573,
    ((2241870, 196608),),
)
FLORIDA_8B = PublishedLog(
    "training_results_v5.1/University-of-Florida/results/hpg.dgxb200x8.n16/llama31_8b",
    ("SUBMISSION_ORG_PLACEHOLDER", "16xSUBMISSION_PLATFORM_PLACEHOLDER", 64, 1.0, 0.0008, 8e-05, 96, 1199904),
    "24576:5.5716:74.0 49152:4.3101:148.9 73728:3.9003:224.0 98304:3.7751:299.3 122880:3.6296:374.6 "
    "147456:3.5162:449.9 172032:3.4355:525.4 196608:3.3575:600.8 221184:3.3100:676.2 245760:3.2639:751.641",
    146.73,
    ((751641, 245760),),
    cache_clear=False,
)
NVIDIA_405B = PublishedLog(
    "training_results_v5.0/NVIDIA/results/eos-dfw_n64_ngc25.01_nemo/llama31_405b",
    ("NVIDIA", "64xNVIDIA HGX H100", 1152, 288.0, 8e-05, 8e-07, 8000.0, 1192000),
    "46080:7.6554:2306.2 92160:7.0097:4617.3 138240:6.4695:6918.9 184320:6.1010:9223.1 230400:5.8377:11529.2 "
    "276480:5.5855:13837.001",
    588.845,
    ((13837001, 276480), (13846065, 276480), (13840538, 276480)),
)
NVIDIA_405B_NEXT = PublishedLog(
    "training_results_v5.1/NVIDIA/results/hsg_ngpu2560_ngc25.09_nemo/llama31_405b",
    ("NVIDIA", "640xNVIDIA GB200", 960, 24.0, 6.666666666666667e-05, 8e-07, 9600.0, 1430400),
    "288000:5.7264:981.0 307200:5.6538:1054.3 326400:5.5819:1127.630",
    435.252,
    ((1127630, 326400),),
)
FLORIDA_405B = PublishedLog(
    "training_results_v5.1/University-of-Florida/results/hpg.dgxb200x8.n32/llama31_405b",
    ("SUBMISSION_ORG_PLACEHOLDER", "32xB200", 576, 144.0, 4e-05, 8e-07, 16000.0, 2384000),
    "258048:5.6904:12522.8 276480:5.6186:13501.9 288000:5.5690:14151.864",
    470.333,
    ((14151864, 288000),),
)
