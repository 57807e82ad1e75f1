"""``evidence.jsonl``: the records that a run writes about itself (--evidence), and their check without training.

The design:
 1. A line is a record. It ends in the SHA-256 of all bytes before it in the line, and names the previous line's
    digest. Nothing can be changed, left out or moved without a break, and the check names the line of the break.
 2. Lines are only appended. Every attempt at the run begins with a ``begin`` record and marks its records with its
    name. An attempt that resumes from a checkpoint ``continues`` the record of that checkpoint. The checkpoint holds
    that record's digest, so that a run can resume on other machines. Lost steps stay in the file.
 3. A step is its first sample, loss, gradient norm, learning rate, and one fingerprint of all weights after it, which
    no topology changes (benchmark/training/engine/tensor_fingerprint.py). Checkpoints add one of the moments.
 4. ``begin`` has the configuration and digests of the inputs; ``end`` the SHA-256 of the MLPerf log, which in turn has
    the digest of the record before ``end``: neither can be exchanged alone.
 5. :func:`broken_links` finds faults that no honest run leaves, :func:`gaps` faults that a full disk leaves, too.
 6. ``replay`` trains a stretch again with the same observer, which writes another chain, and compares the two.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from benchmark.run_record.file_names import EVIDENCE_FILE
from foundation.disk_answers import is_there
from foundation.errors import InputError
from foundation.regular_files import UnfitFile, read_regular

VERSION = 2
"""Version of the form of the records and of the fingerprints."""
NOTHING = "0" * 64
"""Value that stands for the digest before the first line."""
ENDING = re.compile(rb',"digest":"([0-9a-f]{64})"}')
ENDING_BYTES = len(f',"digest":"{NOTHING}"}}')
MOST_BYTES = 1 << 28
"""Most bytes of a file: a step takes 400, so 600,000 steps fit."""
MOST_LINE_BYTES = 1 << 20
MOST_LOG_BYTES = 1 << 28
MOST_SHOWN = 200
"""Most characters of a value in a message."""


class ChainRecord(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """Fields that all records have."""

    attempt: str
    """Name of the attempt that wrote the record, which is also its folder's name below attempts/."""
    step: int
    """Optimizer steps done since the initial checkpoint."""


class BeginRecord(ChainRecord, frozen=True, tag="begin"):
    """An attempt begins to train."""

    version: int
    continues: str
    """Digest of the record of the checkpoint that the attempt goes on from; empty if it starts from the initial one."""
    config: dict[str, Any]
    """The configuration that ``replay`` needs: benchmark, system, precision, seed, paths of the data ..."""
    kernels: dict[str, Any]
    """Device, versions and all else that chooses the bits that kernels give (machine/run_environment.py)."""
    inputs: dict[str, Any]
    """Digests of data and initial checkpoint, by purpose; without their paths."""
    weights: str
    """Fingerprint of the loaded weights, 16 hexadecimal digits; the other fingerprints have the same form."""
    moments: str


class OptimizerStepRecord(ChainRecord, frozen=True, tag="step"):
    """An optimizer step was done."""

    first_sample: int
    """Index, in the order of samples since step 0, of the first sample that the step read."""
    loss: float | None
    """Loss of the step. Loss and norm are None if they were not finite."""
    grad_norm: float | None
    learning_rate: float
    weights: str
    """Fingerprint of the weights after the update."""


class EvaluationRecord(ChainRecord, frozen=True, tag="evaluation"):
    """The validation set was evaluated."""

    log_perplexity: float | None


class CheckpointRecord(ChainRecord, frozen=True, tag="checkpoint"):
    """A checkpoint was begun; it may never have been finished."""

    weights: str
    moments: str


class EndRecord(ChainRecord, frozen=True, tag="end"):
    """The run ended, and its MLPerf log is complete."""

    status: str
    log_sha256: str


AnyRecord = BeginRecord | OptimizerStepRecord | EvaluationRecord | CheckpointRecord | EndRecord
RecordKind = TypeVar("RecordKind", bound=AnyRecord)
DECODER = msgspec.json.Decoder(AnyRecord)


