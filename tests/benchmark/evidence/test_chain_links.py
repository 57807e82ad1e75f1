"""The chain of links as a file: what was written is read, and whatever is done to it is found."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmark.evidence import chain_links
from benchmark.evidence.chain_links import EVIDENCE, NOTHING, encode_link, read_chain
from benchmark.evidence.link_contents import (
    BeginLink,
    CheckpointLink,
    Content,
    EndLink,
    EvaluationLink,
    Machinery,
    ResumeLink,
    StatePrint,
    StepLink,
)
from model.flops import num_parameters
from stage.errors import InputError
from tests.benchmark.tiny import TINY

STATE = StatePrint("AAAAAAAAAAA=", "AAAAAAAAAAA=", "AAAAAAAAAAA=")
MACHINERY = Machinery({"devices": 1}, {"torch": "2.13"})
SIZES = (num_parameters(TINY.model),)
BEGIN = BeginLink(1, 0, 1000, 17, "fp32", {"name": "tiny"}, {"train.bin": None}, ("w",), SIZES, MACHINERY, STATE)


def step(number: int, loss: float = 2.5) -> StepLink:
    prints = "AAAAAAAAAAA=", "AAAAAA=="
    return StepLink(number, 1000 + number, 12 * number, "0" * 16, "f" * 16, loss, 1.0, 1e-3, False, *prints)


CONTENTS: list[Content] = [
    BEGIN,
    step(1),
    step(2, math.nan),
    CheckpointLink(2, 1002, STATE),
    EvaluationLink(2, 1002, 2.75, 100),
    ResumeLink(2, 2000, MACHINERY, STATE),
    step(3),
    EndLink(3, 2004, "success", "0" * 64),
]


def write(path: Path, contents: list[Content] = CONTENTS) -> list[bytes]:
    lines, head = [], NOTHING
    for content in contents:
        line, head = encode_link(content, head)
        lines.append(line + b"\n")
    path.write_bytes(b"".join(lines))
    return lines


def test_what_was_written_is_read(tmp_path: Path) -> None:
    lines = write(tmp_path / EVIDENCE)
    chain = read_chain(tmp_path / EVIDENCE)
    assert (chain.problem, chain.torn, len(chain.links)) == (None, False, 8)
    assert repr([link.content for link in chain.links]) == repr(CONTENTS)  # where NaN is like NaN
    assert chain.links[3].end == sum(map(len, lines[:4]))
    assert (chain.begin, chain.end) == (BEGIN, CONTENTS[-1])
    assert sorted(chain.steps) == [1, 2, 3]
    assert (chain.started_with(1), chain.started_with(3), chain.started_with(4)) == (BEGIN, CONTENTS[5], None)
    last = json.loads(lines[-1])
    assert chain.head == last["digest"]
    assert hashlib.sha256(lines[-1][: lines[-1].rindex(b',"digest"')]).hexdigest() == chain.head


@pytest.mark.parametrize(
    ("damage", "good", "problem"),
    [
        (lambda lines: [*lines[:1], lines[1].replace(b"2.5", b"2.4"), *lines[2:]], 1, "line 2: changed since it was"),
        (lambda lines: [*lines[:2], *lines[3:]], 2, "line 3: follows another link than the one before it"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 1, "line 2: follows another link"),
        (lambda lines: [*lines[:3], lines[1], *lines[3:]], 3, "line 4: follows another link"),
        (lambda lines: lines[1:], 0, "line 1: follows another link"),
        (lambda lines: [lines[0], b"\n", *lines[1:]], 1, "line 2: no link of a chain"),
        (lambda lines: [lines[0], b"\xff\x00\n", *lines[1:]], 1, "line 2: no link of a chain"),
        (lambda lines: [lines[0], signed(b'{"kind":"step","previous":3}'), *lines[1:]], 1, "line 2: follows another"),
        (lambda lines: [lines[0], signed(b'{"kind":["x"]}')], 1, r"line 2: kind \['x'\]: expected one of begin"),
        (lambda lines: [lines[0], signed(b"[1]")], 1, "line 2: not JSON"),
        (lambda lines: [lines[0], signed(b"[" * 100_000 + b"}")], 1, "line 2: not JSON"),
        (lambda lines: [signed(b'{"kind":"begin","previous":""}')], 0, "line 1: begin: version is missing"),
    ],
)
def test_damage_is_found_and_what_is_before_it_read(
    damage: Callable[[list[bytes]], list[bytes]], good: int, problem: str, tmp_path: Path
) -> None:
    lines = write(tmp_path / EVIDENCE)
    (tmp_path / EVIDENCE).write_bytes(b"".join(damage(lines)))
    chain = read_chain(tmp_path / EVIDENCE)
    assert len(chain.links) == good
    assert chain.problem is not None
    assert re.match(problem, chain.problem), chain.problem


def signed(content: bytes) -> bytes:
    """A line that ends in its digest, whatever is in it."""
    body = content[:-1]
    return body + f',"digest":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


@pytest.mark.parametrize("missing", [1, 30, 100])
def test_torn_last_line_is_what_a_killed_run_leaves(missing: int, tmp_path: Path) -> None:
    lines = write(tmp_path / EVIDENCE)
    (tmp_path / EVIDENCE).write_bytes(b"".join(lines)[:-missing])
    chain = read_chain(tmp_path / EVIDENCE)
    assert (chain.problem, chain.torn, len(chain.links)) == (None, True, 7)


def test_a_wrong_type_in_an_honest_chain_is_found(tmp_path: Path) -> None:
    wrong = dataclasses.replace(step(1), loss="2.5")  # type: ignore[arg-type]
    write(tmp_path / EVIDENCE, [BEGIN, wrong])
    assert read_chain(tmp_path / EVIDENCE).problem == "line 2: step.loss: got '2.5'; expected a number"


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no such file; a run writes it with train --evidence"):
        read_chain(tmp_path / EVIDENCE)
    write(tmp_path / EVIDENCE)
    monkeypatch.setattr(chain_links, "MOST_LINE_BYTES", 200)
    assert read_chain(tmp_path / EVIDENCE).problem == "line 1: longer than 200 bytes"
    with pytest.raises(InputError, match="expected at most 100; it is no run's"):
        read_chain(tmp_path / EVIDENCE, most_bytes=100)
