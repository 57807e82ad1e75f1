"""The file of a run's evidence over its attempts."""

import hashlib
from pathlib import Path

from benchmark.evidence.chain_links import EVIDENCE, NOTHING, read_chain
from benchmark.evidence.link_contents import Dropped
from benchmark.training.guards.witness.evidence_log import EvidenceLog, sha256_of
from tests.benchmark.evidence.test_chain_links import CONTENTS, write


def log_with(folder: Path, first: int, last: int, resumed_head: str | None = None) -> EvidenceLog:
    log = EvidenceLog(folder, resumed_head)
    for content in CONTENTS[first:last]:
        log.add(content)
    log.close()
    return log


def test_a_new_chain(tmp_path: Path) -> None:
    log = log_with(tmp_path, 0, 8)
    chain = read_chain(tmp_path / EVIDENCE)
    assert (log.is_new, log.dropped, log.head) == (True, None, chain.head)
    assert len(chain.links) == 8


def test_links_behind_the_checkpoint_are_cut_off_and_counted(tmp_path: Path) -> None:
    at_checkpoint = log_with(tmp_path, 0, 4).head
    dropped = log_with(tmp_path, 4, 7, at_checkpoint).head
    log = log_with(tmp_path, 5, 8, at_checkpoint)
    assert (log.is_new, log.dropped) == (False, Dropped(3, dropped))
    chain = read_chain(tmp_path / EVIDENCE)
    assert chain.problem is None
    assert [link.content for link in chain.links][3:] == [CONTENTS[3], *CONTENTS[5:]]


def test_a_torn_line_behind_the_checkpoint_goes_too(tmp_path: Path) -> None:
    head = log_with(tmp_path, 0, 4).head
    with (tmp_path / EVIDENCE).open("ab") as file:
        file.write(b'{"kind":"st')
    assert log_with(tmp_path, 5, 6, head).dropped is None
    chain = read_chain(tmp_path / EVIDENCE)
    assert (chain.problem, chain.torn, len(chain.links)) == (None, False, 5)


def test_a_crash_between_checkpoint_and_link(tmp_path: Path) -> None:
    """The checkpoint is there, its link is not: the file is kept, and a chain begins that says what it continues."""
    write(tmp_path / EVIDENCE, CONTENTS[:3])
    log = log_with(tmp_path, 0, 1, "f" * 64)
    assert log.is_new
    chain = read_chain(tmp_path / EVIDENCE)
    assert (chain.problem, chain.links[0].previous) == (None, "f" * 64)
    assert len(read_chain(tmp_path / f"{EVIDENCE}.set_aside_1").links) == 3


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    head = log_with(tmp_path, 0, 3).head
    log = log_with(tmp_path, 0, 2)
    assert (log.is_new, log.dropped) == (True, Dropped(3, head))
    assert len(read_chain(tmp_path / EVIDENCE).links) == 2


def test_what_is_no_chain_is_never_deleted(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / EVIDENCE).write_bytes(b"mine\n")
        log = log_with(tmp_path, 0, 2)
        assert (log.is_new, log.dropped) == (True, None)
        assert (tmp_path / f"{EVIDENCE}.set_aside_{number}").read_bytes() == b"mine\n"


def test_a_run_that_was_begun_without_evidence(tmp_path: Path) -> None:
    log = EvidenceLog(tmp_path, "")
    assert (log.is_new, log.head) == (True, NOTHING)
    log.close()


def test_digest_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc")
    assert sha256_of(tmp_path / "log") == hashlib.sha256(b"abc").hexdigest()
