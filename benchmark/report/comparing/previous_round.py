"""What changed since another round, or since an earlier version of the same one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmark.config.accelerators import accelerator_named
from benchmark.report.page_numbers import NOTHING, number
from benchmark.results_table.row_facts import SystemFacts


@dataclass(frozen=True)
class ChangeRow:
    """A system, and what it was."""

    name: str
    kind: str
    """same, successor, new or gone."""
    before: str
    """Name and round of what it is compared with."""
    score_before: str
    score: str
    difference: str
    """Of the score, in per cent."""
    other: Sequence[str]
    """What else changed."""


def changes(systems: Sequence[SystemFacts], names: Sequence[str], before: Sequence[SystemFacts]) -> list[ChangeRow]:
    """A row per system, then those that are gone.

    A system is compared with that of the same package and folder; failing that, with one of the same submitter, of as
    many accelerators of the same model, that has no namesake.
    """
    left = list(before)
    folders = Counter(facts.result_set.name for facts in before)

    def name_of(facts: SystemFacts) -> str:
        """Its folder, with the package where others have one of that name."""
        folder = facts.result_set.name
        return folder if folders[folder] < 2 or facts.package is None else f"{facts.package}/{folder}"

    partners: dict[int, tuple[str, SystemFacts]] = {}
    for kind, alike in (("same", _namesakes), ("successor", _alike)):
        for place, facts in enumerate(systems):
            found = next((other for other in left if alike(facts, other)), None)
            if place not in partners and found is not None:
                partners[place] = kind, found
                left.remove(found)
    rows = []
    for place, (facts, name) in enumerate(zip(systems, names, strict=True)):
        kind, other = partners.get(place, ("new", None))
        told = NOTHING if other is None else f"{name_of(other)}, v{other.round}"
        rows.append(_row(kind, name, facts, other, told))
    gone = []
    for facts in left:
        name, score = name_of(facts), number(facts.score.minutes, "{:.2f}")
        gone.append(ChangeRow(name, "gone", f"{name}, v{facts.round}", score, NOTHING, NOTHING, ()))
    return rows + gone


def _namesakes(one: SystemFacts, other: SystemFacts) -> bool:
    return (one.package, one.result_set.name) == (other.package, other.result_set.name)


def _alike(one: SystemFacts, other: SystemFacts) -> bool:
    first, second = one.score, other.score
    if one.package != other.package or first.accelerators is None or first.accelerators != second.accelerators:
        return False
    models = [accelerator_named(score.accelerator or "") or score.accelerator for score in (first, second)]
    return models[0] == models[1]


def _row(kind: str, name: str, facts: SystemFacts, other: SystemFacts | None, told: str) -> ChangeRow:
    """``told``: name and round of ``other``."""
    minutes = facts.score.minutes
    if other is None:
        return ChangeRow(name, kind, NOTHING, NOTHING, number(minutes, "{:.2f}"), NOTHING, ())
    was = other.score.minutes
    ratio = NOTHING if not minutes or not was else f"{minutes / was - 1:+.1%}"
    return ChangeRow(
        name, kind, told, number(was, "{:.2f}"), number(minutes, "{:.2f}"), ratio, list(_others(facts, other))
    )


def _others(facts: SystemFacts, other: SystemFacts) -> list[str]:
    told = []
    for title, now, was in (
        ("batch size", number(facts.score.batch_size, "{:,.0f}"), number(other.score.batch_size, "{:,.0f}")),
        ("convergence", facts.result_set.convergence.standing, other.result_set.convergence.standing),
        ("review", _verdict(facts), _verdict(other)),
    ):
        if now != was:
            told.append(f"{title} {was}, now {now}")
    for severity in ("error", "warning"):
        now_rules, was_rules = ({finding.rule for finding in one.findings(severity)} for one in (facts, other))
        told += [f"new {severity} {rule}" for rule in sorted(now_rules - was_rules)]
        told += [f"no more {severity} {rule}" for rule in sorted(was_rules - now_rules)]
    return told


def _verdict(facts: SystemFacts) -> str:
    """By our own rules, which alone are applied to what was before."""
    return "rejected" if facts.findings("error") else "acceptable"
