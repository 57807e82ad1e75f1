"""A system by its name, or by a TOML file of the user's with the fields of ``System``::

nodes = 4
devices_per_node = 8
accelerator = "H100 SXM"
tensor_parallel = 4
pipeline_parallel = 8
"""

import difflib
import tomllib
from dataclasses import fields
from pathlib import Path

import msgspec

from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from stage.errors import InputError
from stage.regular_files import read_regular

SUFFIX = ".toml"
LARGEST_FILE = 1 << 20
USUAL = {"device": "cuda", "micro_batch_size": 1}
"""Of a file that does not say them."""


def system_called(name: str) -> System:
    """The shipped system of that name, or that of a TOML file. Raises InputError where there is none."""
    if name.endswith(SUFFIX):
        return read_system(Path(name))
    if name in SYSTEMS:
        return SYSTEMS[name]
    close = difflib.get_close_matches(name, SYSTEMS, 1)
    hint = f"did you mean {close[0]}? There are" if close else "there are"
    raise InputError(f"unknown system {name!r}; {hint} {', '.join(SYSTEMS)}, or a TOML file of yours")


def read_system(path: Path) -> System:
    """The system has the file's name. Raises InputError, with the field, for a file that describes none."""
    mend = "expected the fields of a system, as docs/planning.md lists them"
    try:
        table = tomllib.loads(read_regular(path, LARGEST_FILE).decode())
        others = table.keys() - {field.name for field in fields(System)} | table.keys() & {"name"}
        if others:
            raise InputError(f"{path}: {', '.join(sorted(others))[:200]}: no field of a system; {mend}")
        return msgspec.convert({**USUAL, **table, "name": path.stem}, System)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {mend}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or a field of another kind
        raise InputError(f"{path}: {error}; {mend}") from None
    except InputError as error:  # fields that do not fit together
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
