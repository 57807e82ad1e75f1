"""Compare names in logs, folders and results with the system's description (docs/facts/mlperf_review.md 4.5, 6.9, 7.9).

Published results disagree here in many harmless ways (docs/notes/published_oddities.md), so all findings are questions.
"""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from benchmark.config.accelerators import models_in
from benchmark.judging.results.subjects import ResultSet, SubmissionPackage
from benchmark.judging.review.findings import Deviation, Run, at

COUNTS_IN_NAMES = (
    re.compile(r"^(\d+)x"),
    re.compile(r"(?i)(?:^|[-_ ])n(\d+)(?=$|[-_ ])"),
    re.compile(r"(?i)(?<=[a-z0-9])[-_ ]?x(\d{2,})$"),
)
"""Patterns of counts in names: 64xDGX, eos_n64_nemo, h100x512. Other numbers are ignored: racks, clusters, versions."""
CORES_PER_CHIP = 2
"""Cores of a TPU v4 or v5p chip: these are sold and named by their cores."""
NAMED_KEYS = ("submission_org", "submission_platform")
EMPTY_WORDS = frozenset("inc corp corporation ltd llc gmbh co company systems cloud the of and".split())
"""Words that do not tell organisations apart."""
NOT_FILLED_IN = re.compile(
    r"(?i)\b(todo|fixme|placeholder|fill[ _-]?in|tbd|tba|xxx+)\b|\binsert\b.*\bhere\b|_PLACEHOLDER|^<.*>$|^\$\{?\w+\}?$"
    r"|^\?+$"
)
"""Marks that templates and people leave in a value that is still to be written."""
SAYS_NOTHING = re.compile(r"(?i)^\s*(unknown|n/?a|not applicable|none|-+|\.+)?\s*$")
UNSEEN = ("Cf", "Cc", "Co", "Cn", "Zl", "Zp")
"""Categories of invisible characters; Cf has those that turn the direction of writing."""
MOST_NAMED = 4096


def counts(results: ResultSet) -> Iterator[Deviation]:
    """Check the numbers of nodes or devices in the names of platform, folder and system against the description's
    fields."""
    system = results.system
    if system is None or system.accelerators is None:
        return
    nodes, devices = system.count("number_of_nodes") or 0, system.count("accelerators_per_node")
    by_cores = (system.string("accelerator_model_name") or "").upper().startswith("TPU")
    allowed = {nodes, system.accelerators, system.accelerators * (CORES_PER_CHIP if by_cores else 1)}
    expected = f"{nodes} nodes x {devices} = {system.accelerators} devices, as in systems/{system.path.name}"
    for path, line, kind, text in _names(results):
        stated = {int(number[1][:9]) for pattern in COUNTS_IN_NAMES for number in pattern.finditer(text)}
        if stated and not stated & allowed:
            yield Deviation(path, line, f"{kind} {text!r:.60}", expected)


def accelerators(results: ResultSet) -> Iterator[Deviation]:
    """Check for names of another accelerator than the description's."""
    model = "" if results.system is None else results.system.string("accelerator_model_name") or ""
    described = models_in(model)
    for path, line, kind, text in _names(results) if described else ():
        stated = models_in(text)
        if stated and not stated & described:
            observed = f"{kind} {text!r:.60} with accelerator_model_name {model!r:.60}"
            yield Deviation(path, line, observed, "one accelerator")


def _names(results: ResultSet) -> Iterator[tuple[Path, int | None, str, str]]:
    """Yield the path, the line, the kind of name, and the name."""
    for run in results.runs:
        event = run.log.first("submission_platform")
        if event is not None and isinstance(event.value, str):
            yield run.log.path, event.line, "submission_platform", event.value
    if results.system is not None:
        yield results.system.path, results.system.line("number_of_nodes"), "folder", results.name
        name = results.system.string("system_name") or ""
        if name != results.name:
            yield results.system.path, results.system.line("system_name"), "system_name", name


