"""BF16 for zarr-python 3, which knows no such dtype: with it ``zarr.open(FOLDER)[:]`` reads the arrays of BF16 weights.

Importing this module registers it (zarr 3.1 has an entry point for that, and does not look at it). zarr 2 needs no more
than ``import tensorstore``, which makes the dtype known to NumPy. Nothing else here imports zarr.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import ml_dtypes
import numpy as np
from zarr.dtype import DataTypeValidationError, ZDType, data_type_registry

NAME = "bfloat16"
"""What TensorStore writes as the dtype of a zarr array, format 2 or 3."""
NATIVE = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class BFloat16(ZDType[Any, Any]):
    """Two bytes, little-endian."""

    dtype_cls: ClassVar[type[Any]] = type(NATIVE)
    _zarr_v3_name: ClassVar[Any] = NAME

    item_size: ClassVar[int] = 2

    @classmethod
    def from_native_dtype(cls, dtype: Any) -> Self:
        """Raises DataTypeValidationError for any dtype but BF16, as zarr expects."""
        if dtype != NATIVE:
            raise DataTypeValidationError(f"{dtype}: expected {NAME}")
        return cls()

    def to_native_dtype(self) -> Any:
        return NATIVE

    @classmethod
    def _from_json_v2(cls, data: Any) -> Self:
        return cls._from_json(data["name"] if isinstance(data, dict) else data)

    @classmethod
    def _from_json_v3(cls, data: Any) -> Self:
        return cls._from_json(data)

    @classmethod
    def _from_json(cls, name: Any) -> Self:
        if name != NAME:
            raise DataTypeValidationError(f"{name}: expected {NAME}")
        return cls()

    def to_json(self, zarr_format: int) -> Any:
        return {"name": NAME, "object_codec_id": None} if zarr_format == 2 else NAME

    def _check_scalar(self, data: object) -> bool:
        return isinstance(data, int | float | ml_dtypes.bfloat16)

    def cast_scalar(self, data: Any) -> Any:
        return ml_dtypes.bfloat16(data)

    def default_scalar(self) -> Any:
        return ml_dtypes.bfloat16(0)

    def from_json_scalar(self, data: Any, *, zarr_format: int) -> Any:
        return ml_dtypes.bfloat16(data)

    def to_json_scalar(self, data: object, *, zarr_format: int) -> Any:
        return float(ml_dtypes.bfloat16(data))


data_type_registry.register(NAME, BFloat16)
