"""Chains that hold, though runs were killed and disks full, and each way in which a link breaks."""

import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmark.run_record.evidence_chain import AnyRecord, OptimizerStepRecord, broken_links, gaps, read_chain
from benchmark.run_record.file_names import EVIDENCE_FILE
from foundation.errors import InputError
from tests.benchmark.run_record.records import begin, checkpoint, signed, step, whole_run, write

NO_END = "the chain has no end: the run goes on, was killed, or its disk was full"


def faults(folder: Path) -> list[str]:
    return [fault.text() for fault in broken_links(read_chain(folder / EVIDENCE_FILE), folder / "result_0.txt")]


def test_a_whole_run_holds(tmp_path: Path) -> None:
    skipped = msgspec.structs.replace(step(1), loss=math.nan, grad_norm=math.inf)
    write(tmp_path, [begin(), skipped, *whole_run()[2:]])
    chain = read_chain(tmp_path / EVIDENCE_FILE)
    assert (faults(tmp_path), gaps(chain)) == ([], [])
    assert [link.record.step for link in chain.counting()] == [0, 1, 2, 2, 3, 4, 4, 4]
    assert chain.links[1].record == msgspec.structs.replace(skipped, loss=None, grad_norm=None)
    assert chain.links[-1].end == (tmp_path / EVIDENCE_FILE).stat().st_size


def test_steps_that_were_lost_and_made_again(tmp_path: Path) -> None:
    """Killed after step 4; from the checkpoint after 2; killed before the next; once more."""
    head = signed(whole_run()[:4])[-1][1]
    again: list[AnyRecord] = [
        begin("0002", 2, head),
        step(3, "0002"),
        begin("0003", 2, head),
        step(3, "0003"),
        step(4, "0003"),
    ]
    write(tmp_path, [*whole_run()[:-1], *again])
    chain = read_chain(tmp_path / EVIDENCE_FILE)
    assert (faults(tmp_path), gaps(chain)) == ([], [])
    counting = [
        (link.record.attempt, link.record.step)
        for link in chain.counting()
        if isinstance(link.record, OptimizerStepRecord)
    ]
    assert counting == [("0001", 1), ("0001", 2), ("0003", 3), ("0003", 4)]


@pytest.mark.parametrize(
    ("records", "told"),
    [
        pytest.param([*whole_run()[:3], begin("0002"), step(1, "0002")], [], id="killed before the first checkpoint"),
        pytest.param(
            [begin("0002", 2, "f" * 64), step(3, "0002")],
            ["the chain begins after 2 steps: earlier steps are not in it"],
            id="resumed where the file is not, or the disk was full",
        ),
    ],
)
def test_honest_runs_leave_gaps_at_most(records: list[object], told: list[str], tmp_path: Path) -> None:
    write(tmp_path, records)  # type: ignore[arg-type]
    assert (faults(tmp_path), gaps(read_chain(tmp_path / EVIDENCE_FILE))) == ([], told)


@pytest.mark.parametrize("rest", [b"", b'{"kind":"st', b"\0" * 40])
def test_a_last_line_that_is_torn_is_no_fault(rest: bytes, tmp_path: Path) -> None:
    log = write(tmp_path, whole_run(), log=None)
    with (tmp_path / EVIDENCE_FILE).open("ab") as file:
        file.write(rest)
    chain = read_chain(tmp_path / EVIDENCE_FILE)
    assert (broken_links(chain, log), gaps(chain)) == ([], [NO_END])


CHANGED, NO_RECORD = "recorded it was changed since it was written", "recorded no record that ends in its digest"
OTHER_BEFORE = "recorded it follows another line than the one before it"
Lines = list[bytes]


