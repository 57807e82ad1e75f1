"""What the switches of a run switch on (benchmark/config/debug_switches.py)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmark.config.debug_switches import DebugSwitches
from benchmark.config.run_config import RunConfig
from benchmark.debugging.collective_trace import recorder_environment
from benchmark.debugging.memory_snapshot import snapshot_when_out_of_memory
from benchmark.debugging.nvtx_ranges import NvtxRanges
from benchmark.debugging.step_profiler import ChromeTrace, NsysRange, Recording, StepProfiler
from benchmark.launch.attempt_folder import rank_file
from benchmark.launch.phases import PhaseLog


def debug_environment(switches: DebugSwitches, device: str, attempt: Path) -> dict[str, str]:
    """Variables that NCCL and PyTorch read when the processes meet; none without GPUs."""
    if device != "cuda":
        return {}
    found = recorder_environment(attempt.absolute())
    if switches.nccl_debug is not None:
        found["NCCL_DEBUG"] = switches.nccl_debug
        found["NCCL_DEBUG_FILE"] = str(attempt.absolute() / "nccl.%h.%p.log")  # host and process
    return found


@contextmanager
def debugging(config: RunConfig, attempt: Path, rank: int, phases: PhaseLog) -> Iterator[None]:
    """Observe the phases of this process as the switches say, and finish what is being written at the end."""
    switches, start = config.debug, config.benchmark.start_iteration
    if switches.memory_snapshot:
        attempt.mkdir(parents=True, exist_ok=True)
        snapshot_when_out_of_memory(rank_file(attempt, rank, "memory.pickle"))
    if switches.nvtx:
        phases.add(NvtxRanges(start))
    steps = switches.profiled_steps
    if steps is None or rank not in switches.profile_ranks:
        yield
        return
    recording = _recording(config, rank, steps)
    profiler = StepProfiler(recording, *steps, start_iteration=start)
    phases.add(profiler)
    yield
    profiler.close()


def _recording(config: RunConfig, rank: int, steps: tuple[int, int]) -> Recording:
    if config.debug.nvtx:
        return NsysRange()
    name = f"steps_{steps[0]}_{steps[1]}_rank_{rank:05d}.json.gz"
    return ChromeTrace(config.run_dir / "profile" / name, config.system.device)
