"""Every colour of the page can be read: a contrast of at least 4.5 to 1, light and dark (WCAG 2.2, 1.4.3)."""

import re
from pathlib import Path

import pytest

import benchmark.judging.report

CSS = (Path(benchmark.judging.report.__file__).parent / "template" / "report.css").read_text()
LEAST = 4.5
BACKGROUNDS = {"good": "good-back", "bad": "bad-back", "warn": "warn-back"}
NOT_READ = ("page", "panel", "line", "grid")
"""Backgrounds, and rules between rows."""


def scheme(dark: bool) -> dict[str, str]:
    light, rest = CSS.split("@media (prefers-color-scheme: dark)", 1)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light.split("}")[0]))
    return {**found, **dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", rest.split("}")[0]))} if dark else found


def luminance(colour: str) -> float:
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_lines_and_parts_stand_out(dark: bool) -> None:
    colours = scheme(dark)
    drawn = {name for name in colours if name not in NOT_READ and not name.endswith("-back")}
    assert {"text", "quiet", "good", "bad", "warn", "target", "run-0", "run-5", "part-stop"} <= drawn
    low = {name: round(contrast(colours[name], colours["page"]), 2) for name in drawn}
    assert {name: found for name, found in low.items() if found < LEAST} == {}
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    for name, behind in BACKGROUNDS.items():
        assert contrast(colours[name], colours[behind]) >= LEAST
