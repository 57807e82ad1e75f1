"""Commands that convert: paxml-to-megatron, plan, megatron-to-paxml, random-paxml."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from checkpoint_convert.conversion.conversion_plan import format_plan, plan_paxml_to_megatron
from checkpoint_convert.conversion.megatron_to_paxml import megatron_to_paxml
from checkpoint_convert.conversion.paxml_to_megatron import PaxmlCheckpoint, open_paxml, paxml_to_megatron
from checkpoint_convert.conversion.random_paxml import ModelSizes, write_random_paxml
from checkpoint_convert.conversion.workspace import memory_problem
from checkpoint_convert.formats.source_files import LocalFiles, RemoteFiles, SourceFiles
from checkpoint_convert.formats.summed_output import Produced
from checkpoint_convert.formats.zarr_arrays import METADATA_FILE
from foundation.errors import InputError
from foundation.file_formats.md5_list import read_list
from foundation.network.addresses import Address, is_address, parse_address
from foundation.network.remote_folder import RemoteFolder
from foundation.options.option_marks import Unprefixed
from foundation.outputs.digest import md5_file
from foundation.outputs.shards import MOST_TASKS, Shard, parse_shard
from foundation.plain_text import counted
from foundation.sizes import parse_bytes, require_between, require_workers, significant
from foundation.this_machine import count_cores


@dataclass(frozen=True)
class PaxmlToMegatronCommand:
    """Convert a PAXML checkpoint to the Megatron zarr layout.

    Example: python -m checkpoint_convert paxml-to-megatron --input checkpoint_00004000 --output ckpt4000_bf16
    --dtype bf16 --memory-limit 64GiB
    """

    input: str
    """Folder with one zarr array per parameter and moment, or its address: gs://, s3://, http:// or https://."""
    output: Path
    """Folder to write. A list of MD5 sums and a manifest are written beside it."""
    dtype: Literal["fp32", "bf16"]
    """bf16 adds BF16 weights and keeps the FP32 ones as master weights; the moments are FP32 in both."""
    workers: int = count_cores()
    """Blocks converted at the same time."""
    memory_limit: str = "8GiB"
    """Bound on the blocks in memory."""
    plan: bool = False
    """Print files, bytes, blocks, memory and time, and convert nothing; only the shapes of the input are read."""
    disk_mb_per_s: float = 1000.0
    """Speed of the disk, and of the network, that --plan assumes."""
    shard: str | None = None
    """K/N, with K from 0 or 1 on: convert this share of the files only, as one of N tasks on any machines. The same
    command without --shard converts the missing files and publishes all."""
    missing_chunks_are_zeros: bool = False
    """Read an input chunk without a file as zeros, as zarr does, instead of reporting it as lost."""
    md5_list: Path | None = None
    """List of MD5 sums, in the form of md5sum, to check everything that is read from an address while it arrives."""
    endpoint_url: str | None = None
    """Address of an S3 server that is not Amazon's, such as http://127.0.0.1:9000."""
    bandwidth_limit: str | None = None
    """Most bytes per second to read from an address: a size such as 500MB."""
    force: bool = False
    """Replace the output if this command made it, and unfinished work of another output; not with --shard."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        files = self._files()
        if self.plan:
            print_plan(self, open_paxml(files), self.disk_mb_per_s, (1,))
            return
        shard = None if self.shard is None else parse_shard(self.shard)
        produced = paxml_to_megatron(
            files,
            self.output,
            dtype=self.dtype,
            workers=self.workers,
            memory_limit=parse_bytes(self.memory_limit, "--memory-limit"),
            missing_chunks_are_zeros=self.missing_chunks_are_zeros,
            md5_list=None if self.md5_list is None else md5_file(self.md5_list),
            force=self.force,
            shard=shard,
        )
        print_produced(self.output, produced, self.json, shard)
        if isinstance(files, RemoteFiles) and files.unversioned:
            print(
                f"{self.output}: the server tells neither ETags nor times, so that of {files.unversioned:,} objects "
                "nobody can say whether they changed while they were converted",
                file=sys.stderr,
            )

    def _files(self) -> SourceFiles:
        if not is_address(self.input):
            if self.md5_list is not None:
                raise InputError("--md5-list: compare a folder by 'python -m checksums verify'; this is for an address")
            for option, text in (("--bandwidth-limit", self.bandwidth_limit), ("--endpoint-url", self.endpoint_url)):
                if text is not None:
                    raise InputError(f"{option} {text}: is for an --input with an address; leave it out")
            return LocalFiles(Path(self.input))
        address = parse_address(self.input, self.endpoint_url)
        limit = None if self.bandwidth_limit is None else parse_bytes(self.bandwidth_limit, "--bandwidth-limit")
        md5 = None if self.md5_list is None else sums_by_name(self.md5_list, address)
        return RemoteFiles(RemoteFolder(address, bytes_per_s=limit), md5)


def sums_by_name(md5_list: Path, address: Address) -> dict[str, str]:
    """Read a list of MD5 sums whose paths begin in the checkpoint's folder, or with its name. Raises InputError if the
    list is not that of a checkpoint."""
    sums, folder = read_list(md5_list), f"{address.name}/"
    sums_below = {name.removeprefix("./").removeprefix(folder): digest for name, digest in sums.items()}
    if not any(name.endswith(f"/{METADATA_FILE}") for name in sums_below):
        raise InputError(f"--md5-list {md5_list}: has no …/{METADATA_FILE}; expected the sums of a checkpoint's files")
    return sums_below


def print_produced(output: Path, produced: Produced | None, as_json: bool, shard: Shard | None = None) -> None:
    """Print the result of a conversion, or of a shard; None stands for an output that already existed."""
    if as_json:
        print(json.dumps({"already_made": produced is None, **(asdict(produced) if produced else {})}))
        return
    if produced is None:
        print(f"{output}: already made from this checkpoint")
        return
    facts, rate = produced.facts, produced.bytes / produced.wall_s / 1e6
    text = f"{output}: " if shard is None else f"{output}: shard {shard}, "
    text += counted(produced.files, "file")
    if produced.resumed_files:
        text += f", {produced.resumed_files:,} of them by earlier calls"
    text += f", {produced.bytes:,} bytes in {produced.wall_s:.1f} s ({significant(rate, 2)} MB/s)"
    if facts.get("zero_chunks"):
        text += f"; {facts['zero_chunks']:,} input chunks had no file and are zeros"
    if facts.get("has_counters") is False:
        text += f"; the input has no counter of Adam's steps, so common.pt says {facts['adam_step']:,}, as the "
        text += "reference's converter writes"
    end = f"MD5 sums in {output}.md5"
    if shard is not None:
        end = "when all shards are there, the same command without --shard publishes them"
    print(f"{text}; {end}")


def print_plan(
    options: "PaxmlToMegatronCommand | ConversionPlanCommand",
    source: PaxmlCheckpoint | None,
    network_mb_per_s: float,
    nodes: Sequence[int],
) -> None:
    """Plan the conversion of ``source`` and print the plan; None stands for the benchmark's own checkpoint.

    ``nodes``: numbers of machines to give times for. Warns if this machine lacks the memory.
    """
    require_workers(options.workers)
    for speed, option in ((options.disk_mb_per_s, "--disk-mb-per-s"), (network_mb_per_s, "--network-mb-per-s")):
        require_between(speed, 1e-3, 1e9, option)
    plan = plan_paxml_to_megatron(
        source,
        dtype=options.dtype,
        workers=options.workers,
        memory_limit=parse_bytes(options.memory_limit, "--memory-limit"),
        disk_mb_per_s=options.disk_mb_per_s,
        network_mb_per_s=network_mb_per_s,
        nodes=nodes,
    )
    if problem := memory_problem(plan.peak_bytes):
        print(f"warning: {problem}", file=sys.stderr)
    print(json.dumps(asdict(plan), indent=1) if options.json else format_plan(plan))


@dataclass(frozen=True)
class ConversionPlanCommand:
    """Plan the conversion of the benchmark's own checkpoint, without having it, for one machine or several.

    The plan assumes that its chunks are shards of a mesh of 1 x 64 x 24 devices; paxml-to-megatron --plan reads the
    chunks of a real checkpoint. Example: python -m checkpoint_convert plan --dtype bf16 --memory-limit 2GiB --workers 1
    """

    dtype: Literal["fp32", "bf16"] = "bf16"
    workers: int = count_cores()
    """Blocks that each machine converts at the same time."""
    memory_limit: str = "8GiB"
    """Bound on the blocks in memory."""
    disk_mb_per_s: float = 1000.0
    """Speed of each machine's disk, reading and writing together."""
    network_mb_per_s: float = 1000.0
    """Speed at which each machine reads from a bucket."""
    nodes: tuple[int, ...] = (1, 8)
    """Numbers of machines that share the work (--shard), for which times are printed."""
    json: bool = False
    """Print the plan as JSON."""

    def run(self) -> None:
        for count in self.nodes:
            require_between(count, 1, MOST_TASKS, "--nodes")
        print_plan(self, None, self.network_mb_per_s, self.nodes)


