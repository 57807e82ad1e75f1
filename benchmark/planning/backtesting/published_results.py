"""Published training speeds of large dense transformers: what a model of a step is compared with, and may be fitted to.

``published_results.toml`` holds the figures as their sources print them; this reads and checks it. What is not a step
time is turned into one by model FLOPs, counted in one way for all (:meth:`PublishedModel.train_flops_per_token`).
"""

import dataclasses
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmark.config.accelerators import ACCELERATORS
from stage.errors import InputError

PUBLISHED_RESULTS = Path(__file__).with_name("published_results.toml")
MOST_BYTES = 4 << 20
"""Of a table of results; more is refused before it is read."""

PRECISION_FACTORS = {"bf16": 1.0, "fp16": 1.0, "fp8": 2.0, "mxfp8": 2.0}
"""Peak of the matrix units as a multiple of the dense BF16 peak (NVIDIA's data sheets of A100, H100, H200, B200)."""
MEASURED_KINDS = {
    "step_s": "seconds of a training step",
    "tokens_per_s_per_device": "trained tokens per second and device",
    "tflops_per_device": "model TFLOP/s per device, no recomputation counted",
    "tflops_per_device_with_recompute": "TFLOP/s per device, a second forward pass of all blocks counted",
    "mfu": "model FLOP/s over the dense BF16 peak",
}
SHARDINGS = ("none", "zero1", "zero2", "fsdp")
RECOMPUTES = ("none", "selective", "full")

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


@dataclass(frozen=True)
class PublishedModel:
    """Sizes of a decoder-only transformer."""

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    """Rows of the output projection as the stack pads it, where that is known."""
    kv_heads: int
    """Less than ``heads``: grouped-query attention."""
    ffn_hidden: int
    gated: bool
    """SwiGLU: three projections in the MLP instead of two."""
    tied: bool
    """One table for input and output."""

    @property
    def train_flops_per_token(self) -> float:
        """Forward and backward FLOPs of a trained token, nothing recomputed.

        12 L H^2 (1 + K/A) for query, key, value and output projections, K of A heads being keys; 12 L H S for scores
        and values, the whole square counted; 12 L H F for an MLP of two projections, 18 L H F of three; 6 H V for the
        logits. For GPT-3 this is 72 L H^2 (1 + S/6H + V/12LH) (docs/facts/peers.md 1.0).
        """
        return self.layers * self.block_flops_per_token + 6 * self.hidden * self.vocabulary

    @property
    def block_flops_per_token(self) -> float:
        """Of one block, forward and backward."""
        attention = 12 * self.hidden**2 * (1 + self.kv_heads / self.heads) + 12 * self.hidden * self.sequence
        return attention + 6 * (3 if self.gated else 2) * self.hidden * self.ffn_hidden

    @property
    def parameters(self) -> float:
        """Weights of the matrices and tables; norms, biases and learned positions, below 0.1 %, are left out."""
        attention = 2 * self.hidden**2 * (1 + self.kv_heads / self.heads)
        mlp = (3 if self.gated else 2) * self.hidden * self.ffn_hidden
        return self.layers * (attention + mlp) + (1 if self.tied else 2) * self.vocabulary * self.hidden


@dataclass(frozen=True)
class ResultSource:
    """Where figures were read, so that others can open it."""

    name: str
    title: str
    url: str
    read: str
    """Which part of it, and how."""


@dataclass(frozen=True)
class PublishedResult:
    """One measured speed of a model on so many devices."""

    id: str
    source: ResultSource
    stack: str
    accelerator: str
    """A name in ``ACCELERATORS``."""
    devices: int
    devices_per_node: int
    network: str
    network_gbps: float
    """Gb/s of one device to other nodes, one way; 0: one node."""
    model: PublishedModel
    precision: str
    global_batch_size: int
    """Sequences per step."""
    micro_batch_size: int
    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    pipeline_chunks: int
    """Model chunks per pipeline rank; 1: not interleaved."""
    data_parallel: int
    sharding: str
    recompute: str
    sequence_parallel: bool
    kind: str
    """What was measured; a key of ``MEASURED_KINDS``."""
    value: float
    switches: tuple[str, ...] = ()
    """What the stack had switched on that changes speed."""
    inferred: tuple[str, ...] = ()
    """Fields that the source does not say; the note says why they are what they are."""
    run_min: float | None = None
    """Minutes of the whole run, where it was one; with the next four from the same log."""
    steps: int | None = None
    evaluations: int | None = None
    evaluation_s: float | None = None
    init_s: float | None = None
    power_limit_w: float | None = None
    """Where the devices did not run at their maker's limit."""
    note: str = ""
    doubt: str = ""
    """Why the figure may be wrong, such as its neighbours in the same table; backtests list such rows apart."""

    @property
    def micro_batches(self) -> int:
        """Per pipeline and step."""
        return self.global_batch_size // (self.micro_batch_size * self.data_parallel)

    @property
    def tokens_per_step(self) -> int:
        return self.global_batch_size * self.model.sequence

    @property
    def flops_per_step(self) -> float:
        """Model FLOPs."""
        return self.tokens_per_step * self.model.train_flops_per_token

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step: as measured, or by tokens, or by :attr:`flops_per_step`."""
        if self.kind == "step_s":
            return self.value
        if self.kind == "tokens_per_s_per_device":
            return self.tokens_per_step / (self.value * self.devices)
        flops = self.flops_per_step
        if self.kind == "tflops_per_device_with_recompute":
            flops += self.tokens_per_step * self.model.layers * self.model.block_flops_per_token / 3
        tflops = self.value * self._peak_tflops if self.kind == "mfu" else self.value
        return flops / (tflops * 1e12 * self.devices)

    @property
    def tflops_per_device(self) -> float:
        """Model TFLOP/s of one device."""
        return self.flops_per_step / (self.step_s * self.devices * 1e12)

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the dense BF16 peak, whatever the precision."""
        return self.tflops_per_device / self._peak_tflops

    @property
    def share_of_peak(self) -> float:
        """Model FLOP/s over the peak of the precision that the block's products ran in."""
        return self.mfu / PRECISION_FACTORS[self.precision]

    @property
    def _peak_tflops(self) -> float:
        return ACCELERATORS[self.accelerator].peak_tflops


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
