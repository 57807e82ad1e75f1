"""Adam on the FP32 shards, and the gradient norm it is clipped by (docs/facts/reference.md e)."""

import math
from collections.abc import Container, Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, zeros

from benchmark.config.benchmark_config import OptimizerConfig
from model.kernels import adam

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """AdamW over this rank's shards of the parameters. All of them decay, or all but the vectors, by the configuration.

    model/kernels.py chooses the kernel.
    """

    def __init__(
        self,
        parameters: Mapping[str, DTensor],
        config: OptimizerConfig,
        *,
        counted_elsewhere: Container[str] = (),
        updates: bool = True,
    ) -> None:
        """``counted_elsewhere``: parameters whose copy on another rank counts in the norm. ``updates``: False for
        parameters that are not updated, and have no moments, which take twice the weights' memory."""
        self._parameters = dict(parameters)
        self._shards = {name: local(parameter).detach() for name, parameter in self._parameters.items()}
        shares = [
            0.0 if name in counted_elsewhere else 1 / number_of_copies(value) for name, value in parameters.items()
        ]
        device = next(iter(self._shards.values())).device
        self._shares = torch.tensor(shares, dtype=torch.float64, device=device)
        undecayed = {name for name, value in parameters.items() if value.dim() == 1 and not config.decays_vectors}
        self._inner = adam(
            [shard for name, shard in self._shards.items() if name not in undecayed],
            lr=config.lr,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_eps,
            weight_decay=config.weight_decay,
        )
        if undecayed:
            vectors = [shard for name, shard in self._shards.items() if name in undecayed]
            self._inner.add_param_group({"params": vectors, "weight_decay": 0.0})
        self._moments = {
            moment: {name: _zeros_like(parameter) for name, parameter in self._parameters.items()}
            for moment in (MOMENTS if updates else ())
        }

    def start_at(self, step: int) -> None:
        """Attach the moments (see :meth:`moments`) and set the step counter that bias correction uses."""
        for group in self._inner.param_groups:
            group["step"] = step  # where apex keeps it
        for name, shard in self._shards.items():
            self._inner.state[shard] = {
                "step": torch.tensor(float(step), device=shard.device),  # where PyTorch keeps it
                **{moment: local(self._moments[moment][name]) for moment in MOMENTS},
            }

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """Adam's moments, by moment and parameter name; writing to them changes the optimizer's."""
        return self._moments

    def gradient_square_sum(self) -> Tensor:
        """This process's share of the sum of squares of the whole gradient, a float64 scalar on the device.

        Parameters held by several processes are counted once in the sum over all processes (docs/facts/reference.md e).
        """
        # In FP32 a sum over millions of squares is off by up to 1e-5, and more so the larger this process's parts are.
        norms = torch.stack(torch._foreach_norm(self._gradients(), 2, torch.float64))
        return norms.square().mul_(self._shares).sum()

    def scale_gradients(self, factor: float) -> None:
        torch._foreach_mul_(self._gradients(), factor)

    def update(self, learning_rate: float) -> None:
        """Take one step with the gradients as they are."""
        for name, shard in self._shards.items():
            shard.grad = local(gradient_of(self._parameters[name]))
        for group in self._inner.param_groups:
            group["lr"] = learning_rate
        self._inner.step()

    def clear_gradients(self) -> None:
        for name, shard in self._shards.items():
            shard.grad = self._parameters[name].grad = None

    def _gradients(self) -> list[Tensor]:
        return [local(gradient_of(parameter)) for parameter in self._parameters.values()]


def number_of_copies(parameter: DTensor) -> int:
    """Return the number of processes that hold the same part of the parameter."""
    sizes = parameter.device_mesh.shape
    placements = zip(sizes, parameter.placements, strict=True)
    return math.prod(size for size, placement in placements if placement.is_replicate())


def _zeros_like(parameter: DTensor) -> Tensor:
    """Return moments at zero. ``torch.zeros_like`` would derive the placements, which are given, for each shape."""
    mesh, placements = parameter.device_mesh, parameter.placements
    return zeros(parameter.shape, dtype=parameter.dtype, device_mesh=mesh, placements=placements)


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a DTensor; the two share memory."""
    assert isinstance(tensor, DTensor)
    return tensor.to_local()


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def clip_coefficient(norm: float, clip_grad: float) -> float:
    """Return the factor for the gradients: clip / (norm + 1e-6) if that is below 1, else 1, as in Megatron."""
    return min(1.0, clip_grad / (norm + 1e-6))
