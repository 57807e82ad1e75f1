"""What a log says of its system against description and folder (docs/facts/mlperf_review.md 4.5, 6.9, 7.9).

Published results disagree here in many harmless ways (docs/review.md lists them): those are questions or notes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.config.accelerators import ACCELERATORS
from benchmark.results.subjects import ResultSet, SubmissionPackage
from benchmark.results.system_description import SystemDescription
from benchmark.review.findings import Deviation, Run, at
from benchmark.review.rules.copy_rules import like_name
from benchmark.review.rules.system_rules import NOT_FILLED_IN, SAYS_NOTHING

COUNTS_IN_NAMES = (
    re.compile(r"^(\d+)x"),
    re.compile(r"(?i)(?:^|[-_ ])n(\d+)(?=$|[-_ ])"),
    re.compile(r"(?i)(?<=[a-z0-9])[-_ ]?x(\d+)$"),
    re.compile(r"[-_](\d{2,})(?=$|[-_])"),
)
"""64xDGX, eos_n64_nemo, h100x512, gaudi-256, tpu-v5p-1024-maxtext."""
CORES_PER_CHIP = 2
"""TPU v4 and v5p are sold and named by their cores."""
MAKERS = {
    "NVIDIA": ("GB200", "B200", "GH200", "H200 NVL", "H200", "H100 NVL", "H100 PCIe", "H100 SXM", "A100-80GB", "A100"),
    "Google": ("TPU v5p", "TPU v5e", "Trillium"),
    "Intel": ("Gaudi 2",),
}
"""Of benchmark/config/accelerators.py."""
NAMED_KEYS = ("submission_org", "submission_platform")
STATUS_WORDS = {"cloud": "cloud", "premise": "onprem", "onprem": "onprem", "preview": "preview", "research": "research"}
"""Words of a description's status, and the submission_status of its logs."""
AVAILABLE = ("cloud", "onprem")


@dataclass(frozen=True)
class Named:
    """A name that says something of the system, and where it stands."""

    run: Run
    text: str
    line: int | None


def counts(one: ResultSet) -> Iterator[Deviation]:
    """The number in a log's platform is that of nodes, devices or cores of the description."""
    allowed = _allowed_counts(one.system)
    for named in _platforms(one):
        stated = counts_in(named.text)
        if stated and allowed and not stated & allowed:
            found = f"submission_platform {named.text!r:.60}"
            mend = "put the runs beside the description of the system that made them"
            yield Deviation(named.run.log.path, named.line, found, _due(one.system), mend)


def counts_in_folder(one: ResultSet) -> Iterator[Deviation]:
    stated, allowed = counts_in(one.name), _allowed_counts(one.system)
    if one.system is not None and stated and allowed and not stated & allowed:
        line = one.system.line("number_of_nodes")
        mend = "name the folder by the size of the system, or correct the counts"
        yield Deviation(one.system.path, line, f"folder {one.name!r:.80}", _due(one.system), mend)


def accelerator_maker(one: ResultSet) -> Iterator[Deviation]:
    yield from _accelerators(one, same_maker=False)


def accelerator_model(one: ResultSet) -> Iterator[Deviation]:
    yield from _accelerators(one, same_maker=True)


def _accelerators(one: ResultSet, same_maker: bool) -> Iterator[Deviation]:
    """Logs, folder and system_name that name another accelerator than the description."""
    model = None if one.system is None else one.system.string("accelerator_model_name")
    due = models_in(model or "")
    if one.system is None or model is None or not due:
        return
    places = [(named.run.log.path, named.line, "submission_platform", named.text) for named in _platforms(one)]
    name, line = one.system.string("system_name") or "", one.system.line("accelerator_model_name")
    places += [(one.system.path, line, "folder", one.name), (one.system.path, line, "system_name", name)]
    for path, at_line, what, text in places:
        stated = models_in(text)
        if stated and not stated & due and (_makers(stated) == _makers(due)) == same_maker:
            found = f"{what} {text!r:.60} with accelerator_model_name {model!r:.60}"
            mend = "name the accelerator that made the result everywhere"
            yield Deviation(path, at_line, found, "one accelerator", mend)


def status_class(one: ResultSet) -> Iterator[Deviation]:
    """A log of research or a preview under a description of something available."""
    yield from _statuses(one, available=False)


def status_place(one: ResultSet) -> Iterator[Deviation]:
    """cloud against onprem: 20 of 42 published systems have one in the log and the other in the description."""
    yield from _statuses(one, available=True)