def submitter(results: ResultSet) -> Iterator[Deviation]:
    """Check for a log of another organisation than the description's; two spellings of one name are allowed."""
    described = "" if results.system is None else results.system.string("submitter") or ""
    for run in results.runs:
        event = run.log.first("submission_org")
        if event is None or not isinstance(event.value, str) or placeholder(event.value) or placeholder(described):
            continue
        if described and event.value.strip() and not like_name(event.value, described):
            yield at(run, event, f"submission_org {event.value!r:.60}", f"{described!r:.60}, who submits the system")


def placeholders(results: ResultSet) -> Iterator[Deviation]:
    """Ask once per log about placeholders: whoever fills in one name fills in the others."""
    for run in results.runs:
        for key in NAMED_KEYS:
            event = run.log.first(key)
            if event is not None and isinstance(event.value, str) and placeholder(event.value):
                yield at(run, event, f"{key} {event.value!r:.60}", "a name")
                break


def seeds_across(package: SubmissionPackage) -> Iterator[Deviation]:
    """Ask once about seeds that occur in runs of two systems."""
    systems: dict[int, str] = {}
    shared: dict[int, tuple[Run, int]] = {}
    for results in package.sets:
        for run in results.runs:
            for event in run.log.all("seed"):
                if type(event.value) is int and systems.setdefault(event.value, results.name) != results.name:
                    shared.setdefault(event.value, (run, event.line))
    if shared:
        seed, (run, line) = next(iter(shared.items()))
        more = f" and {len(shared) - 1} other seeds" if len(shared) > 1 else ""
        observed = f"seed {seed}, that of {systems[seed]}{more}"
        yield Deviation(run.log.path, line, observed, "seeds drawn anew for every run")


def unseen_letters(package: SubmissionPackage) -> Iterator[Deviation]:
    """Check for invisible characters in names, which people compare by eye and tools byte by byte."""
    texts: list[tuple[Path, int | None, object]] = [(package.path, None, package.path.name)]
    for results in package.sets:
        texts.append((results.path, None, results.name))
        events = [(run, run.log.first(key)) for run in results.runs for key in NAMED_KEYS]
        texts += [(run.log.path, event.line, event.value) for run, event in events if event is not None]
    for description in package.descriptions:
        for name in ("submitter", "system_name", "division", "status", "accelerator_model_name"):
            texts.append((description.path, description.line(name), description.content.get(name)))
    for path, line, text in texts:
        odd = next(filter(_unseen, text[:MOST_NAMED]), "") if isinstance(text, str) else ""
        if odd:
            observed = f"{text!a:.60} with a character that cannot be seen, U+{ord(odd):04X}"
            yield Deviation(path, line, observed, "letters that can be seen")


def _unseen(letter: str) -> bool:
    return unicodedata.category(letter) in UNSEEN or (letter.isspace() and letter != " ")


def placeholder(text: str) -> bool:
    """Return whether a text is a mark left by a template, or a word that is no name; an empty text is not."""
    return NOT_FILLED_IN.search(text) is not None or (text.strip() != "" and SAYS_NOTHING.match(text) is not None)


def like_name(first: str, second: str) -> bool:
    """Return whether two names can mean the same organisation: one contains the other, they share a word, or initials
    match."""
    words = [[word for word in re.split(r"[^a-z0-9]+", name.lower()) if word] for name in (first, second)]
    joined = ["".join(parts) for parts in words]
    if min(map(len, joined)) < 2:
        return joined[0] == joined[1] != ""
    initials = ["".join(word[0] for word in parts) for parts in words]
    common = {word for word in words[0] if len(word) > 1} & set(words[1]) - EMPTY_WORDS
    return bool(common) or any(
        joined[a] in joined[b] or (initials[b] in words[a][:1] and len(words[b]) > 1) for a, b in ((0, 1), (1, 0))
    )
