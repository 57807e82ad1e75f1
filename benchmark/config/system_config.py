"""The machines of a run, and the layout of the model on them; ``systems.py`` has the systems with a name."""

import json
import tomllib
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from benchmark.config.accelerators import ACCELERATORS, accelerator_called
from benchmark.config.field_checks import divisors, listed, require_positive
from benchmark.config.number_formats import NUMBER_FORMATS, Precision
from foundation.errors import InputError
from foundation.options.option_marks import Hidden, Unprefixed
from foundation.regular_files import read_regular
from model.decoder_sizes import CopyEngines, Recompute

SUFFIX = ".toml"
LARGEST_FILE = 1 << 20
USUAL = {"device": "cuda", "micro_batch_size": 1}
"""Values of a file that does not say them."""


@dataclass(frozen=True)
class Collectives:
    """The way in which messages between tensor-parallel ranks share a GPU with products. By default NCCL
    decides; `slice --tune-collectives` times the other choices."""

    nccl_ctas: int | None = None
    """Most multiprocessors that a message of NCCL between tensor-parallel ranks takes. None: NCCL chooses."""
    nccl_priority: bool = False
    """Queue these messages on a stream of high priority."""
    copy_engines: CopyEngines = "none"
    """Messages that copy engines carry in NCCL's place, through memory that the GPUs of a machine share; `all`:
    reduce-scatters too, which then sum in another order."""
    nccl_nvls: bool = True
    """Let NCCL use the NVLink switches' own sums and copies (NVLS) where it chooses to. `--no-nccl-nvls` saves their
    memory."""
    nccl_launch_order: bool = False
    """Let NCCL begin the messages of all communicators in the order in which they were handed over (NCCL 2.26 and
    newer)."""

    def __post_init__(self) -> None:
        if self.nccl_ctas is not None:
            require_positive(self, "nccl_ctas")

    @property
    def words(self) -> str:
        """The options that differ from the defaults, as on a command line."""
        words = []
        for name, value in _chosen(self).items():
            option = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{option}" if value else f"--no-{option}")
            else:
                words.append(f"--{option} {value}")
        return " ".join(words)


