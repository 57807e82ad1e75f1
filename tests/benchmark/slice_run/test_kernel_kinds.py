import pytest

from benchmark.slice_run.kernel_kinds import KERNEL_KINDS, OPERATOR_KINDS, kind_of


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("communication", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("attention", "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_30_64x128x128_kernel0_0"),
        (
            "attention",
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>",
        ),
        ("attention", "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<...>)"),
        ("attention", "void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(void const*, void const*)"),
        ("attention", "void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)"),
        ("normalization", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"),
        ("normalization", "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>"),
        ("normalization", "triton_per_fused_native_layer_norm_3"),
        ("optimizer", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>"),
        ("optimizer", "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, double, true, double>(...)"),
        ("matmul", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN"),
        ("matmul", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"),
        ("matmul", "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>"),
        ("copies", "Memcpy DtoD (Device -> Device)"),
        ("copies", "Memset (Device)"),
        ("copies", "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIter)>"),
        ("copies", "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"),
        ("embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>"),
        ("embedding", "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, ReduceAdd>"),
        ("elementwise", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(...)>"),
        ("elementwise", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"),
        ("elementwise", "triton_poi_fused_add_gelu_7"),
        ("other", "mystery"),
    ],
)
def test_kernels_are_told_apart_by_name(kind: str, name: str) -> None:
    assert kind_of(name, KERNEL_KINDS) == kind


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("matmul", "aten::addmm"),
        ("matmul", "aten::mm"),
        ("attention", "aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
        ("normalization", "aten::native_layer_norm_backward"),
        ("optimizer", "aten::_fused_adamw_"),
        ("copies", "aten::copy_"),
        ("communication", "c10d::allreduce_"),
        ("communication", "gloo:all_reduce"),
        ("elementwise", "aten::add_"),
        ("autograd and hooks", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("other", "ProfilerStep#1"),
    ],
)
def test_operators_are_told_apart_by_name(kind: str, name: str) -> None:
    assert kind_of(name, OPERATOR_KINDS) == kind
