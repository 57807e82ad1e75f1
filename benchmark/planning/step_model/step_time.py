"""The time of a pass or of a whole step, by cause."""

from dataclasses import dataclass
from operator import add


@dataclass(frozen=True)
class StepTime:
    """Seconds by cause; they add up to the whole. A pass has none of the last five."""

    matmul: float = 0.0
    attention: float = 0.0
    elementwise: float = 0.0
    """Seconds of norms, activations, residuals, dropout, casts, separate accumulation, losses."""
    recomputed: float = 0.0
    """Seconds of forward operations repeated in the backward pass, all kinds."""
    tensor_messages: float = 0.0
    """Exposed seconds: messages that no matrix product hides, and the slowdown of products by hidden messages."""
    host: float = 0.0
    """Seconds of waiting for the host to launch."""
    losses: float = 0.0
    """Seconds of the stack's loss that no operation accounts for."""
    bubble: float = 0.0
    """Seconds of waiting within the pipeline: filling and draining, slower stages, messages."""
    data_messages: float = 0.0
    """Exposed seconds in which gradients are summed and parameters gathered over data-parallel devices."""
    update: float = 0.0
    jitter: float = 0.0
    """Seconds of waiting for the slowest device."""
    fixed: float = 0.0
    """Seconds of input, gradient norm and logging."""

    @property
    def total(self) -> float:
        return float(sum(vars(self).values()))

    def __add__(self, summand: "StepTime") -> "StepTime":
        return StepTime(*map(add, vars(self).values(), vars(summand).values()))

    def times(self, factor: float) -> "StepTime":
        return StepTime(*(seconds * factor for seconds in vars(self).values()))
