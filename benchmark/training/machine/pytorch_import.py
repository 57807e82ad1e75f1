"""Import PyTorch with a third of its file calls: 2,048 ranks that start read one disk.

While PyTorch is imported it asks, for each of its 117 operators with a fake implementation, in which module the caller
is (torch/library.py, ``_register_fake``). ``inspect.getmodule`` answers by resolving the paths of all modules, with a
call for each folder of each path. A frame names its module: that is the same answer without a file.

None of the 300,000 objects that this makes is garbage. The search for it, here and later, would take 0.5 s.
"""

import gc
import importlib
import inspect
import sys
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

IMPORTED = ("torch", "torch.distributed.tensor", "torch._dynamo")
"""PyTorch imports the last when the first distributed tensor is made."""


def import_pytorch() -> None:
    """Import the parts of PyTorch that a rank uses, once; later imports find them."""
    look_up = inspect.getmodule

    def module_of(subject: Any, _filename: str | None = None) -> ModuleType | None:
        if isinstance(subject, FrameType) and (module := sys.modules.get(subject.f_globals.get("__name__", ""))):
            return module
        return look_up(subject, _filename)

    was_on = gc.isenabled()
    gc.disable()
    try:
        with mock.patch.object(inspect, "getmodule", module_of):
            for name in IMPORTED:
                importlib.import_module(name)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