@dataclass(frozen=True)
class Fault:
    """A link of the chain that does not hold."""

    line: int | None
    """Line of the evidence, from 1; None if the fault is about the file as a whole."""
    step: int | None
    subject: str
    recorded: str
    """Value that the run recorded."""
    actual: str
    """Value that the file, the log or the replay has."""

    def text(self) -> str:
        """Describe the fault for people: not too long, and without characters that a terminal would obey."""
        where = ", ".join(f"{name} {value}" for name, value in (("line", self.line), ("step", self.step)) if value)
        values = f"recorded {printable(self.recorded)}, found {printable(self.actual)}"
        return f"{where or EVIDENCE_FILE}: {self.subject}: {values}"


@dataclass(frozen=True)
class Link:
    """One line of the chain."""

    line: int
    """Number of the line, from 1."""
    end: int
    """Bytes of the file up to the end of this line."""
    digest: str
    previous: str
    """Digest of the line before."""
    record: AnyRecord


@dataclass(frozen=True)
class Chain:
    """The lines of a file, up to the first that does not hold."""

    path: Path
    links: tuple[Link, ...]
    problem: Fault | None
    """The fault of the line after them. A torn last line, left by a kill, is no fault."""

    @property
    def head(self) -> str:
        """Digest of the last line."""
        return self.links[-1].digest if self.links else NOTHING

    def counting(self) -> list[Link]:
        """Return the links of the run's final history, without the steps that were lost and made again."""
        links: list[Link] = []
        index: int | None = len(self.links) - 1 if self.links else None
        while index is not None:
            link = self.links[index]
            links.append(link)
            index = self._index(link.record.continues) if isinstance(link.record, BeginRecord) else index - 1
            if index is not None and index >= link.line - 1:
                break  # only a forger's begin continues a later record
        return links[::-1]

    def by_digest(self, digest: str) -> Link | None:
        index = self._index(digest)
        return None if index is None else self.links[index]

    def _index(self, digest: str) -> int | None:
        return next((index for index, link in enumerate(self.links) if link.digest == digest), None)


def by_step(links: Sequence[Link], kind: type[RecordKind]) -> dict[int, tuple[Link, RecordKind]]:
    """Return links and records of one kind, by step."""
    return {link.record.step: (link, link.record) for link in links if isinstance(link.record, kind)}


def encode(record: AnyRecord, previous: str) -> tuple[bytes, str]:
    """Return the line of a record, without its end of line, and its digest. Numbers that are not finite become null."""
    body = msgspec.json.encode(record)[:-1] + f',"previous":"{previous}"'.encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f',"digest":"{digest}"}}'.encode(), digest


def require_chain(path: Path) -> None:
    """Raise InputError if there is no such file."""
    if not is_there(path):
        raise InputError(f"{path}: no such file; a run writes it with train --evidence")


def read_chain(path: Path) -> Chain:
    """Read a chain, which may be a stranger's.

    Raises InputError if the file does not exist, is larger than a run's, or was written in another form.
    """
    require_chain(path)
    try:
        content = read_regular(path, MOST_BYTES)
    except UnfitFile as unfit:
        raise InputError(f"{path}: {unfit}; give the folder of a run") from unfit
    links: list[Link] = []
    end = 0
    for number, line in enumerate(content.split(b"\n")[:-1], 1):  # a torn line is behind the last line end
        end += len(line) + 1
        previous = links[-1].digest if links else NOTHING
        try:
            links.append(_link(number, line, end, previous))
        except (ValueError, RecursionError) as error:
            if number == 1 and (form := re.search(rb'"version":(\d{1,9})', line)) and int(form[1]) != VERSION:
                raise InputError(
                    f"{path}: evidence of form {int(form[1])}; this version of the code reads form {VERSION}: check it "
                    "with the code that wrote it"
                ) from None
            return Chain(path, tuple(links), Fault(number, None, "the line", str(error), f"{len(links)} links hold"))
    return Chain(path, tuple(links), None)


