"""Adam on the FP32 shards, and the gradient norm it is clipped by (reference facts e)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from benchmark.config import OptimizerConfig

MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """AdamW over this process's shards of the parameters, in one parameter group that decays everything.

    NVIDIA apex's FusedAdam where it is importable and the parameters are on a GPU, else PyTorch's fused AdamW: the
    same update, rounded in another order.
    """

    def __init__(self, parameters: Mapping[str, DTensor], config: OptimizerConfig) -> None:
        self._parameters = dict(parameters)
        self._shards = {name: local(parameter.detach()) for name, parameter in self._parameters.items()}
        self._inner = _implementation(list(self._shards.values()), config)
        self._moments = {
            moment: {name: torch.zeros_like(parameter.detach()) for name, parameter in self._parameters.items()}
            for moment in MOMENTS
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
        """Sum of squares of this process's gradient shards, a float64 scalar on the device."""
        norms = torch._foreach_norm(self._gradients())
        return torch.stack([norm.double() for norm in norms]).square().sum()

    def scale_gradients(self, factor: float) -> None:
        torch._foreach_mul_(self._gradients(), factor)

    def update(self, learning_rate: float) -> None:
        """One step with the gradients as they are."""
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


def local(tensor: Tensor) -> Tensor:
    """This process's part of a DTensor; shares its memory."""
    assert isinstance(tensor, DTensor)
    return tensor.to_local()


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def clip_coefficient(norm: float, clip_grad: float) -> float:
    """Factor for the gradients: clip / (norm + 1e-6) where that is below 1, as Megatron has it."""
    return min(1.0, clip_grad / (norm + 1e-6))


def apex_adam() -> Callable[..., torch.optim.Optimizer] | None:
    """NVIDIA apex's FusedAdam where it is importable; None without it, or with PyPI's package of the same name."""
    try:
        from apex.optimizers import FusedAdam
    except ImportError:
        return None
    return FusedAdam  # type: ignore[no-any-return]


def _implementation(shards: list[Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    options: dict[str, Any] = {
        "lr": config.lr,
        "betas": (config.adam_beta1, config.adam_beta2),
        "eps": config.adam_eps,
        "weight_decay": config.weight_decay,
    }
    fused_adam = apex_adam() if shards[0].is_cuda else None
    if fused_adam is not None:
        return fused_adam(shards, adam_w_mode=True, bias_correction=True, **options)
    return torch.optim.AdamW(shards, fused=True, **options)