@dataclass(frozen=True)
class MegatronToPaxmlCommand:
    """Convert a Megatron zarr checkpoint back to PAXML's layout, bit by bit in FP32.

    Example: python -m checkpoint_convert megatron-to-paxml --input ckpt4000_bf16 --output checkpoint_again
    """

    input: Path
    """Folder with one zarr array per parameter and moment; the master weights of a BF16 checkpoint are used."""
    output: Path
    """Folder to write. The position table has the 2,048 rows that the conversion kept."""
    heads: int | None = None
    """Attention heads; only needed if no manifest gives them."""
    workers: int = count_cores()
    """Blocks converted at the same time."""
    memory_limit: str = "8GiB"
    """Bound on the blocks in memory."""
    force: bool = False
    """Replace the output if this command made it."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        produced = megatron_to_paxml(
            self.input,
            self.output,
            heads=self.heads,
            workers=self.workers,
            memory_limit=parse_bytes(self.memory_limit, "--memory-limit"),
            force=self.force,
        )
        print_produced(self.output, produced, self.json)


@dataclass(frozen=True)
class RandomPaxmlCommand:
    """Write a random PAXML checkpoint of a small model, for rehearsals and tests.

    Example: python -m checkpoint_convert random-paxml --output paxml --seed 1 --layers 4 --hidden 128 --heads 4
    --vocab 1024
    """

    output: Path
    """Folder to write."""
    seed: int
    """Seed of the values; the same seed and sizes give the same bytes."""
    sizes: Unprefixed[ModelSizes]
    force: bool = False
    """Replace the output if this command made it."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        is_new = write_random_paxml(self.output, seed=self.seed, sizes=self.sizes, force=self.force)
        if self.json:
            print(json.dumps({"already_made": not is_new, **asdict(self.sizes)}))
            return
        print(f"{self.output}: {counted(self.sizes.layers, 'layer')}" if is_new else f"{self.output}: already made")
