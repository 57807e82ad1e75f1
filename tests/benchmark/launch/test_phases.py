"""Who is told what a process is doing."""

from benchmark.launch.phases import Phase, PhaseLog


class Listening:
    def __init__(self) -> None:
        self.heard: list[tuple[Phase, int]] = []

    def enter(self, phase: Phase, steps: int) -> None:
        self.heard.append((phase, steps))


def test_all_observers_are_told() -> None:
    one, two = Listening(), Listening()
    log = PhaseLog(one)
    log.enter("data", 3)
    log.add(two)
    log.enter("passes", 3)
    assert one.heard == [("data", 3), ("passes", 3)]
    assert two.heard == [("passes", 3)]