@dataclass(frozen=True)
class System:
    """The machines, and how the model is spread over them."""

    name: Hidden[str]
    device: Literal["cuda", "cpu"]
    nodes: int
    """Machines."""
    devices_per_node: int
    """Processes per machine, one per device."""
    micro_batch_size: int
    """Samples per forward and backward pass of a device."""
    tensor_parallel: int = 1
    """Devices that share each layer, and its part of the sequence; on one machine, if speed matters."""
    pipeline_parallel: int = 1
    """Devices that each have some of the layers."""
    pipeline_chunks: int = 1
    """Stages per device: more of them idle less, hold fewer activations and send more. Without a pipeline, one."""
    replicas: int = 1
    """Copies of master weights and moments: 1 shards them over all data-parallel devices, more over as many groups of
    these."""
    shard_gradients: bool = False
    """Sum gradients over these devices after each micro-batch, so that each keeps its shard's alone. Memory falls, in
    the place of tensor parallelism; messages grow, beside the passes."""
    recompute: Recompute = "none"
    """Values that blocks compute again in the backward pass instead of keeping them."""
    compiled_kernels: bool = True
    """Rotary embedding, SwiGLU, RMSNorm and losses by kernels that torch.compile makes on a GPU before the run, where
    they are right. `--no-compiled-kernels` is for a GPU on which they fail later."""
    cudnn_attention: bool = True
    """BF16 attention by cuDNN's kernel where it runs and is right, else by FlashAttention's. `--no-cudnn-attention` is
    the way back if cuDNN's kernel fails during a run."""
    fp8_weight_gradients: bool = True
    """Weight gradients of an FP8 run by FP8 products, which take transposes, and sums by another kernel. By plans they
    are faster than BF16 products where the transposes' kernels are compiled (docs/notes/fp8.md)."""
    warm_up_steps: int = 0
    """Steps on made-up tokens before the clock starts, and an evaluation on them. Connections and kernels are slow the
    first time; these steps make them and change nothing."""
    start_limit_s: float = 1800.0
    """Seconds of silence after which a process counts as hanging while it joins, loads, or does something for the first
    time: it is killed, and the run is started again. Later the limit is ten times a usual step."""
    hang_floor_s: float = 60.0
    """Least limit of that silence in the later steps, in seconds."""
    device_mtbf_hours: float = 1024.0
    """Mean time between failures that end a run, per device with its share of node and network: a system's is this
    over the number of devices, 2 hours for 512. The default is a guess on the safe side; a value four times longer
    only doubles the time between checkpoints."""  # BLOOM lost one GPU a week of 384: docs/facts/peers.md 1.5
    accelerator: str = ""
    """Name in the table of accelerators, which gives memory and peak."""
    platform: str = ""
    """``submission_platform`` of the MLPerf log."""
    collectives: Unprefixed[Collectives] = Collectives()

    def __post_init__(self) -> None:
        require_positive(self, "nodes", "devices_per_node", "micro_batch_size", "replicas")
        require_positive(self, "tensor_parallel", "pipeline_parallel", "pipeline_chunks")
        if self.accelerator:  # the one name of it, whatever a user calls it
            object.__setattr__(self, "accelerator", accelerator_called(self.accelerator))
        if self.warm_up_steps < 0:
            raise InputError(f"warm_up_steps {self.warm_up_steps}: expected at least 0; change --warm-up-steps")
        if not self.device_mtbf_hours > 0:  # nan, too
            raise InputError(f"device_mtbf_hours {self.device_mtbf_hours}: expected more than 0; --device-mtbf-hours")
        model_parallel = self.tensor_parallel * self.pipeline_parallel
        if self.num_devices % model_parallel:
            raise InputError(
                f"tensor_parallel {self.tensor_parallel} x pipeline_parallel {self.pipeline_parallel} do not divide "
                f"{self.num_devices} devices; products that do: {listed(divisors(self.num_devices))}. Change "
                "--tensor-parallel, --pipeline-parallel or --nodes"
            )
        if self.data_parallel % self.replicas:
            raise InputError(
                f"replicas {self.replicas} do not divide {self.data_parallel} data-parallel devices; possible: "
                f"{listed(divisors(self.data_parallel))}; change --replicas"
            )
        if self.collectives != Collectives() and self.device != "cuda":
            raise InputError(f"{self.collectives.words}: system {self.name} has no GPU; leave it out")
        if self.collectives.copy_engines != "none" and self.devices_per_node % self.tensor_parallel:
            raise InputError(
                f"copy_engines {self.collectives.copy_engines}: they reach the GPUs of one machine alone, and "
                f"tensor_parallel {self.tensor_parallel} does not divide its {self.devices_per_node}; change "
                "--copy-engines or --tensor-parallel"
            )
        if self.pipeline_parallel == 1:
            object.__setattr__(self, "pipeline_chunks", 1)

    @property
    def num_devices(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def data_parallel(self) -> int:
        """Devices, or groups of them, that read different samples."""
        return self.num_devices // (self.tensor_parallel * self.pipeline_parallel)

    def num_microbatches(self, global_batch_size: int) -> int:
        """Return the micro-batches per step and device: the gradient accumulation steps."""
        return global_batch_size // (self.micro_batch_size * self.data_parallel)

    @property
    def peak_tflops(self) -> float | None:
        """Peak of one device in dense BF16, TFLOP/s; None if the table of accelerators lacks the device."""
        return ACCELERATORS[self.accelerator].peak_tflops if self.accelerator else None

    def peak_tflops_in(self, precision: Precision) -> float | None:
        """Return the dense peak of one device in the format of a run's products, TFLOP/s; None without an entry."""
        bits = NUMBER_FORMATS[precision].product_bits
        return ACCELERATORS[self.accelerator].fastest_tflops(bits) if self.accelerator else None

    @property
    def memory_gb(self) -> float | None:
        """Memory of one device in 10^9 bytes; None if the table of accelerators lacks the device."""
        return ACCELERATORS[self.accelerator].memory_gb if self.accelerator else None

    @property
    def num_pipeline_stages(self) -> int:
        return self.pipeline_parallel * self.pipeline_chunks


def read_system(path: Path) -> System:
    """A system of a user's own, from a TOML file with its fields; it has the file's name.

    Raises InputError, with the field, for a file that describes none.
    """
    mend = "expected the fields of a system, as docs/planning.md lists them"
    try:
        table = tomllib.loads(read_regular(path, LARGEST_FILE).decode())
        section = table.get("collectives", {})
        unknown_fields = table.keys() - _names(System) | table.keys() & {"name"}
        unknown_fields |= section.keys() - _names(Collectives) if isinstance(section, dict) else set()
        if unknown_fields:
            raise InputError(f"{path}: {', '.join(sorted(unknown_fields))[:200]}: no field of a system; {mend}")
        import msgspec  # names, and most of a file, can be checked where there are no packages

        return msgspec.convert({**USUAL, **table, "name": path.stem}, System)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; {mend}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, or a field of another kind
        raise InputError(f"{path}: {error}; {mend}") from None
    except InputError as error:  # fields that do not fit together
        raise InputError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def system_text(system: System) -> str:
    """Return the TOML file of a system that :func:`read_system` reads: number of machines and devices, and the fields
    that are not the usual ones."""
    table = {"nodes": system.nodes, "devices_per_node": system.devices_per_node, **_chosen(system)}
    sections = {name: _chosen(value) for name, value in table.items() if is_dataclass(value)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items() if name not in {*sections, "name"}]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())]
    return "\n".join(lines) + "\n"


def _chosen(config: Any) -> dict[str, Any]:
    """Return the fields that differ from the defaults of a system's file."""
    defaults = {field.name: USUAL.get(field.name, field.default) for field in fields(config)}
    return {name: value for name, default in defaults.items() if (value := getattr(config, name)) != default}


def _names(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind)}
