import json
from pathlib import Path
from typing import Any

import pytest

from benchmark.slice_run.step_trace import Activity, length, read_trace, step_times, union


def kernel(name: str, begin: float, end: float) -> Activity:
    return Activity(name, "kernel", begin, end)


def test_communication_beside_which_nothing_runs_is_exposed() -> None:
    times = step_times(
        [
            kernel("nvjet_a", 1.0, 3.0),
            kernel("ncclDevKernel_AllGather", 2.0, 5.0),
            kernel("nvjet_b", 4.0, 6.0),
            kernel("ncclDevKernel_ReduceScatter", 7.0, 8.0),
            Activity("Memset (Device)", "gpu_memset", 7.5, 7.75),
        ]
    )
    assert times is not None
    assert times.span_s == pytest.approx(7.0)
    assert times.communication_s == pytest.approx(4.0)
    assert times.exposed_communication_s == pytest.approx(1.0 + 0.75)
    assert times.idle_s == pytest.approx(1.0)
    assert times.by_kind_s == pytest.approx({"matmul": 4.0, "communication": 4.0, "copies": 0.25})
    assert list(times.by_kind_s)[-1] == "copies"
    assert (times.kernels, times.host_s, times.unknown_kernels) == (5, None, ())


def test_the_host_s_time_leaves_out_calls_that_wait() -> None:
    calls = [
        Activity("cudaLaunchKernel", "cuda_runtime", 0.0, 5e-6),
        Activity("cudaLaunchKernel", "cuda_runtime", 20e-6, 30e-6),
        Activity("cudaLaunchKernelExC", "cuda_runtime", 40e-6, 1.0),  # the queue was full
        Activity("cudaStreamSynchronize", "cuda_runtime", 1.00001, 2.0),
    ]
    times = step_times([kernel("nvjet_a", 0.0, 2.0), *calls])
    assert times is not None and times.host_s is not None
    assert times.host_s == pytest.approx(50e-6)


def test_nothing_on_the_device_is_no_time() -> None:
    assert step_times([Activity("cudaLaunchKernel", "cuda_runtime", 0.0, 1.0)]) is None


def test_names_of_no_known_kind_are_told_the_longest_first() -> None:
    times = step_times([kernel("short", 0.0, 1.0), kernel("long", 1.0, 3.0), kernel("short", 3.0, 3.5)])
    assert times is not None
    assert times.unknown_kernels == ("long", "short")
    assert times.by_kind_s == {"other": 3.5}


def test_intervals_are_merged() -> None:
    assert union([(3.0, 4.0), (0.0, 1.0), (1.0, 2.0), (3.5, 3.6)]) == [(0.0, 2.0), (3.0, 4.0)]
    assert length([(0.0, 2.0), (3.0, 4.0)]) == 3.0


def test_a_trace_is_read_without_annotations_and_operators(tmp_path: Path) -> None:
    def event(category: str, name: str, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "name": name, "ts": 1_000_000.0, "dur": 500.0, **more}

    events = [
        event("kernel", "nvjet_a", args={"stream": 7}),
        event("gpu_user_annotation", "nccl:all_gather"),
        event("cpu_op", "aten::mm"),
        event("cuda_runtime", "cudaLaunchKernel"),
        {"ph": "M", "name": "process_name"},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = read_trace(path)
    assert [(one.name, one.category) for one in found] == [("nvjet_a", "kernel"), ("cudaLaunchKernel", "cuda_runtime")]
    assert found[0].interval == pytest.approx((1.0, 1.0005))
