"""Stands in for nvidia-ml-py on a machine with three H100s; what is not in ``SAYS`` is not supported."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

COUNT = 3
SPEED = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=26562))
SAYS: dict[tuple[object, ...], Any] = {
    ("nvmlDeviceGetName",): "NVIDIA H100 80GB HBM3",
    ("nvmlDeviceGetMemoryInfo",): SimpleNamespace(total=81559 << 20),
    ("nvmlDeviceGetMaxPcieLinkGeneration",): 5,
    ("nvmlDeviceGetMaxPcieLinkWidth",): 16,
    ("nvmlDeviceGetUtilizationRates",): SimpleNamespace(gpu=98),
    ("nvmlDeviceGetClockInfo", 1): 1095,
    ("nvmlDeviceGetMaxClockInfo", 1): 1980,
    ("nvmlDeviceGetPowerUsage",): 412_300,
    ("nvmlDeviceGetEnforcedPowerLimit",): 700_000,
    ("nvmlDeviceGetTemperature", 0): 91,
    ("nvmlDeviceGetCurrentClocksThrottleReasons",): 0x44,
    ("nvmlDeviceGetTotalEccErrors", 0, 0): 7,
    ("nvmlDeviceGetTotalEccErrors", 1, 0): 0,
    ("nvmlDeviceGetRemappedRows",): (1, 2, True, False),
    **{("nvmlDeviceGetNvLinkState", link): 1 for link in range(18)},
    ("nvmlDeviceGetNvLinkErrorCounter", 0, 0): 5,
    ("nvmlDeviceGetNvLinkErrorCounter", 0, 1): 2,
    ("nvmlDeviceGetFieldValues", "[90]"): [SPEED],
}


class NVMLError(Exception):
    pass


def nvmlInit() -> None:  # noqa: N802
    if not COUNT:
        raise NVMLError("Driver Not Loaded")


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return "560.35.03"


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return COUNT


def nvmlDeviceGetHandleByUUID(uuid: str) -> str:  # noqa: N802
    return uuid


def nvmlDeviceGetHandleByIndex(index: int) -> str:  # noqa: N802
    return f"number {index}"


def __getattr__(name: str) -> Callable[..., Any]:
    if not any(key[0] == name for key in SAYS):
        raise AttributeError(name)

    def ask(handle: object, *arguments: object) -> Any:
        known = (name, *(str(one) if isinstance(one, list) else one for one in arguments))
        if (name, handle, *known[1:]) in SAYS:  # of one GPU alone
            return SAYS[name, handle, *known[1:]]
        if known not in SAYS:
            raise NVMLError("Not Supported")
        return SAYS[known]

    return ask
