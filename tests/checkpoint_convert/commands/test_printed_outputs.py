"""What is said of an output: its bytes, what earlier calls had made, and where its MD5 sums are."""

import json
from pathlib import Path

import pytest

from checkpoint_convert.commands.printed_outputs import print_converted, print_exported
from checkpoint_convert.conversion.run_conversion import Converted
from stage.outputs.shards import Shard

CONVERTED = Converted(files=1200, bytes=5_000_000, wall_s=2.0, resumed_files=200, facts={"zero_chunks": 0})
OUTPUT = Path("ckpt")


def test_a_conversion_tells_its_rate_and_what_is_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_converted(OUTPUT, CONVERTED, False)
    print_converted(OUTPUT, CONVERTED, False, Shard(1, 4))
    whole, shard = capsys.readouterr().out.splitlines()
    assert whole == (
        "ckpt: 1,200 files, 200 of them by earlier calls, 5,000,000 bytes in 2.0 s (2 MB/s); MD5 sums in ckpt.md5"
    )
    assert shard.startswith("ckpt: shard 1/4, 1,200 files")
    assert shard.endswith("the same command without --shard publishes them")


def test_what_was_there_already_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    print_converted(OUTPUT, None, False)
    print_exported(OUTPUT, None, False)
    assert capsys.readouterr().out == 2 * "ckpt: already made from this checkpoint\n"
    print_converted(OUTPUT, None, True)
    assert json.loads(capsys.readouterr().out) == {"already_made": True}
    print_exported(OUTPUT, None, True)
    print_exported(OUTPUT, 1234, True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"already_made": True}, {"already_made": False, "bytes": 1234}]
    print_exported(OUTPUT, 1234, False)
    assert capsys.readouterr().out == "ckpt: 1,234 bytes; MD5 sums in ckpt.md5\n"
