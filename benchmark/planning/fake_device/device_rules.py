"""Find faults that would show only on a GPU: waits of the host, and operators that only CPUs have.

A host that waits stops handing out work, and the device runs dry. PyTorch waits without a word wherever a value of the
device decides something on the host: ``.item()``, ``bool(tensor)``, shapes that depend on values, copies from and to
memory that is not pinned. Each place is named by the line of our code that led to it.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torchgen  # type: ignore[import-untyped]
from torch import Tensor

_aten: Any = torch.ops.aten
GPU = torch.device("cuda", 0)
OUR_PACKAGES = ("benchmark", "model", "tests")
"""Top-level packages whose lines are named in findings, wherever they are installed."""
DRY_RUN = ("benchmark.planning.dry_run", "benchmark.planning.fake_device")
"""Packages of the dry run itself, whose lines are not named."""

NEEDS_VALUES = {
    _aten.nonzero.default: "nonzero, whose shape depends on values",
    _aten.masked_select.default: "masked_select, whose shape depends on values",
    _aten._unique2.default: "unique, whose shape depends on values",
    _aten.unique_dim.default: "unique, whose shape depends on values",
    _aten.unique_consecutive.default: "unique_consecutive, whose shape depends on values",
    _aten.bincount.default: "bincount, whose shape depends on values",
    _aten.repeat_interleave.Tensor: "repeat_interleave, whose shape depends on values",
    _aten.equal.default: "torch.equal, which answers on the host",
}
"""Operators that wait for values of a tensor on the device, and for which no value can be made up."""
TAKES_MASKS = (_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default)
COPIES = (_aten.copy_.default, _aten._to_copy.default)


class DeviceFault(Exception):
    """Error for code that a GPU would refuse, or that would make the host wait for the GPU."""


class UnknownQuestion(DeviceFault, AttributeError):
    """Error for a question of PyTorch that the fake device has no answer to; PyTorch may ask whether it has one."""

    def __init__(self, question: str) -> None:
        super().__init__(
            f"{our_line()[0]}: PyTorch {torch.__version__} asks the dry run's fake device for {question}, which it does"
            " not know; add it to benchmark/planning/fake_device/, or install another version of PyTorch"
        )


@dataclass(frozen=True)
class HostWait:
    """One wait of the host for the device."""

    what: str
    where: str
    """Line and function of the wait, such as "benchmark/training/step.py:64 in train_step"."""


def our_line() -> tuple[str, str]:
    """Return the innermost line of our code that is being executed, and the name of its function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.split(".")[0] in OUR_PACKAGES and not module.startswith(DRY_RUN):
            function = frame.f_code.co_name
            file = Path(*module.split(".")[:-1], Path(frame.f_code.co_filename).name)
            return f"{file}:{frame.f_lineno} in {function}", function
        frame = frame.f_back
    return "outside our code", ""


@cache
def only_on_cpus(function: Any) -> bool:
    """Return whether only CPUs have the operator, by PyTorch's own table of operators: a CPU build has no CUDA kernels
    to ask for."""
    if function.namespace != "aten":
        return False
    name = function._schema.name.removeprefix("aten::")
    overload = function._schema.overload_name
    row = _rows().get(f"{name}.{overload}" if overload else name)
    return row is not None and "CPU" in row and not any(key == "CUDA" or key.startswith("Composite") for key in row)


@cache
def _rows() -> dict[str, frozenset[str]]:
    """Return the dispatch keys by operator; operators with no table of kernels of their own are left out."""
    table = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    rows = {}
    for row in re.split(r"^- func: ", table.read_text(), flags=re.MULTILINE)[1:]:
        kernels = re.search(r"^  dispatch:\n((?:    .*\n)+)", row, flags=re.MULTILINE)
        if kernels is not None and "\n  structured_delegate:" not in row:
            keys = (
                line.split(":")[0].split(",") for line in kernels[1].splitlines() if not line.strip().startswith("#")
            )
            rows[row[: row.index("(")]] = frozenset(key.strip() for names in keys for key in names)
    return rows


@dataclass
class DeviceRules:
    """Rules that each operator must keep before it runs, and the host's waits found so far."""

    pinned: Callable[[Tensor], bool]
    """Return whether the device copies a tensor without the host."""
    allowed: tuple[str, ...] = ()
    """Functions in which the host may wait."""
    strict: bool = False
    """True to raise :class:`DeviceFault` for a wait outside ``allowed``."""
    waits: list[HostWait] = field(default_factory=list)

    def add_wait(self, what: str) -> None:
        where, function = our_line()
        if self.strict and function not in self.allowed:
            raise DeviceFault(f"{where}: the host waits for the device: {what}")
        self.waits.append(HostWait(what, where))

    def value_instead(
        self, function: Any, tensors: Sequence[Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> float | None:
        """Return a made-up value for an operator that reads a value of the device; None for an operator that is to run.

        Raises DeviceFault for an operator without a kernel for CUDA, for tensors on several devices, and, while strict,
        for operators that make the host wait.
        """
        on_gpu = any(tensor.device.type == "cuda" for tensor in tensors)
        if function in COPIES:
            self._copy(function, args, kwargs)
        elif not on_gpu:
            return None
        elif function is _aten._local_scalar_dense.default:
            self.add_wait("a value is read, as by .item(), float() or bool()")
            return 1.0
        else:
            if only_on_cpus(function):
                raise DeviceFault(f"{our_line()[0]}: {function} has no kernel for CUDA")
            self._same_device(function, tensors)
            self._shape_from_values(function, tensors)
        return None

    def _shape_from_values(self, function: Any, tensors: Sequence[Tensor]) -> None:
        if function in NEEDS_VALUES:
            self.add_wait(NEEDS_VALUES[function])
            raise DeviceFault(f"{our_line()[0]}: {NEEDS_VALUES[function]}")
        if function in TAKES_MASKS and any(tensor.dtype == torch.bool for tensor in tensors[1:]):
            self.add_wait("indexing by a mask, whose shape depends on values")

    @staticmethod
    def _same_device(function: Any, tensors: Sequence[Tensor]) -> None:
        """Raise DeviceFault for tensors on several devices; a scalar on the host is allowed."""
        if len({tensor.device for tensor in tensors}) == 1:
            return
        used = {tensor.device for tensor in tensors if tensor.dim() or tensor.device.type != "cpu"}
        if len(used) > 1:
            devices = " and ".join(sorted(map(str, used)))
            raise DeviceFault(f"{our_line()[0]}: {function} on tensors of {devices}")

    def _copy(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check a copy. A copy to the host that does not block makes its own pinned memory, unless it has a target."""
        if function is _aten.copy_.default:
            target, source = args[0].device, args[1]
            non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
            host_side = [tensor for tensor in args[:2] if tensor.device.type == "cpu"]
        else:
            source = args[0]
            target, non_blocking = kwargs.get("device") or source.device, kwargs.get("non_blocking", False)
            target = GPU if target.type == "meta" else target
            host_side = [source] if source.device.type == "cpu" else []
        if "cuda" not in (source.device.type, target.type) or source.device.type == target.type:
            return
        direction = f"a copy from {source.device.type} to {target.type}"
        if not non_blocking:
            self.add_wait(f"{direction} without non_blocking")
        elif not all(map(self.pinned, host_side)):
            self.add_wait(f"{direction}, by memory that is not pinned")
