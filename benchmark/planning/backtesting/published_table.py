"""Reading ``published_results.toml``, which holds the figures as their sources print them; every row is checked."""

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.config.accelerators import ACCELERATORS
from benchmark.planning.backtesting.published_results import (
    MEASURED_KINDS,
    PRECISION_FACTORS,
    RECOMPUTES,
    SHARDINGS,
    PublishedModel,
    PublishedResult,
    ResultSource,
)
from stage.errors import InputError

PUBLISHED_RESULTS = Path(__file__).with_name("published_results.toml")
MOST_BYTES = 4 << 20
"""Of a table of results; more is refused before it is read."""

_TYPES: dict[Any, tuple[type, ...]] = {
    int: (int,),
    int | None: (int,),
    float: (int, float),
    float | None: (int, float),
    bool: (bool,),
    str: (str,),
    tuple[str, ...]: (tuple,),
}
"""What a field of a type may hold in the file; whole numbers stand for floats."""


def load_published_results(path: Path = PUBLISHED_RESULTS) -> list[PublishedResult]:
    """All results of the table, in its order.

    Raises InputError, with the file and the result's id, for what cannot be read, a field that is missing, unknown or
    of the wrong type, sizes that do not multiply out, and a speed that no device has.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise InputError(f"{path}: {size:,} bytes; a table of results has at most {MOST_BYTES:,}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}; a table of results is a TOML file") from error
    sources = {name: _built(ResultSource, {"name": name} | row, f"{path}: source {name}")
               for name, row in _tables(table, "sources", path).items()}  # fmt: skip
    results = [
        _result(row, sources, _tables(table, "models", path), f"{path}: result {row.get('id', number)!r}")
        for number, row in enumerate(_rows(table, path))
    ]
    seen: set[str] = set()
    for result in results:
        if result.id in seen:
            raise InputError(f"{path}: result {result.id!r} is there twice; ids occur once")
        seen.add(result.id)
    return results


def _tables(table: dict[str, Any], key: str, path: Path) -> dict[str, dict[str, Any]]:
    found = table.get(key)
    if not isinstance(found, dict) or not all(isinstance(row, dict) for row in found.values()):
        raise InputError(f"{path}: [{key}.NAME] tables are missing; a table of results has sources, models and groups")
    return found


def _rows(table: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    """The results of all groups: what a group says of all of its rows, then the row's own columns."""
    groups = table.get("groups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise InputError(f"{path}: [[groups]] are missing; a table of results has sources, models and groups")
    for number, group in enumerate(groups):
        columns, rows = group.get("columns", []), group.get("rows", [])
        common = {key: value for key, value in group.items() if key not in ("columns", "rows")}
        for row in rows if isinstance(rows, list) else [None]:
            if not isinstance(row, list) or len(row) != len(columns):
                raise InputError(
                    f"{path}: group {number}: {row} is no row of the columns {', '.join(map(str, columns))}"
                )
            yield common | dict(zip(columns, row, strict=True))


def _result(
    row: dict[str, Any], sources: dict[str, ResultSource], models: dict[str, Any], where: str
) -> PublishedResult:
    named = dict(row)
    source, model = named.get("source"), named.get("model")
    if source not in sources:
        raise InputError(f"{where}: source {source!r}; known: {', '.join(sources)}")
    if model not in models:
        raise InputError(f"{where}: model {model!r}; known: {', '.join(models)}")
    sizes = dict(models[model])
    sizes.setdefault("kv_heads", sizes.get("heads"))
    sizes.setdefault("ffn_hidden", 4 * sizes["hidden"] if isinstance(sizes.get("hidden"), int) else None)
    if "sequence" in named:
        sizes["sequence"] = named.pop("sequence")
    defaults = {"gated": False, "tied": False}
    named["source"] = sources[source]
    named["model"] = _built(PublishedModel, {"name": model} | defaults | sizes, f"{where}: model {model}")
    for key in ("switches", "inferred"):
        if isinstance(named.get(key), list):
            named[key] = tuple(named[key])
    fields = {"context_parallel": 1, "pipeline_parallel": 1, "pipeline_chunks": 1, "tensor_parallel": 1} | named
    result: PublishedResult = _built(PublishedResult, fields, where)
    problem = next(_problems(result), None)
    if problem:
        raise InputError(f"{where}: {problem}")
    return result


def _built(kind: Any, values: dict[str, Any], where: str) -> Any:
    """A ``kind`` of these values, each of its field's type."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = values.keys() - fields.keys()
    missing = {name for name, field in fields.items() if field.default is dataclasses.MISSING} - values.keys()
    if unknown or missing:
        words = ", ".join(sorted(unknown)) or "nothing"
        raise InputError(f"{where}: unknown: {words}; missing: {', '.join(sorted(missing)) or 'nothing'}")
    for name, value in values.items():
        wanted = _TYPES.get(fields[name].type)
        if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted != (bool,))):
            raise InputError(f"{where}: {name} is {value!r}; expected {' or '.join(word.__name__ for word in wanted)}")
    return kind(**values)


def _problems(result: PublishedResult) -> Iterator[str]:
    """What cannot be, in words."""
    for field, possible in (
        ("accelerator", tuple(ACCELERATORS)),
        ("precision", tuple(PRECISION_FACTORS)),
        ("kind", tuple(MEASURED_KINDS)),
        ("sharding", SHARDINGS),
        ("recompute", RECOMPUTES),
    ):
        if getattr(result, field) not in possible:
            yield f"{field} {getattr(result, field)!r}; possible: {', '.join(possible)}"
    for name in (*result.switches, *result.inferred):
        if not isinstance(name, str):
            yield f"switches and inferred are lists of names, got {name!r}"
    sizes = (result.tensor_parallel, result.context_parallel, result.pipeline_parallel, result.data_parallel)
    counts = (*sizes, result.pipeline_chunks, result.devices, result.devices_per_node, result.micro_batch_size)
    if min(*counts, result.global_batch_size, result.value) <= 0:
        yield "sizes and figures are above 0"
    product = sizes[0] * sizes[1] * sizes[2] * sizes[3]
    if product != result.devices:
        yield f"tensor x context x pipeline x data = {product}, and there are {result.devices} devices"
    if result.global_batch_size % (result.micro_batch_size * sizes[3]):
        batch, micro_batch = result.global_batch_size, result.micro_batch_size
        yield f"{batch} sequences do not divide into micro-batches of {micro_batch} on {sizes[3]} replicas"
    if not 0.05 < result.share_of_peak < 1:
        yield f"{result.share_of_peak:.1%} of the peak in {result.precision}; expected 5 % to 100 %"
