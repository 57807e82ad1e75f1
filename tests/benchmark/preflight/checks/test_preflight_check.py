"""Findings of several processes become one."""

from benchmark.preflight.checks.preflight_check import CheckResult, worst
from tests.benchmark.preflight.checks.places import alone


def test_the_worst_of_several_is_named() -> None:
    fine, bad = CheckResult("ok", "fine"), CheckResult("FAILED", "broken", "mend it")
    assert worst(alone(None), [("a", fine), ("b", fine)]) == fine
    assert worst(alone(None), [("a", fine), ("b", bad)]) == CheckResult("FAILED", "b: broken", "mend it")
    many = [("a", fine), *((f"b{number}", bad) for number in range(5))]
    assert worst(alone(None), many).found == "b0: broken; b1: broken; b2: broken; and 2 more"