def _statuses(one: ResultSet, available: bool) -> Iterator[Deviation]:
    text = None if one.system is None else one.system.string("status")
    due = {logged for word, logged in STATUS_WORDS.items() if word in (text or "").lower()}
    for run in one.runs if due else ():
        event = run.log.first("submission_status")
        if event is not None and isinstance(event.value, str) and event.value not in due:
            harmless = event.value in AVAILABLE
            if harmless == available and event.value in STATUS_WORDS.values():
                found = f"submission_status {event.value!r} with the description's status {text!r:.60}"
                mend = "log what the description says"
                yield at(run, event, found, " or ".join(sorted(due)), mend)


def other_submitter(one: ResultSet) -> Iterator[Deviation]:
    """A log of another organisation; spellings of one are a question of ``package.submitter``."""
    submitter = None if one.system is None else one.system.string("submitter")
    for run in one.runs:
        event = run.log.first("submission_org")
        if event is None or not isinstance(event.value, str) or not submitter or not event.value.strip():
            continue
        if not placeholder(event.value) and not placeholder(submitter) and not like_name(event.value, submitter):
            found, due = f"submission_org {event.value!r:.60}", f"{submitter!r:.60}, who submits the system"
            yield at(run, event, found, due, "submit logs of your own runs")


def placeholders(one: ResultSet) -> Iterator[Deviation]:
    """Three published systems have them: a question, not an error."""
    for run in one.runs:
        for key in NAMED_KEYS:
            event = run.log.first(key)
            if event is not None and isinstance(event.value, str) and placeholder(event.value):
                yield at(run, event, f"{key} {event.value!r:.60}", "a name", "let the code fill in its placeholder")


def submitter_folder(package: SubmissionPackage) -> Iterator[Deviation]:
    for description in package.descriptions:
        submitter = description.string("submitter")
        if submitter and submitter.strip() and not like_name(submitter, package.path.name):
            found = f"submitter {submitter!r:.60} in folder {package.path.name!r:.60}"
            line = description.line("submitter")
            yield Deviation(description.path, line, found, "one name", "name the package's folder by the submitter")


def seeds_across(package: SubmissionPackage) -> Iterator[Deviation]:
    """One seed in runs of two systems: published once, for a reason nobody knows."""
    seen: dict[int, str] = {}
    for one in package.sets:
        for run in one.runs:
            for event in run.log.all("seed"):
                if type(event.value) is int and seen.setdefault(event.value, one.name) != one.name:
                    found = f"seed {event.value}, used for {seen[event.value]}, too"
                    yield at(run, event, found, "a seed drawn anew", "draw seeds from the clock or the system")


def counts_in(name: str) -> set[int]:
    """Numbers of nodes or devices that a name seems to give."""
    return {int(found[1][:9]) for pattern in COUNTS_IN_NAMES for found in pattern.finditer(name)}


def models_in(name: str) -> set[str]:
    """Accelerators of the table that a name can mean; one of several variants is named by the first that matches."""
    found = {model for model, entry in ACCELERATORS.items() if re.search(entry.pattern, name, re.IGNORECASE)}
    return found


def placeholder(text: str) -> bool:
    """A mark left by a template, or a word that is no name; nothing at all is another matter."""
    return NOT_FILLED_IN.search(text) is not None or (text.strip() != "" and SAYS_NOTHING.match(text) is not None)


def _makers(models: set[str]) -> set[str]:
    return {maker for maker, made in MAKERS.items() if models & set(made)}


def _platforms(one: ResultSet) -> Iterator[Named]:
    for run in one.runs:
        event = run.log.first("submission_platform")
        if event is not None and isinstance(event.value, str):
            yield Named(run, event.value, event.line)


def _allowed_counts(system: SystemDescription | None) -> set[int]:
    if system is None or system.accelerators is None:
        return set()
    named_by_cores = (system.string("accelerator_model_name") or "").upper().startswith("TPU")
    cores = system.accelerators * (CORES_PER_CHIP if named_by_cores else 1)
    return {system.count("number_of_nodes") or 0, system.accelerators, cores}


def _due(system: SystemDescription | None) -> str:
    if system is None:
        return ""
    nodes, each = system.count("number_of_nodes"), system.count("accelerators_per_node")
    return f"{nodes} nodes x {each} = {system.accelerators} devices, as in systems/{system.path.name}"
