"""What a kernel or an operator is for, by its name: data.

Kernels' names are those of PyTorch 2.11 to 2.13 and the libraries it calls; a name that nobody knows is "other", and
the slice prints the largest of these, so that a row can be added.
"""

import re

KERNEL_KINDS: tuple[tuple[str, str], ...] = (
    ("communication", r"nccl|multimem|one_shot_all|two_shot_all"),
    ("attention", r"fmha|flash|sdpa|attention|attn|compute_dot_do_o|convert_dq_to"),
    ("normalization", r"layer_?norm|LayerNorm|GammaBeta|rms_?norm|cuComputeGradInput|cuComputePartGrad"),
    ("optimizer", r"multi_tensor|adam|foreach|lpnorm"),
    ("matmul", r"gemm|nvjet|cutlass|xmma|cublas|splitk|s16816|h16816"),
    ("copies", r"^mem(cpy|set)|copy_kernel|direct_copy|CatArray|chunk_cat|split_with_sizes|FillFunctor"),
    ("embedding", r"embedding|index(Select|Func|_elementwise)|gather|scatter|radix|sort|krn_partial|compute_grad_w"),
    ("elementwise", r"elementwise|triton_|reduce_kernel|gelu|softmax|vectorized"),
)
"""Kinds of kernels on a GPU and what is found in their names, whatever the case; the first that fits."""

OPERATOR_KINDS: tuple[tuple[str, str], ...] = (
    ("communication", r"^(c10d|_c10d_functional|gloo|nccl)\b"),
    ("attention", r"scaled_dot_product|attention"),
    ("normalization", r"layer_norm"),
    ("optimizer", r"_foreach|adam|Optimizer\."),
    ("matmul", r"::(mm|addmm|addmm_|bmm|baddbmm|linear|matmul)$"),
    ("copies", r"copy|clone|contiguous|::to$|::cat$|::zero_$|::fill_$|empty|::stack$"),
    ("embedding", r"embedding|::gather|scatter|index"),
    ("elementwise", r"aten::"),
    ("autograd and hooks", r"autograd|backward|fsdp|function|pipeline|record_param"),
)
"""Likewise of PyTorch's operators on a CPU, by the time in themselves, without what they call."""

OTHER = "other"


def kind_of(name: str, kinds: tuple[tuple[str, str], ...]) -> str:
    """The first kind whose pattern is found in ``name``; ``OTHER`` without one."""
    return next((kind for kind, pattern in kinds if re.search(pattern, name, re.IGNORECASE)), OTHER)
