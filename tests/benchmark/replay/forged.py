"""A run with evidence, and what somebody may do to it who wants it to look better."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmark.evidence.chain_links import EVIDENCE, NOTHING, encode_link, read_chain
from benchmark.evidence.link_contents import Content, EndLink, StepLink

EditLinks = Callable[[Content], Content | None]
EditLog = Callable[[dict[str, Any]], dict[str, Any] | None]


def edit_log(run_dir: Path, edit: EditLog) -> None:
    """Rewrite result_0.txt record by record; None leaves one out."""
    path = run_dir / "result_0.txt"
    records = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
    kept = [record for record in map(edit, records) if record is not None]
    path.write_text("".join(f":::MLLOG {json.dumps(record)}\n" for record in kept))


def forge(run_dir: Path, edit: EditLinks = lambda content: content, log: EditLog = lambda record: record) -> None:
    """Change links, and make the whole chain and the log fit each other again, as the run's own code would."""
    contents = [link.content for link in read_chain(run_dir / EVIDENCE).links]
    kept = [content for content in map(edit, contents) if content is not None]
    head = _write(run_dir, [one for one in kept if not isinstance(one, EndLink)])
    edit_log(run_dir, log)
    edit_log(run_dir, lambda record: {**record, "value": head} if record["key"] == "evidence" else record)
    digest = hashlib.sha256((run_dir / "result_0.txt").read_bytes()).hexdigest()
    _write(run_dir, [dataclasses.replace(one, log_sha256=digest) if isinstance(one, EndLink) else one for one in kept])


def _write(run_dir: Path, contents: Sequence[Content]) -> str:
    lines, head = [], NOTHING
    for content in contents:
        line, head = encode_link(content, head)
        lines.append(line + b"\n")
    (run_dir / EVIDENCE).write_bytes(b"".join(lines))
    return head


def at_step(step: int, **changes: Any) -> EditLinks:
    """Change fields of a step's link."""

    def edit(content: Content) -> Content:
        is_it = isinstance(content, StepLink) and content.step == step
        return dataclasses.replace(content, **changes) if is_it else content

    return edit


def of_key(key: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> EditLog:
    """Change the records of a key."""
    return lambda record: change(record) if record["key"] == key else record
