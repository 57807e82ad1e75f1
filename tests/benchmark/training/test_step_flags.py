"""What processes tell each other: set on one is set for all, and a person's wish comes first."""

from benchmark.training.step import NO_FLAGS, StepFlags


def test_what_is_set_on_any_process_is_set_for_all() -> None:
    own = [StepFlags(save=True), StepFlags(writer_busy=True), StepFlags(save=True, sigterm=True)]
    sums = [sum(column) for column in zip(*(flags.numbers() for flags in own), strict=True)]
    assert StepFlags.of_all(sums) == StepFlags(save=True, writer_busy=True, sigterm=True)
    assert StepFlags.of_all(NO_FLAGS.numbers()) == NO_FLAGS


def test_reasons_to_stop_in_their_order() -> None:
    everything = StepFlags(exit_trigger=True, sigusr2=True, sigterm=True, time_limit=True)
    assert everything.stop_by == "exit trigger"
    assert StepFlags(sigusr2=True, sigterm=True).stop_by == "signal SIGUSR2"
    assert StepFlags(sigterm=True, time_limit=True).stop_by == "signal SIGTERM"
    assert StepFlags(time_limit=True).stop_by == "time limit"
    assert StepFlags(save=True, writer_busy=True, writer_broken=True).stop_by is None