@pytest.mark.parametrize(
    ("change", "line", "told"),
    [
        pytest.param(lambda ls: [*ls[:2], ls[2].replace(b"3.0", b"2.0"), *ls[3:]], 3, CHANGED, id="a figure"),
        pytest.param(lambda ls: [*ls[:2], ls[2][:-3] + b'x"}', *ls[3:]], 3, NO_RECORD, id="a digest"),
        pytest.param(lambda ls: [*ls[:2], *ls[3:]], 3, OTHER_BEFORE, id="left out"),
        pytest.param(lambda ls: [ls[0], ls[2], ls[1], *ls[3:]], 2, OTHER_BEFORE, id="moved"),
        pytest.param(lambda ls: [*ls[:3], *ls[2:]], 4, OTHER_BEFORE, id="twice"),
        pytest.param(lambda ls: [*ls[:3], b"[]", *ls[3:]], 4, NO_RECORD, id="no record"),
        pytest.param(lambda ls: [ls[0], b"\r".join(ls[1:])], 2, CHANGED, id="hidden by carriage returns"),
    ],
)
def test_a_damaged_file_names_the_line(change: Callable[[Lines], Lines], line: int, told: str, tmp_path: Path) -> None:
    write(tmp_path, whole_run())
    lines = (tmp_path / EVIDENCE_FILE).read_bytes().splitlines()
    (tmp_path / EVIDENCE_FILE).write_bytes(b"".join(one + b"\n" for one in change(lines)))
    assert faults(tmp_path)[0].startswith(f"line {line}: the line: {told}")


HEAD = signed(whole_run()[:4])[-1][1]
OTHER = msgspec.structs.replace(checkpoint(2), moments="0" * 16)


@pytest.mark.parametrize(
    ("records", "told"),
    [
        pytest.param([begin(), step(1), step(3)], "line 3, step 3: number of the step: recorded 3", id="a step less"),
        pytest.param(
            [begin(), step(1), checkpoint(2)], "line 3, step 2: number of the step", id="a checkpoint of later"
        ),
        pytest.param(
            [*whole_run()[:3], OTHER, begin("0002", 2, signed([*whole_run()[:3], OTHER])[-1][1])],
            "line 4, step 2: fingerprints of weights and moments of the checkpoint",
            id="another checkpoint was loaded",
        ),
        pytest.param(
            [*whole_run()[:4], begin("0002", 1, HEAD)],
            "line 5, step 1: record to continue: recorded line 4, found the record of the checkpoint after 1",
            id="continues another step",
        ),
        pytest.param(
            [*whole_run()[:3], begin("0002", 2, signed(whole_run()[:3])[-1][1])],
            "line 4, step 2: record to continue: recorded line 3",
            id="continues no checkpoint",
        ),
    ],
)
def test_a_chain_that_contradicts_itself(records: list[object], told: str, tmp_path: Path) -> None:
    write(tmp_path, records)  # type: ignore[arg-type]
    assert [fault[: len(told)] for fault in faults(tmp_path)] == [told]


def test_an_exchanged_log(tmp_path: Path) -> None:
    log = write(tmp_path, whole_run())
    log.write_bytes(log.read_bytes() + b"\n")
    assert faults(tmp_path)[0].startswith("line 8, step 4: SHA-256 of result_0.txt, the MLPerf log: recorded ")
    write(tmp_path, whole_run(), log=b"a log that was signed with another chain\n")
    assert faults(tmp_path)[0].startswith("line 8, step 4: the chain's digest in result_0.txt")


def test_what_is_read_of_strangers(tmp_path: Path) -> None:
    log = write(tmp_path, whole_run())
    (tmp_path / EVIDENCE_FILE).write_bytes(b"")
    assert [fault.subject for fault in broken_links(read_chain(tmp_path / EVIDENCE_FILE), log)] == ["the chain"]
    (tmp_path / EVIDENCE_FILE).unlink()
    with pytest.raises(InputError, match="no such file; a run writes it with train --evidence"):
        read_chain(tmp_path / EVIDENCE_FILE)
    (tmp_path / EVIDENCE_FILE).mkdir()
    with pytest.raises(InputError, match="not a regular file; give the folder of a run"):
        read_chain(tmp_path / EVIDENCE_FILE)
    (tmp_path / EVIDENCE_FILE).rmdir()
    (tmp_path / EVIDENCE_FILE).write_text('{"kind":"begin","previous":"0","version":1,"step":0,"digest":"0"}\n')
    with pytest.raises(InputError, match="evidence of form 1; this version of the code reads form 2"):
        read_chain(tmp_path / EVIDENCE_FILE)
    bell = msgspec.structs.replace(begin(), step=10**18)
    write(tmp_path, [bell, msgspec.structs.replace(step(1), attempt="\x1b[31m")])
    assert all(line.isprintable() for line in faults(tmp_path))
