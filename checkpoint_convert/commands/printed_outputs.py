"""What is printed of an output: how much was written, how fast, and where its MD5 sums are."""

import json
from dataclasses import asdict
from pathlib import Path

from checkpoint_convert.conversion.run_conversion import Converted
from stage.outputs.shards import Shard


def print_converted(output: Path, converted: Converted | None, as_json: bool, shard: Shard | None = None) -> None:
    """Print what a conversion, or a shard of one, has made; None: it was there already."""
    if as_json:
        print(json.dumps({"already_made": converted is None, **(asdict(converted) if converted else {})}))
        return
    if converted is None:
        print(f"{output}: already made from this checkpoint")
        return
    rate = converted.bytes / converted.wall_s / 1e6
    resumed = f", {converted.resumed_files:,} of them by earlier calls" if converted.resumed_files else ""
    zero_chunks = converted.facts["zero_chunks"]
    notes = f"; {zero_chunks:,} input chunks had no file and are zeros" if zero_chunks else ""
    if converted.facts.get("has_counters") is False:
        notes += (
            f"; the input has no counter of Adam's steps, so common.pt says {converted.facts['adam_step']:,}, as the "
            "reference's converter writes"
        )
    what = f"{output}: " if shard is None else f"{output}: shard {shard}, "
    then = f"MD5 sums in {output}.md5"
    if shard is not None:
        then = "when all shards are there, the same command without --shard publishes them"
    print(
        f"{what}{converted.files:,} files{resumed}, {converted.bytes:,} bytes in {converted.wall_s:.1f} s "
        f"({rate:,.0f} MB/s){notes}; {then}"
    )


def print_exported(output: Path, written: int | None, as_json: bool) -> None:
    """Print how many bytes an export has written; None: it was there already."""
    if as_json:
        print(json.dumps({"already_made": written is None, **({} if written is None else {"bytes": written})}))
    elif written is None:
        print(f"{output}: already made from this checkpoint")
    else:
        print(f"{output}: {written:,} bytes; MD5 sums in {output}.md5")
