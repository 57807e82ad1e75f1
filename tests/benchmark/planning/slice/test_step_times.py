"""Where a step's time went, from made-up events of a GPU and real ones of a CPU."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from benchmark.planning.slice.step_times import (
    KERNEL_KINDS,
    OPERATOR_KINDS,
    StepTimes,
    covered,
    cpu_times,
    gpu_times,
    kind_of,
)


def event(name: str, begin_us: float, end_us: float, device: Any = DeviceType.CUDA, *, named: bool = False) -> Any:
    span = SimpleNamespace(start=begin_us, end=end_us)
    return SimpleNamespace(name=name, time_range=span, device_type=device, is_user_annotation=named)


def call(name: str, begin_us: float, end_us: float) -> Any:
    return event(name, begin_us, end_us, DeviceType.CPU)


def test_communication_beside_which_nothing_runs_is_exposed() -> None:
    times = gpu_times(
        [
            event("nvjet_a", 1e6, 3e6),
            event("ncclDevKernel_AllGather", 2e6, 5e6),
            event("nccl:all_gather", 2e6, 9e6, named=True),
            event("mystery", 4e6, 6e6),
            event("ncclDevKernel_ReduceScatter", 7e6, 8e6),
            event("Memset (Device)", 7.5e6, 7.75e6),
        ]
    )
    assert times.by_kind_s == {"communication": 4.0, "matmul": 2.0, "other": 2.0, "copies": 0.25}
    found = (times.communication_s, times.exposed_communication_s, times.idle_s)
    assert found == pytest.approx((4.0, 1.0 + 0.75, 1.0))
    assert (times.kernels, times.host_s, times.unknown_kernels) == (5, None, ("mystery",))
    assert gpu_times([call("cudaLaunchKernel", 0, 1)]) == StepTimes({})


def test_the_host_s_time_leaves_out_calls_that_wait() -> None:
    calls = [
        call("cudaLaunchKernel", 0, 5),
        call("cudaLaunchKernel", 20, 30),
        call("cudaLaunchKernelExC", 40, 1_000_000),  # the queue was full
        call("cudaStreamSynchronize", 1_000_010, 2_000_000),
        call("Activity Buffer Request", 2_000_000, 2_000_030),
    ]
    assert gpu_times([event("nvjet_a", 0, 2_000_000), *calls]).host_s == pytest.approx(50e-6)


def test_intervals_are_counted_once() -> None:
    assert covered([(3.0, 4.0), (0.0, 1.0), (1.0, 2.0), (3.5, 3.6)]) == 3.0


def test_a_cpu_s_operators_by_kind() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.nn.functional.layer_norm(torch.ones(64, 64) @ torch.ones(64, 64), (64,))
    found = cpu_times(profile.key_averages())
    assert {"matmul", "normalization"} <= set(found.by_kind_s)
    assert found.kernels is None


KERNELS = {
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_30_64x128x128_kernel0_0": "attention",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>": "attention",
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...>)": "attention",
    "void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(void const*, void const*)": "attention",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>": "normalization",
    "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>": "normalization",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>": "optimizer",
    "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, double, true, double>(...)": "optimizer",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN": "matmul",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute": "matmul",
    "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>": "matmul",
    "Memcpy DtoD (Device -> Device)": "copies",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": "copies",
    "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, ReduceAdd>": "embedding",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(...)>": "elementwise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "elementwise",
}
OPERATORS = {
    "aten::addmm": "matmul",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "attention",
    "aten::native_layer_norm_backward": "normalization",
    "aten::_fused_adamw_": "optimizer",
    "aten::copy_": "copies",
    "gloo:all_reduce": "communication",
    "aten::add_": "elementwise",
    "ProfilerStep#1": "other",
}


def test_kernels_and_operators_are_told_apart_by_name() -> None:
    assert {name: kind_of(name, KERNEL_KINDS) for name in KERNELS} == KERNELS
    assert {name: kind_of(name, OPERATOR_KINDS) for name in OPERATORS} == OPERATORS
