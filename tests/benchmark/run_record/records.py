"""A run's evidence, made up or edited, signed as the run's own code would."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmark.run_record.evidence_chain import (
    NOTHING,
    VERSION,
    AnyRecord,
    BeginRecord,
    CheckpointRecord,
    EndRecord,
    EvaluationRecord,
    OptimizerStepRecord,
    encode,
    read_chain,
)
from benchmark.run_record.file_names import EVIDENCE_FILE

Edit = Callable[[AnyRecord], AnyRecord | None]


def begin(attempt: str = "0001", step: int = 0, continues: str = "") -> BeginRecord:
    """The state after ``step`` steps has fingerprints that are its number."""
    return BeginRecord(
        attempt, step, VERSION, continues, {"seed": 1}, {"torch": "2"}, {}, f"{step:016x}", f"{step:016x}"
    )


def step(number: int, attempt: str = "0001") -> OptimizerStepRecord:
    return OptimizerStepRecord(attempt, number, 1000 + 16 * number, 5.0 - number, 1.0, 1e-3, f"{number:016x}")


def checkpoint(number: int, attempt: str = "0001") -> CheckpointRecord:
    return CheckpointRecord(attempt, number, f"{number:016x}", f"{number:016x}")


def whole_run() -> list[AnyRecord]:
    """Four steps and a checkpoint after two, without its end."""
    done = [step(number) for number in range(1, 5)]
    return [begin(), *done[:2], checkpoint(2), *done[2:], EvaluationRecord("0001", 4, 2.5)]


def signed(records: Sequence[AnyRecord]) -> list[tuple[bytes, str]]:
    """Lines and digests."""
    lines: list[tuple[bytes, str]] = []
    for record in records:
        lines.append(encode(record, lines[-1][1] if lines else NOTHING))
    return lines


def write(folder: Path, records: Sequence[AnyRecord], log: bytes | None = b":::MLLOG evidence %s\n") -> Path:
    """Write evidence.jsonl and, unless it is None, the log and the record of it; returns the log's path."""
    lines, path = signed(records), folder / "result_0.txt"
    if log is not None:
        path.write_bytes(log.replace(b"%s", lines[-1][1].encode()))
        end = EndRecord("0001", records[-1].step, "success", hashlib.sha256(path.read_bytes()).hexdigest())
        lines.append(encode(end, lines[-1][1]))
    (folder / EVIDENCE_FILE).write_bytes(b"".join(line + b"\n" for line, _ in lines))
    return path


def forge(folder: Path, edit: Edit) -> None:
    """Edit the records of a run, and make chain and log fit each other again; None leaves a record out."""
    chain, log = read_chain(folder / EVIDENCE_FILE), (folder / "result_0.txt").read_bytes()
    head = chain.links[-1].previous
    renamed: dict[str, str] = {}
    lines: list[tuple[bytes, str]] = []
    for link in chain.links[:-1]:
        record = edit(link.record)
        if isinstance(record, BeginRecord):
            record = msgspec.structs.replace(record, continues=renamed.get(record.continues, record.continues))
        if record is not None:
            lines.append(encode(record, lines[-1][1] if lines else NOTHING))
            renamed[link.digest] = lines[-1][1]
    (folder / "result_0.txt").write_bytes(log.replace(head.encode(), lines[-1][1].encode()))
    digest = hashlib.sha256((folder / "result_0.txt").read_bytes()).hexdigest()
    lines.append(encode(msgspec.structs.replace(chain.links[-1].record, log_sha256=digest), lines[-1][1]))
    (folder / EVIDENCE_FILE).write_bytes(b"".join(line + b"\n" for line, _ in lines))


def at_step(number: int, **changes: object) -> Edit:
    """Change fields of a step's record."""

    def edit(record: AnyRecord) -> AnyRecord:
        is_it = isinstance(record, OptimizerStepRecord) and record.step == number
        return msgspec.structs.replace(record, **changes) if is_it else record

    return edit