def _link(number: int, line: bytes, end: int, previous: str) -> Link:
    """Parse a line. Raises ValueError if the line is no record, was changed, or follows another line than
    ``previous``."""
    body = line[:-ENDING_BYTES]
    ending = ENDING.fullmatch(line, len(body))
    parts = re.fullmatch(rb'(.*),"previous":"([0-9a-f]{64})"', body)
    if len(line) > MOST_LINE_BYTES or ending is None or parts is None:
        raise ValueError("no record that ends in its digest")
    if hashlib.sha256(body).hexdigest().encode() != ending[1]:
        raise ValueError("it was changed since it was written: its digest is another")
    if parts[2].decode() != previous:
        raise ValueError("it follows another line than the one before it: lines were left out, put in or moved")
    record = DECODER.decode(parts[1] + b"}")  # msgspec's errors are ValueErrors
    return Link(number, end, ending[1].decode(), previous, record)


def broken_links(chain: Chain, log: Path | None) -> list[Fault]:
    """Return the faults that no honest run leaves: in the chain itself, and between it and the run's MLPerf log.

    ``log``: None leaves the log out. Raises OSError if the log cannot be read.
    """
    faults = [] if chain.problem is None else [chain.problem]
    if not chain.links and chain.problem is None:
        faults.append(Fault(None, None, "the chain", "no record", "nothing to check"))
    step = 0
    for link in chain.links:
        record = link.record
        expected_step = step + isinstance(record, OptimizerStepRecord)
        if isinstance(record, BeginRecord):
            faults += _begin_faults(chain, link, record)
        elif record.step != expected_step:
            faults.append(
                Fault(link.line, record.step, "number of the step", str(record.step), f"{expected_step} is due")
            )
        step = record.step
    last_link = chain.links[-1] if chain.links else None
    if last_link is not None and isinstance(last_link.record, EndRecord) and log is not None:
        content = read_regular(log, MOST_LOG_BYTES)
        digest = hashlib.sha256(content).hexdigest()
        if digest != last_link.record.log_sha256:
            subject = f"SHA-256 of {log.name}, the MLPerf log"
            faults.append(Fault(last_link.line, last_link.record.step, subject, last_link.record.log_sha256, digest))
        elif last_link.previous.encode() not in content:
            subject = f"the chain's digest in {log.name}, the MLPerf log"
            faults.append(
                Fault(last_link.line, last_link.record.step, subject, last_link.previous, "another chain's, or none")
            )
    return faults


def _begin_faults(chain: Chain, link: Link, begin: BeginRecord) -> list[Fault]:
    """Return a fault if the loaded state is not the saved one."""
    saved = chain.by_digest(begin.continues)
    if saved is None:
        return []  # a gap, if it is anything
    if not isinstance(saved.record, CheckpointRecord) or saved.line > link.line or saved.record.step != begin.step:
        expected = f"the record of the checkpoint after {begin.step} steps"
        return [Fault(link.line, begin.step, "record to continue", f"line {saved.line}", expected)]
    subject = "fingerprints of weights and moments of the checkpoint"
    recorded, loaded = ((record.weights, record.moments) for record in (saved.record, begin))
    return (
        []
        if recorded == loaded
        else [Fault(saved.line, begin.step, subject, " ".join(recorded), f"{' '.join(loaded)} were loaded")]
    )


def gaps(chain: Chain) -> list[str]:
    """Describe the parts of the run that the chain does not cover; a full disk costs evidence, not the run."""
    lines = []
    counting = chain.counting()
    if counting and isinstance(counting[0].record, BeginRecord) and counting[0].record.step > 0:
        lines.append(f"the chain begins after {counting[0].record.step} steps: earlier steps are not in it")
    if counting and not isinstance(counting[-1].record, EndRecord):
        lines.append("the chain has no end: the run goes on, was killed, or its disk was full")
    return lines


def printable(text: str) -> str:
    """Return a stranger's text, shortened, with its control characters written out."""
    excerpt = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in excerpt)
