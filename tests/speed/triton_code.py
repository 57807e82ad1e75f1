"""The Triton code of the fused kernels, generated and compiled without a GPU: kernels, bytes and machine code.

python -m tests.speed.triton_code [--benchmark llama31_8b] [--tensor-parallel 2] [--linear fp8] [--show]

PyTorch's inductor asks a GPU for its properties alone until it runs a kernel. Here an H100's properties answer, tensors
have shapes and no values, and Triton (``pip install triton``, of the version that PyTorch's CUDA build needs) compiles
each kernel to machine code. Nothing is run, and no time is known. ``--show`` prints the code.
"""

import argparse
import importlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmark.config.benchmarks import BENCHMARKS
from model.fused_kernel import known_options
from model.passes.linear.linear_formats import LINEAR_FORMATS
from model.passes.pass_sizes import MOST_TERMS
from model.passes.proofs.kernel_examples import AnyKernel, PassTensors, kernels_of

H100 = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    shared_memory_per_block_optin=232448,
)
IN_TORCH_CUDA: dict[str, Any] = {
    **dict.fromkeys(("is_available", "is_initialized"), True),
    **dict.fromkeys(("current_device", "_exchange_device", "_maybe_exchange_device"), 0),
    **dict.fromkeys(("synchronize", "_lazy_init", "set_rng_state"), None),
    "device_count": 1,
    "get_device_properties": H100,
    "get_device_capability": (9, 0),
    "get_rng_state": torch.zeros(16, dtype=torch.uint8),
    "current_stream": SimpleNamespace(cuda_stream=0),
    "is_current_stream_capturing": False,
}


class Shapes(PassTensors):
    """Tensors without values."""

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device="meta")


def _answer(value: Any) -> Callable[..., Any]:
    """Return a function of its own for each question: the compiler keeps them in a table."""
    return lambda *_: value


@contextmanager
def imagined_gpu(codes: list[str]) -> Iterator[None]:
    """Let inductor compile for an H100; ``codes`` gets the code that it generates."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config, graph
    from torch._inductor.fx_passes import fuse_attention, joint_graph, misc_patterns, pad_mm
    from torch._inductor.runtime import static_triton_launcher, triton_helpers

    triton = importlib.import_module("triton")
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda _: 0)
    )
    with ExitStack() as stack:
        for name, value in IN_TORCH_CUDA.items():
            stack.enter_context(patch.object(torch.cuda, name, _answer(value)))
            if hasattr(CudaInterface, name):
                stack.enter_context(patch.object(CudaInterface, name, staticmethod(_answer(value))))
        for name in ("get_raw_stream", "exchange_device", "maybe_exchange_device"):
            stack.enter_context(patch.object(CudaInterface, name, staticmethod(lambda *_: 0)))
        stack.enter_context(patch.object(CudaInterface.Worker, "get_device_properties", staticmethod(lambda *_: H100)))
        stack.enter_context(patch.object(CudaInterface.Worker, "current_device", staticmethod(lambda *_: 0)))
        stack.enter_context(patch.object(torch.version, "cuda", "13.0"))
        stack.enter_context(patch.object(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0, create=True))
        for module, name in ((fuse_attention, "_sfdp_init"), (pad_mm, "_pad_mm_init")):  # they make tensors there
            stack.enter_context(patch.object(module, name, lambda *_: None))
        stack.enter_context(patch.object(misc_patterns, "_misc_patterns_init", lambda *_: None))
        stack.enter_context(patch.object(joint_graph, "constant_fold_uniform_value", lambda *_: None))
        launcher = static_triton_launcher.StaticallyLaunchedTritonKernel
        stack.enter_context(patch.object(launcher, "load_kernel", _not_loaded))
        stack.enter_context(patch.object(triton_helpers, "set_driver_to_gpu", lambda: None))
        stack.enter_context(patch.object(graph.GraphLowering, "save_output_code", staticmethod(codes.append)))
        stack.enter_context(config.patch({"compile_threads": 1, "fx_graph_cache": False}))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(torch.inference_mode())
        yield


def generated_code(kernel: AnyKernel, arguments: Sequence[Any]) -> tuple[str, int]:
    """Return the code for a call, and the number of kernels that were compiled to machine code."""

    def function(*inputs: Any) -> Any:
        """What is changed in place is changed in a copy: this PyTorch cannot copy to a GPU, not even in a trace."""
        copies = [x.clone() if position in kernel.changes else x for position, x in enumerate(inputs)]
        return kernel.function(*copies) if not kernel.changes else (kernel.function(*copies), copies[0])[1]

    torch._dynamo.reset()
    codes: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
        with patch.dict("os.environ", caches), imagined_gpu(codes):
            on_gpu = [_on_gpu(x) if isinstance(x, torch.Tensor) else x for x in arguments]
            options = known_options(deterministic=False)
            try:
                torch.compile(function, fullgraph=True, dynamic=False, options=options)(*on_gpu)
            except Exception:
                if not codes:
                    raise  # with code, only the call on a device is left, which fails
        kernels = {path.stem for path in Path(folder).rglob("*.cubin")}
    return codes[0], len(kernels)


def _on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")


def _not_loaded(kernel: Any, _: int) -> None:
    """Answer in the place of the driver, which has no such function, registers or spilled values to tell."""
    kernel.module, kernel.function, kernel.n_regs, kernel.n_spills = 0, 0, 0, 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", default="llama31_8b")
    parser.add_argument("--tensor-parallel", type=int, default=2)
    parser.add_argument("--linear", choices=LINEAR_FORMATS, default="plain", help="format of the linear layers")
    parser.add_argument("--show", action="store_true", help="print the code")
    options = parser.parse_args()
    sizes = BENCHMARKS[options.benchmark].model
    terms = MOST_TERMS if options.linear == "fp8" else 1
    tensors = Shapes(sizes, options.tensor_parallel, 1, torch.bfloat16, torch.device("meta"))
    for kernel, example in kernels_of(sizes, options.tensor_parallel, options.linear, terms):
        arguments = example(tensors)
        moved = kernel.bytes_moved(arguments, kernel.function(*arguments))
        code, compiled = generated_code(kernel, arguments)
        names = re.findall(r"^def (triton_\w+)\(", code, re.MULTILINE)
        accesses = [len(re.findall(pattern, code)) for pattern in (r"tl\.load\(", r"tl\.store\(")]
        print(
            f"{kernel.name:38}{len(names)} kernels, {compiled} compiled for sm_90; {moved / 1e6:7.1f} MB; "
            f"{accesses[0]} loads, {accesses[1]} stores in the code",
            flush=True,
        )
        if options.show:
            print(code)


if __name__ == "__main__":
    main()
